// What the bytes of a run's cells are, from the cost models: bazel run //benchmarks:inventory --
// DIR
//
// Reads results.csv of a run and writes beside it
//   terms.csv    every cell's buffers at its predicted peak, added up by name
//   buffers.csv  the buffers of one emulated step of every attention problem (step_graph.h), and
//                which of them the clones may share
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/flags.h"
#include "benchmarks/plan.h"
#include "benchmarks/result_table.h"
#include "kernels/attention/step_graph.h"
#include "kernels/attention/storage.h"

namespace ttbench {
namespace {

using Record = std::map<std::string, std::string>;

std::vector<Record> ReadRecords(const std::string& path) {
  const std::vector<std::vector<std::string>> lines = ReadCsv(path);
  std::vector<Record> records;
  for (size_t i = 1; i < lines.size(); ++i) {
    Record& record = records.emplace_back();
    for (size_t c = 0; c < lines[0].size(); ++c) record[lines[0][c]] = lines[i][c];
  }
  return records;
}

int64_t Number(const Record& record, const std::string& column) {
  return std::strtoll(record.at(column).c_str(), nullptr, 10);
}

// The cell that a row's repro command runs.
PlannedCell CellOf(const Record& record) {
  const std::string& repro = record.at("repro");
  std::vector<std::string> arguments;
  size_t at = repro.find(" -- ");
  at = at == std::string::npos ? repro.size() : at + 4;
  while (at < repro.size()) {
    const size_t end = std::min(repro.find(' ', at), repro.size());
    arguments.push_back(repro.substr(at, end - at));
    at = end + 1;
  }
  std::string help;
  std::vector<std::string> notes;
  const auto flags = ParseSweepFlags(arguments, 1, &help);
  const std::vector<PlannedCell> plan = MakePlan(flags->grids, "", {}, &notes);
  for (const PlannedCell& planned : plan) {
    if (planned.cell.Name() == record.at("cell")) return planned;
  }
  throw std::runtime_error("the repro command of " + record.at("cell") + " runs another cell");
}

std::string Terms(const std::vector<Record>& records) {
  std::string text = FormatCsvLine({"cell", "term", "buffers", "bytes"});
  for (const Record& record : records) {
    struct Sum {
      int64_t buffers = 0, bytes = 0;
    };
    std::map<std::string, Sum> sums;
    for (const cost::Term& term : CellOf(record).cost.peak_terms) {
      ++sums[term.name].buffers;
      sums[term.name].bytes += term.bytes;
    }
    for (const auto& [name, sum] : sums) {
      text += FormatCsvLine(
          {record.at("cell"), name, std::to_string(sum.buffers), std::to_string(sum.bytes)});
    }
  }
  return text;
}

// The step graphs of an attention problem: the attention alone, or decoder and encoder.
std::vector<std::pair<std::string, StepGraph>> GraphsOf(const AttentionProblem& problem) {
  std::vector<std::pair<std::string, StepGraph>> graphs;
  graphs.emplace_back(problem.layers == 0 ? "attention" : "decoder", StepOf(problem));
  if (problem.layers > 0) {
    graphs.emplace_back(
        "encoder", EncoderStep(problem.batch, problem.hidden, problem.layers, kWordVectorSize));
  }
  return graphs;
}

std::string Buffers(const std::vector<Record>& records) {
  std::string text = FormatCsvLine({"source_len", "hidden", "layers", "batch", "part", "buffer",
                                    "operation", "kind", "role", "elements", "shared_by_mm",
                                    "shared_by_all", "shareable", "reuses_output"});
  std::set<std::string> seen;
  for (const Record& record : records) {
    if (record.at("family") != "attention") continue;
    AttentionProblem problem;
    problem.source_len = Number(record, "source_len");
    problem.hidden = Number(record, "hidden");
    problem.layers = Number(record, "layers");
    problem.batch = Number(record, "batch");
    if (!seen.insert(SizeName(problem) + "b" + std::to_string(problem.batch)).second) continue;
    for (const auto& [part, graph] : GraphsOf(problem)) {
      auto set_of = [](const std::vector<int>& buffers) {
        return std::set<int>(buffers.begin(), buffers.end());
      };
      const std::set<int> by_mm = set_of(ProductGradients(graph));
      const std::set<int> by_all = set_of(ShareableModuleBuffers(graph));
      const std::set<int> shareable = set_of(ShareableBuffers(graph));
      const StoragePlan reuse = ReuseOutputs(graph);
      for (int i = 0; i < static_cast<int>(graph.buffers.size()); ++i) {
        const Buffer& buffer = graph.buffers[i];
        const char* role = buffer.role == Role::kOutput      ? "output"
                           : buffer.role == Role::kGradInput ? "gradInput"
                                                             : "sum of gradients";
        auto flag = [](bool set) { return std::string(set ? "1" : "0"); };
        text += FormatCsvLine({std::to_string(problem.source_len), std::to_string(problem.hidden),
                               std::to_string(problem.layers), std::to_string(problem.batch), part,
                               buffer.name, buffer.op < 0 ? "" : graph.ops[buffer.op].name,
                               buffer.op < 0 ? "" : Name(graph.ops[buffer.op].kind), role,
                               std::to_string(buffer.elements()), flag(by_mm.count(i)),
                               flag(by_all.count(i)), flag(shareable.count(i)),
                               flag(reuse.place[i] != i)});
      }
    }
  }
  return text;
}

}  // namespace
}  // namespace ttbench

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "inventory: give the directory of a run\n");
    return 2;
  }
  // Relative to where the user stands, which `bazel run` leaves.
  const char* from = std::getenv("BUILD_WORKING_DIRECTORY");
  std::string directory = argv[1];
  if (from && directory.front() != '/') directory = std::string(from) + "/" + directory;
  try {
    const auto records = ttbench::ReadRecords(directory + "/results.csv");
    ttbench::WriteFile(directory + "/terms.csv", ttbench::Terms(records));
    ttbench::WriteFile(directory + "/buffers.csv", ttbench::Buffers(records));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "inventory: %s\n", error.what());
    return 1;
  }
  return 0;
}
