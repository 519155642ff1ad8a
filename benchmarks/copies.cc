// Which operators copy what in every variant of a grid: bazel run //experiments:copies
//
// Writes into its directory
//   copies.csv  a line for each kind of copy in a cell, and for each scratch buffer of a kernel
//   cells.csv   a line for each cell, also where nothing is copied
// Columns: docs/copies.md.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/copy_advice.h"
#include "benchmarks/copy_pass.h"
#include "benchmarks/grid_program.h"
#include "benchmarks/linear_workload.h"
#include "benchmarks/result_table.h"
#include "benchmarks/sweep.h"
#include "kernels/linear/auto.h"

namespace ttbench {
namespace {

using Fields = std::vector<std::string>;

constexpr const char* kHelp =
    R"(Counts, for every cell of a grid, which operators copied how many bytes of which tensor, beside
the cost model's copies, and what layout would avoid each: docs/copies.md.

  --preset=default       quick or default (of //experiments:copies), or a file of flags
  --shape=768:3072       layers: plain sizes, or modes as in 8x8x12:12x16x16
  --d=16                 or cubes: all modes d
  --cores=3              TT cores, for --d and plain sizes
  --factor-order=...     ascending, descending or balanced, for plain sizes
  --rank=8               all inner ranks
  --batch=1,64,512       rows of x (tokens)
  --phase=...            inference, train [inference,train]
  --variant=...          names or globs [all]
  --dtype=float32        float32, float64, bfloat16
  --threads=...          threads [all cores]
  --filter=GLOB          only cells whose name matches
  --seed=1               seed of inputs and weights
  --out=DIR              directory, made if missing (default: one in results/runs)
  --list                 print the cells; run nothing
  --quiet                no progress on the screen

Exit code: 0; 1 if a cell copied something else than its cost model says; 2 for usage; 3 if the
filter matched nothing; 4 if the rows could not be written.
)";

Fields Append(Fields fields, const Fields& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  return fields;
}

std::string Join(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

std::string Join(const std::vector<int64_t>& numbers) {
  std::vector<std::string> parts;
  for (const int64_t number : numbers) parts.push_back(std::to_string(number));
  return Join(parts, "x");
}

const char* PassName(bool in_backward) { return in_backward ? "backward" : "forward"; }

const Fields kCopyColumns = {"stage",          "what",           "operators",    "tensor",
                             "kind",           "target",         "held",         "source_sizes",
                             "source_strides", "target_strides", "producer",     "consumer",
                             "remedy",         "products",       "product_rows", "product_columns",
                             "advice",         "count",          "bytes",        "bytes_model"};

const Fields kCellColumns = {"status",         "reason",
                             "copies",         "copies_model",
                             "copied_bytes",   "copied_bytes_model",
                             "scratch_bytes",  "x_bytes",
                             "computed_bytes", "allocated_bytes_model",
                             "repro"};

// Lines that are alike but for their bytes, which add up.
class Lines {
 public:
  void Add(Fields key, int64_t bytes, int64_t bytes_model) {
    auto line = std::find_if(lines_.begin(), lines_.end(),
                             [&](const Line& known) { return known.key == key; });
    if (line == lines_.end()) line = lines_.insert(line, Line{std::move(key), 0, 0, 0});
    ++line->count;
    line->bytes += bytes;
    line->bytes_model += bytes_model;
  }

  void Write(const Fields& cell, CsvAppender* csv) const {
    for (const Line& line : lines_) {
      csv->Append(
          Append(Append(cell, line.key), {std::to_string(line.count), std::to_string(line.bytes),
                                          std::to_string(line.bytes_model)}));
    }
  }

 private:
  struct Line {
    Fields key;
    int64_t count, bytes, bytes_model;
  };
  std::vector<Line> lines_;
};

// A copy beside the model's of the same place, whose names it takes; `model` may be absent.
Fields CopyKey(const RecordedCopy& copy, const cost::CopyRecord* model) {
  const std::string source = model ? model->source : "";
  const Advice advice = AdviseOn(copy, source.empty() ? "it" : source);
  const auto& products = advice.products;
  auto number = [&](int64_t StridedProducts::*field) {
    return products ? std::to_string(*products.*field) : "";
  };
  return {PassName(copy.in_backward), "copy", Join(copy.chain, " > "), source,
          // A gradient that a kernel of ours made does not show by what it was made from.
          source.rfind("d(", 0) == 0 ? Name(Origin::kGradient) : Name(copy.origin),
          model ? model->target : "", copy.held ? "1" : "0", Join(copy.source.sizes),
          Join(copy.source.strides), Join(copy.target.strides), copy.producer.op, copy.consumer.op,
          Name(advice.remedy), number(&StridedProducts::count), number(&StridedProducts::rows),
          number(&StridedProducts::columns), advice.sentence};
}

Fields ScratchKey(const RecordedScratch& scratch, const CellCost& model) {
  const auto event = static_cast<size_t>(scratch.event);
  Fields key = {PassName(scratch.in_backward), "scratch", Join(scratch.chain, " > "),
                event < model.events.size() ? model.events[event].name : "", "scratch"};
  key.resize(kCopyColumns.size() - 3);
  return key;
}

struct Totals {
  int64_t copies = 0, bytes = 0;
};

template <typename Copies>
Totals Total(const Copies& copies) {
  Totals totals;
  for (const auto& copy : copies) totals = {totals.copies + 1, totals.bytes + copy.bytes};
  return totals;
}

// Measures one cell and writes its lines; whether it ended as it should.
bool RunCell(const PlannedCell& planned, const GridRun& run, CsvAppender* copies_csv,
             CsvAppender* cells_csv) {
  const Workload& workload = *planned.cell.workload;
  const Fields cell = DescribeCell(planned, run);
  const Setting setting = workload.setting();
  const std::string repro = "bazel run //experiments:copies -- " + planned.cell.Flags() +
                            " --seed=" + std::to_string(run.flags.cell.seed);
  auto end = [&](const char* status, const std::string& reason, Fields figures) {
    figures.resize(kCellColumns.size() - 3);
    cells_csv->Append(Append(Append(cell, {status, reason}), Append(figures, {repro})));
  };
  std::string skip_reason = planned.skip_reason;
  if (planned.cell.variant() == kAutoVariant) skip_reason = "auto computes as one of the others";
  if (!skip_reason.empty()) {
    end("skipped", skip_reason, {});
    return true;
  }
  at::set_num_threads(static_cast<int>(setting.threads));
  MeasuredCopies measured;
  try {
    measured = MeasureCopies(workload, run.flags.cell.seed);
  } catch (const std::exception& error) {
    end("crashed", error.what(), {});
    return false;
  }
  const CellCost& model = planned.cost;
  const std::string difference = CompareCopies(measured, model);
  Lines lines;
  for (size_t i = 0; i < measured.copies.size(); ++i) {
    const cost::CopyRecord* beside = i < model.copies.size() ? &model.copies[i] : nullptr;
    lines.Add(CopyKey(measured.copies[i], difference.empty() ? beside : nullptr),
              measured.copies[i].bytes, beside ? beside->bytes : 0);
  }
  int64_t scratch_bytes = 0;
  for (const RecordedScratch& scratch : measured.scratch) {
    lines.Add(ScratchKey(scratch, model), scratch.bytes,
              model.events.at(static_cast<size_t>(scratch.event)).bytes);
    scratch_bytes += scratch.bytes;
  }
  lines.Write(cell, copies_csv);
  const Totals total = Total(measured.copies), total_model = Total(model.copies);
  const int64_t x_bytes = setting.batch * LinearOf(planned.cell).problem().shape.in_features() *
                          ElementBytes(setting.dtype);
  end(difference.empty() ? "ok" : "wrong", difference,
      {std::to_string(total.copies), std::to_string(total_model.copies),
       std::to_string(total.bytes), std::to_string(total_model.bytes),
       std::to_string(scratch_bytes), std::to_string(x_bytes),
       // Where kernels compute without an operator, nothing is known of what they read.
       measured.computed_flops == model.flops ? std::to_string(measured.computed_bytes) : "",
       std::to_string(model.allocated_bytes)});
  return difference.empty();
}

int Measure(const GridRun& run) {
  CsvAppender copies(run.directory + "/copies.csv", Append(CellColumns(), kCopyColumns));
  CsvAppender cells(run.directory + "/cells.csv", Append(CellColumns(), kCellColumns));
  int code = kExitOk;
  for (size_t i = 0; i < run.plan.size(); ++i) {
    const bool ok = RunCell(run.plan[i], run, &copies, &cells);
    if (!ok) code = kExitFailed;
    if (run.flags.quiet && ok) continue;
    std::fprintf(stderr, "[%zu/%zu] %s%s\n", i + 1, run.plan.size(),
                 run.plan[i].cell.Name().c_str(), ok ? "" : "  not as its model says");
  }
  return code;
}

}  // namespace
}  // namespace ttbench

int main(int argc, char** argv) {
  using namespace ttbench;
  return GridMain(argc, argv,
                  {"copies",
                   "copies.csv",
                   {"shape", "d", "cores", "factor-order", "rank", "batch", "phase", "variant",
                    "dtype", "threads"},
                   kHelp},
                  Measure);
}
