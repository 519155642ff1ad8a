#include "benchmarks/grid_program.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "benchmarks/fingerprint.h"
#include "benchmarks/linear_workload.h"
#include "benchmarks/machine.h"
#include "benchmarks/result_table.h"
#include "benchmarks/run_directory.h"
#include "benchmarks/sweep.h"
#include "benchmarks/usage_error.h"

namespace ttbench {
namespace {

// Those of a sweep that make no sense without its result table.
SweepFlags Parse(const std::vector<std::string>& arguments, const GridProgram& program,
                 int64_t threads) {
  static const std::set<std::string> always = {"preset", "filter", "seed",      "out",
                                               "list",   "quiet",  "experiment"};
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (name.rfind("--", 0) != 0) continue;
    if (!always.count(name.substr(2)) && !program.flags.count(name.substr(2))) {
      throw UsageError(name + ": " + program.name +
                       " takes no such flag; --help lists what it takes");
    }
  }
  std::string help;
  return *ParseSweepFlags(arguments, threads, &help);
}

int Run(int argc, char** argv, const GridProgram& program,
        const std::function<int(const GridRun&)>& measure) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  for (const std::string& argument : arguments) {
    if (argument == "--help" || argument == "-h") {
      std::fputs(program.help.c_str(), stdout);
      return kExitOk;
    }
  }
  const Machine machine = ReadMachine();
  GridRun run{
      Parse(arguments, program, program.threads > 0 ? program.threads : machine.cores), {}, ""};
  std::vector<std::string> notes;
  Limits limits;
  limits.memory_bytes = AvailableMemoryBytes() / 4 * 3;
  run.plan =
      MakePlan(run.flags.grids, run.flags.filter, limits, &notes);
  for (const PlannedCell& planned : run.plan) {
    const std::string family = planned.cell.workload->family();
    if (family == "linear") continue;
    throw UsageError("--variant: '" + planned.cell.variant() + "' is of the family " + family +
                     "; " + program.name + " is about layers");
  }
  if (run.plan.empty()) {
    std::fprintf(stderr, "%s: no cell matches --filter=%s\n", program.name.c_str(),
                 run.flags.filter.c_str());
    return kExitNothing;
  }
  if (run.flags.list) {
    for (const PlannedCell& planned : run.plan) std::puts(planned.cell.Name().c_str());
    return kExitOk;
  }
  run.flags.experiment = program.name;
  run.directory = run.flags.out.empty() ? DefaultDirectory(program.name) : UserPath(run.flags.out);
  if (Exists(run.directory + "/" + program.rows)) {
    throw UsageError("--out: " + run.directory +
                     " already holds a run; name another directory, or remove it");
  }
  MakeDirectories(run.directory);
  const auto start = std::chrono::steady_clock::now();
  nlohmann::ordered_json info = DescribeRun(machine, {});
  info["experiment"] = program.name;
  info["command"] = CommandOf("//benchmarks:" + program.name, argc, argv);
  info["flags"] = run.flags.grid_flags;
  info["notes"] = notes;
  info["started_utc"] = UtcNow("%Y-%m-%dT%H:%M:%SZ");
  auto write = [&] { WriteFile(run.directory + "/run.json", info.dump(2) + "\n"); };
  write();
  const int code = measure(run);
  info["wall_s"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  info["finished_utc"] = UtcNow("%Y-%m-%dT%H:%M:%SZ");
  write();
  std::printf("%s\n", run.directory.c_str());
  return code;
}

}  // namespace

int GridMain(int argc, char** argv, const GridProgram& program,
             const std::function<int(const GridRun&)>& measure) {
  std::signal(SIGXFSZ, SIG_IGN);  // A file size limit is a write error like a full disk.
  auto say = [&](const std::exception& error, const char* more = "") {
    std::fprintf(stderr, "%s: %s%s\n", program.name.c_str(), error.what(), more);
  };
  try {
    return Run(argc, argv, program, measure);
  } catch (const UsageError& error) {
    say(error);
    return kExitUsage;
  } catch (const ShapeError& error) {
    say(error);
    return kExitUsage;
  } catch (const WriteError& error) {
    say(error, "; any rows written before are whole");
    return kExitWrite;
  } catch (const std::exception& error) {
    say(error);
    return kExitFailed;
  }
}

std::vector<std::string> CellColumns() {
  return {"schema", "experiment", "cell", "variant", "algorithm", "in_modes", "out_modes", "ranks",
          "cores",  "d",          "rank", "batch",   "phase",     "dtype",    "threads"};
}

std::vector<std::string> DescribeCell(const PlannedCell& planned, const GridRun& run) {
  const Workload& workload = *planned.cell.workload;
  const Setting setting = workload.setting();
  std::map<std::string, std::string> values = {{"schema", std::to_string(kSchemaVersion)},
                                               {"experiment", run.flags.experiment},
                                               {"cell", planned.cell.Name()},
                                               {"variant", workload.variant()},
                                               {"algorithm", workload.Algorithm()},
                                               {"batch", std::to_string(setting.batch)},
                                               {"phase", Name(setting.phase)},
                                               {"dtype", Name(setting.dtype)},
                                               {"threads", std::to_string(setting.threads)}};
  for (const auto& [column, value] : workload.SizeColumns()) values[column] = value;
  std::vector<std::string> fields;
  for (const std::string& column : CellColumns()) fields.push_back(values[column]);
  return fields;
}

}  // namespace ttbench
