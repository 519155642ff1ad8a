// From flags to cells: what a run will do, in which order, and what it is expected to cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/cell.h"
#include "benchmarks/timing_pass.h"
#include "kernels/cost/cell_cost.h"
#include "kernels/shape.h"
#include "networks/transformer_xl/options.h"

namespace ttbench {

// The axes of one grid, as parsed from flags: a cell for every combination.
struct Grid {
  std::vector<std::string> variants;  // Of the linear family.
  std::vector<std::string> shapes;    // "2x5x41:10x14x15", or "410:2100" to be split into cores.
  std::vector<int64_t> d;             // Cubes, beside the shapes.
  std::vector<int64_t> cores;         // Of cubes, and of shapes given as plain sizes.
  FactorOrder factor_order = FactorOrder::kAscending;
  std::vector<int64_t> ranks;
  std::vector<std::string> attention_variants;
  std::vector<int64_t> source_lens, target_lens, hiddens, layers;
  // Of the Transformer-XL family, whose source_lens are the lengths of the memory and whose shapes
  // may end in "+" and the layer back: else that has the factors of the layer there.
  std::vector<std::string> network_variants;
  std::vector<int64_t> heads, inners, vocabularies;
  // Of all families.
  std::vector<int64_t> batches;
  std::vector<Phase> phases;
  std::vector<DType> dtypes;
  std::vector<int64_t> threads;
  std::vector<DeviceSettings> devices = {DeviceSettings()};
  std::vector<Phase> crossover_phases;  // In these the exact crossovers are searched for.
  bool measure_memory = true, measure_time = true;
  TimingOptions timing;
  int64_t memory_budget_bytes = 0;  // Most that a cell may allocate; 0: no such bound.
};

// What a machine and the user allow a cell.
struct Limits {
  int64_t memory_bytes = 0;  // Cells predicted past it are skipped. 0: none.
  int64_t time_ns = 0;       // Likewise. 0: none.
  int64_t budget_bytes = 0;  // A cell that passes it ends there. 0: none.
  // Of the CUDA device. Why cells on one are skipped; "" if they run.
  std::string why_no_cuda = {};
  int64_t cuda_memory_bytes = 0;  // As memory_bytes.
};

struct PlannedCell {
  Cell cell;
  CellCost cost;  // None of its figures where the variant does not support the cell.
  // The time the cell is expected to take with its check and the fewest repetitions, in seconds: a
  // rough figure from the model's FLOPs and bytes and the variant's planning rate.
  double seconds = 0;
  std::string skip_reason;  // "" if it will run.
  // As its grid has them.
  bool measure_memory = true, measure_time = true;
  TimingOptions timing = {};
  int64_t memory_budget_bytes = 0;
};

// The cells of the grids in running order, each once: those of one problem next to each other, the
// dense layer or the baseline first. `filter` is a glob over cell names, "" for all. Throws
// ShapeError. Notes (clipped ranks) are appended to *notes, each once.
std::vector<PlannedCell> MakePlan(const std::vector<Grid>& grids, const std::string& filter,
                                  const Limits& limits, std::vector<std::string>* notes);

// The shapes of a grid at one rank.
std::vector<TtShape> ShapesOf(const Grid& grid, int64_t rank);

// The networks of a grid: one for each combination of sizes, with each pair of shapes at each rank.
struct RankedNetwork {
  TransformerXlOptions network;  // Not of any variant yet.
  int64_t rank;
};
// Throws ShapeError where the sizes do not fit each other.
std::vector<RankedNetwork> NetworksOf(const Grid& grid);

// Fills in cost, seconds and skip_reason, the baseline measured beside the cell counted in.
PlannedCell PlanCell(const Cell& cell, bool measure_time, int64_t min_time_ns,
                     const Limits& limits);

}  // namespace ttbench
