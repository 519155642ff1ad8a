#include "benchmarks/plan.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <set>
#include <utility>

#include "benchmarks/attention_workload.h"
#include "benchmarks/axis.h"
#include "benchmarks/linear_workload.h"
#include "benchmarks/timing_pass.h"
#include "benchmarks/transformer_xl_workload.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

// For predicted times only: what a core moves when a buffer is written and read again.
constexpr double kPlanningBytesPerSecond = 4e9;
// Likewise of a CUDA device: less than any that is supported does, and what its set-up takes in the
// process of each cell.
constexpr double kPlanningCudaFlops = 2e12, kPlanningCudaStartSeconds = 3;

bool IsPlainSize(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// Calls add(cell) for the linear cells of a grid.
template <typename Add>
void AddLinearCells(const Grid& grid, std::vector<std::string>* notes, const Add& add) {
  std::vector<std::string> variants = grid.variants;
  std::stable_partition(variants.begin(), variants.end(), [](const std::string& name) {
    return FindLinearVariant(name)->is_dense();
  });
  std::vector<std::vector<TtShape>> by_rank;
  for (int64_t rank : grid.ranks) {
    by_rank.push_back(ShapesOf(grid, rank));
    for (const TtShape& shape : by_rank.back()) {
      const std::string& note = shape.clipping_note();
      if (!note.empty() && std::find(notes->begin(), notes->end(), note) == notes->end()) {
        notes->push_back(note);
      }
    }
  }
  for (size_t s = 0; s < by_rank.front().size(); ++s)
    for (const DeviceSettings& device : grid.devices)
      for (DType dtype : grid.dtypes)
        for (int64_t threads : grid.threads)
          for (int64_t batch : grid.batches)
            for (Phase phase : grid.phases)
              for (size_t r = 0; r < grid.ranks.size(); ++r)
                for (const std::string& name : variants) {
                  // Dense variants do not depend on the rank: they run with the first.
                  if (FindLinearVariant(name)->is_dense() && r > 0) continue;
                  add(LinearCell(name, {by_rank[r][s], batch, phase, dtype, threads}, grid.ranks[r],
                                 device));
                }
}

// The same for the attention cells. Variants of one oracle stay together, so that it is evaluated
// once for them.
template <typename Add>
void AddAttentionCells(const Grid& grid, const Add& add) {
  std::vector<std::string> variants = grid.attention_variants;
  std::stable_partition(variants.begin(), variants.end(),
                        [](const std::string& name) { return name == kAttentionBaseline; });
  std::stable_partition(variants.begin(), variants.end(), [](const std::string& name) {
    return !FindAttentionVariant(name)->is_additive();
  });
  for (int64_t layers : grid.layers)
    for (int64_t hidden : grid.hiddens)
      for (int64_t source_len : grid.source_lens)
        for (int64_t target_len : grid.target_lens)
          for (const DeviceSettings& device : grid.devices)
            for (DType dtype : grid.dtypes)
              for (int64_t threads : grid.threads)
                for (int64_t batch : grid.batches)
                  for (Phase phase : grid.phases)
                    for (const std::string& name : variants)
                      add(AttentionCell(
                          name,
                          {source_len, target_len, hidden, layers, batch, phase, dtype, threads},
                          device));
}

// The same for the Transformer-XL cells. Dense networks run with the first shapes and rank alone.
template <typename Add>
void AddTransformerXlCells(const Grid& grid, const Add& add) {
  const std::vector<RankedNetwork> networks = NetworksOf(grid);
  for (const DeviceSettings& device : grid.devices)
    for (DType dtype : grid.dtypes)
      for (int64_t threads : grid.threads)
        for (int64_t batch : grid.batches)
          for (Phase phase : grid.phases)
            for (const RankedNetwork& ranked : networks)
              for (const std::string& name : grid.network_variants) {
                TransformerXlProblem problem{ranked.network, batch, phase, dtype, threads};
                problem.network.feed_forward_variant = name;
                add(TransformerXlCell(problem, ranked.rank, device));
              }
}

}  // namespace

std::vector<RankedNetwork> NetworksOf(const Grid& grid) {
  auto layer_of = [&](const std::string& text, int64_t rank) {
    Grid one = grid;
    one.shapes = {text};
    one.d.clear();
    one.cores.resize(1);
    return ShapesOf(one, rank).front();
  };
  std::vector<RankedNetwork> networks;
  TransformerXlOptions network;
  for (int64_t layers : grid.layers)
    for (int64_t hidden : grid.hiddens)
      for (int64_t inner : grid.inners)
        for (int64_t heads : grid.heads)
          for (int64_t target_len : grid.target_lens)
            for (int64_t memory_len : grid.source_lens)
              for (int64_t vocabulary : grid.vocabularies)
                for (const std::string& text : grid.shapes)
                  for (int64_t rank : grid.ranks) {
                    network.layers = layers;
                    network.d_model = hidden;
                    network.d_inner = inner;
                    network.heads = heads;
                    if (hidden % heads != 0) {
                      throw ShapeError("a hidden size of " + std::to_string(hidden) +
                                       " does not split into " + std::to_string(heads) + " heads");
                    }
                    network.d_head = hidden / heads;
                    network.target_len = target_len;
                    network.memory_len = memory_len;
                    network.vocabulary = vocabulary;
                    network.cutoffs.clear();
                    for (int64_t cutoff : Wt103Base().cutoffs)
                      if (cutoff < vocabulary) network.cutoffs.push_back(cutoff);
                    const size_t plus = text.find('+');
                    network.up = layer_of(text.substr(0, plus), rank);
                    network.down = plus == std::string::npos
                                       ? Mirrored(*network.up)
                                       : layer_of(text.substr(plus + 1), rank);
                    TransformerXlOptions tt = network;
                    tt.feed_forward_variant = "a TT variant";
                    CheckOptions(tt);
                    networks.push_back({network, rank});
                  }
  return networks;
}

std::vector<TtShape> ShapesOf(const Grid& grid, int64_t rank) {
  std::vector<TtShape> shapes;
  for (int64_t cores : grid.cores)
    for (int64_t d : grid.d) shapes.push_back(TtShape::Cube(cores, d, rank));
  for (const std::string& text : grid.shapes) {
    const size_t colon = text.find(':');
    const std::string in = text.substr(0, colon);
    const std::string out = colon == std::string::npos ? "" : text.substr(colon + 1);
    if (!IsPlainSize(in) || !IsPlainSize(out)) {
      shapes.push_back(TtShape::Parse(text, rank));
      continue;
    }
    for (int64_t cores : grid.cores) {
      shapes.push_back(
          TtShape::Uniform(Factorize(ParseModes(in).front(), cores, grid.factor_order),
                           Factorize(ParseModes(out).front(), cores, grid.factor_order), rank));
    }
  }
  return shapes;
}

PlannedCell PlanCell(const Cell& cell, bool measure_time, int64_t min_time_ns,
                     const Limits& limits) {
  const Workload& workload = *cell.workload;
  PlannedCell planned{cell, {}, 0, workload.WhyUnsupported(), true, measure_time, {}};
  if (!planned.skip_reason.empty()) return planned;
  planned.cost = workload.Predict();
  const std::shared_ptr<const Workload> baseline = workload.Baseline();
  const CellCost base = baseline->Predict();
  // Timing has both alive at once; memory is measured of one after the other.
  const int64_t peaks = measure_time ? CheckedAdd(*planned.cost.bytes.peak, *base.bytes.peak)
                                     : std::max(*planned.cost.bytes.peak, *base.bytes.peak);
  int64_t bytes = std::max(peaks, workload.SetUpPeakBytes());

  const bool on_cuda = cell.device.is_cuda();
  auto predict = [&](const Workload& of, const CellCost& cost) {
    return on_cuda ? static_cast<double>(cost.flops) / kPlanningCudaFlops : of.PredictSeconds(cost);
  };
  const double variant_seconds = predict(workload, planned.cost);
  const double base_seconds = predict(*baseline, base);
  planned.seconds =
      variant_seconds + base_seconds + workload.SetUpTrafficBytes() / kPlanningBytesPerSecond;
  if (on_cuda) planned.seconds += kPlanningCudaStartSeconds;
  if (measure_time) {
    // After a run of each untimed, rounds are begun until their time is up; the phase's run is
    // never cut short.
    planned.seconds += variant_seconds + base_seconds;
    const double least = static_cast<double>(min_time_ns) * 1e-9;
    const double round = std::max(least, variant_seconds) + std::max(least, base_seconds);
    constexpr double kRounds = 6;
    planned.seconds += std::min(kRounds * round, kTimeLimitFactor * least + round);
  }

  if (limits.budget_bytes > 0 && *planned.cost.bytes.peak > limits.budget_bytes) {
    planned.seconds *=
        static_cast<double>(limits.budget_bytes) / static_cast<double>(*planned.cost.bytes.peak);
    bytes = limits.budget_bytes;
  }

  if (on_cuda) {
    // A family whose workloads know no device computes on the CPU, whatever the cell says.
    planned.skip_reason =
        workload.setting().device == Device::kCuda ? limits.why_no_cuda : WhyNotOn(Device::kCuda);
  }
  const int64_t most_bytes = on_cuda ? limits.cuda_memory_bytes : limits.memory_bytes;
  if (planned.skip_reason.empty() && most_bytes > 0 && bytes > most_bytes) {
    planned.skip_reason =
        "predicted to need " + FormatBytes(bytes) +
        (measure_time ? " with " + workload.baseline_words() + " beside it" : "") +
        "; the limit is " + FormatBytes(most_bytes);
  }
  if (planned.skip_reason.empty() && limits.time_ns > 0 &&
      planned.seconds > static_cast<double>(limits.time_ns) * 1e-9) {
    char text[96];
    std::snprintf(text, sizeof text, "predicted to take %.3g s; the limit is %.3g s",
                  planned.seconds, static_cast<double>(limits.time_ns) * 1e-9);
    planned.skip_reason = text;
  }
  return planned;
}

std::vector<PlannedCell> MakePlan(const std::vector<Grid>& grids, const std::string& filter,
                                  const Limits& limits, std::vector<std::string>* notes) {
  std::vector<PlannedCell> plan;
  std::set<std::string> names;
  for (const Grid& grid : grids) {
    auto add = [&](const Cell& cell) {
      const std::string name = cell.Name();
      if (!filter.empty() && !GlobMatches(filter, name)) return;
      if (!names.insert(name).second) return;
      Limits cell_limits = limits;
      cell_limits.budget_bytes = grid.memory_budget_bytes;
      try {
        plan.push_back(PlanCell(cell, grid.measure_time,
                                grid.timing.min_time_ns * grid.timing.repetitions / 5,
                                cell_limits));
      } catch (const ShapeError& error) {
        throw ShapeError("--batch or the flags of size: " + name + ": " + error.what());
      }
      plan.back().measure_memory = grid.measure_memory;
      plan.back().timing = grid.timing;
      plan.back().memory_budget_bytes = grid.memory_budget_bytes;
    };
    if (!grid.variants.empty()) AddLinearCells(grid, notes, add);
    if (!grid.attention_variants.empty()) AddAttentionCells(grid, add);
    if (!grid.network_variants.empty()) AddTransformerXlCells(grid, add);
  }
  return plan;
}

}  // namespace ttbench
