// Whether layers move, copy and replicate, and what training by two processes exchanges:
//   bazel run //experiments:replicas
//
// Writes replicas.csv into its directory: a line for each check of each cell (docs/replicas.md).
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/child_process.h"
#include "benchmarks/grid_program.h"
#include "benchmarks/linear_workload.h"
#include "benchmarks/replica_checks.h"
#include "benchmarks/result_table.h"
#include "benchmarks/sweep.h"
#include "kernels/linear/auto.h"

namespace ttbench {
namespace {

using Fields = std::vector<std::string>;
using nlohmann::json;

constexpr const char* kHelp =
    R"(Checks that layers move, copy and replicate as modules should, alone and in two processes that
train one layer together, and counts what these exchange: docs/replicas.md.

  --preset=default       quick or default (of //experiments:replicas), or a file of flags
  --shape=768:3072       layers: plain sizes, or modes as in 8x8x12:12x16x16
  --d=16                 or cubes: all modes d
  --cores=3              TT cores, for --d and plain sizes
  --factor-order=...     ascending, descending or balanced, for plain sizes
  --rank=8               all inner ranks
  --batch=64             rows of x (tokens), even
  --variant=...          names or globs [all]; `sequential` is run with plain cores, too
  --dtype=float32        float32, float64
  --repetitions=5        steps timed
  --cell-timeout=60s     deadline of a cell
  --filter=GLOB          only cells whose name matches
  --seed=1               seed of inputs and weights
  --out=DIR              directory, made if missing (default: one in results/runs)
  --list                 print the cells; run nothing
  --quiet                no progress on the screen

Exit code: 0; 1 if a registered layer failed a check; 2 for usage; 3 if the filter matched nothing;
4 if the rows could not be written.
)";

const Fields kColumns = {"keeping",
                         "check",
                         "status",
                         "reason",
                         "max_relative_error",
                         "processes",
                         "gradient_bytes",
                         "exchanged_bytes",
                         "exchanged_bytes_formula",
                         "step_ns",
                         "exchange_ns",
                         "joined_ns",
                         "repro"};

std::string Serialize(const ReplicaFindings& findings) {
  json checks = json::array();
  for (const ReplicaCheck& check : findings.checks) {
    checks.push_back({{"check", check.check}, {"ok", check.ok}, {"reason", check.reason}});
    // JSON has no infinity: a missing gradient has no error.
    if (check.max_relative_error && *check.max_relative_error < 1e300)
      checks.back()["error"] = *check.max_relative_error;
  }
  const Exchange& exchange = findings.exchange;
  json all = {{"checks", checks},
              {"gradient_bytes", exchange.gradient_bytes},
              {"step_ns", exchange.step_ns},
              {"exchange_ns", exchange.exchange_ns},
              {"joined_ns", exchange.joined_ns}};
  if (exchange.sent_bytes) all["sent_bytes"] = *exchange.sent_bytes;
  return all.dump();
}

std::string Text(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

// What ended a child that brought no answer.
std::string EndOf(const ChildResult& child) {
  switch (child.end) {
    case ChildResult::End::kTimedOut:
      return "ran past --cell-timeout";
    case ChildResult::End::kSignalled:
      return "its process ended by " + SignalName(child.signal);
    default:
      return child.output.empty() ? "its process ended" : child.output;
  }
}

// Writes the lines of one cell; whether a registered layer passed all.
bool RunCell(const PlannedCell& planned, const GridRun& run, Keeping keeping, CsvAppender* csv) {
  const LinearProblem& problem = LinearOf(planned.cell).problem();
  Fields cell = DescribeCell(planned, run);
  cell.push_back(Name(keeping));
  const std::string repro = "bazel run //experiments:replicas -- " + planned.cell.Flags() +
                            " --repetitions=" + std::to_string(planned.timing.repetitions) +
                            " --seed=" + std::to_string(run.flags.cell.seed);
  auto append = [&](Fields line) {
    line.resize(kColumns.size() - 2);
    line.push_back(repro);
    Fields fields = cell;
    fields.insert(fields.end(), line.begin(), line.end());
    csv->Append(fields);
  };
  std::string skip_reason = planned.skip_reason;
  if (planned.cell.variant() == kAutoVariant) skip_reason = "auto computes as one of the others";
  if (problem.batch % 2 != 0) skip_reason = "two processes take half of the batch each: it is odd";
  if (!skip_reason.empty()) {
    append({"all", "skipped", skip_reason});
    return true;
  }
  const std::string rendezvous = run.directory + "/rendezvous";
  unlink(rendezvous.c_str());
  const ChildResult child = RunInChild(
      [&] {
        return Serialize(CheckReplicas(*FindLinearVariant(planned.cell.variant()), problem, keeping,
                                       run.flags.cell.seed, planned.timing.repetitions,
                                       rendezvous));
      },
      std::chrono::nanoseconds(run.flags.cell.timeout_ns));
  unlink(rendezvous.c_str());
  if (child.end != ChildResult::End::kExited || child.exit_code != 0) {
    append({"all", child.end == ChildResult::End::kTimedOut ? "timeout" : "crashed", EndOf(child)});
    return false;
  }
  const json found = json::parse(child.output);
  bool ok = true;
  for (const json& check : found.at("checks")) {
    ok &= check.at("ok").get<bool>();
    Fields line = {Text(check, "check"), check.at("ok").get<bool>() ? "ok" : "failed",
                   Text(check, "reason"), Text(check, "error"), "1"};
    if (line.front() == "processes") {
      constexpr int64_t kProcesses = 2;
      line.back() = std::to_string(kProcesses);
      const int64_t gradient_bytes = found.at("gradient_bytes").get<int64_t>();
      for (const std::string& figure :
           {std::to_string(gradient_bytes), Text(found, "sent_bytes"),
            // A ring sends every element on kProcesses - 1 times to add it up, and again to share
            // the sum, each process a part.
            std::to_string(2 * (kProcesses - 1) * gradient_bytes / kProcesses),
            Text(found, "step_ns"), Text(found, "exchange_ns"), Text(found, "joined_ns")}) {
        line.push_back(figure);
      }
    }
    append(line);
  }
  return ok || keeping == Keeping::kPlain;
}

int Measure(const GridRun& run) {
  Fields columns = CellColumns();
  columns.insert(columns.end(), kColumns.begin(), kColumns.end());
  CsvAppender csv(run.directory + "/replicas.csv", columns);
  int code = kExitOk;
  for (size_t i = 0; i < run.plan.size(); ++i) {
    const PlannedCell& planned = run.plan[i];
    if (planned.cell.setting().phase != Phase::kTrain) continue;
    bool ok = RunCell(planned, run, Keeping::kRegistered, &csv);
    if (planned.cell.variant() == "sequential") RunCell(planned, run, Keeping::kPlain, &csv);
    if (!ok) code = kExitFailed;
    if (run.flags.quiet && ok) continue;
    std::fprintf(stderr, "[%zu/%zu] %s%s\n", i + 1, run.plan.size(), planned.cell.Name().c_str(),
                 ok ? "" : "  failed");
  }
  return code;
}

}  // namespace
}  // namespace ttbench

int main(int argc, char** argv) {
  using namespace ttbench;
  GridProgram program{"replicas",
                      "replicas.csv",
                      {"shape", "d", "cores", "factor-order", "rank", "batch", "variant", "dtype",
                       "repetitions", "cell-timeout", "phase"},
                      kHelp};
  program.threads = 1;
  return GridMain(argc, argv, program, Measure);
}
