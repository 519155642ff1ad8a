#include "benchmarks/crossover.h"

#include <algorithm>

namespace ttbench {
namespace {

// Batches the model is asked about: past any that a machine holds.
constexpr int64_t kMaxModelBatch = int64_t{1} << 24;

}  // namespace

const char* Name(CrossoverMetric metric) {
  return metric == CrossoverMetric::kHeld ? "held" : "peak";
}

std::optional<int64_t> MetricOf(const MemoryFigures& figures, CrossoverMetric metric) {
  if (metric == CrossoverMetric::kPeak) return figures.peak;
  if (!figures.weight || !figures.held) return std::nullopt;
  return *figures.weight + *figures.held;
}

std::optional<int64_t> FindFirst(const IsAbove& is_above, int64_t start, int64_t max_batch,
                                 int64_t* probes) {
  auto probe = [&](int64_t batch) {
    ++*probes;
    return is_above(batch);
  };
  start = std::clamp<int64_t>(start, 1, max_batch);
  // below is not above the dense layer, above is; 0 stands for an empty batch, which is not.
  int64_t below = 0, above = 0;
  std::optional<bool> answer = probe(start);
  if (!answer) return std::nullopt;
  if (*answer) {
    above = start;
    for (int64_t step = 1; above - step > 0; step *= 2) {
      answer = probe(above - step);
      if (!answer) return std::nullopt;
      if (!*answer) {
        below = above - step;
        break;
      }
      above -= step;
    }
  } else {
    below = start;
    for (int64_t step = 1; above == 0; step *= 2) {
      if (below == max_batch) return std::nullopt;
      const int64_t next = std::min(below + step, max_batch);
      answer = probe(next);
      if (!answer) return std::nullopt;
      (*answer ? above : below) = next;
    }
  }
  while (above - below > 1) {
    const int64_t middle = below + (above - below) / 2;
    answer = probe(middle);
    if (!answer) return std::nullopt;
    (*answer ? above : below) = middle;
  }
  return above;
}

std::optional<int64_t> ModelCrossover(const Cell& cell, CrossoverMetric metric) {
  auto is_above = [&](int64_t batch) -> std::optional<bool> {
    const auto workload = cell.workload->AtBatch(batch);
    const auto ours = MetricOf(workload->Predict().bytes, metric);
    const auto theirs = MetricOf(workload->Baseline()->Predict().bytes, metric);
    if (!ours || !theirs) return std::nullopt;
    return *ours > *theirs;
  };
  int64_t probes = 0;
  try {
    return FindFirst(is_above, 1, kMaxModelBatch, &probes);
  } catch (const ShapeError&) {
    return std::nullopt;  // It has not crossed where its counts leave 64 bits.
  }
}

Crossover FindCrossover(const Cell& cell, CrossoverMetric metric, const IsAbove& measured,
                        int64_t max_batch, int64_t spot_check_batch) {
  Crossover crossover;
  crossover.model_batch = ModelCrossover(cell, metric);
  if (crossover.model_batch.value_or(max_batch + 1) > max_batch) max_batch = spot_check_batch;
  bool answered = true;
  auto probe = [&](int64_t batch) {
    const std::optional<bool> answer = measured(batch);
    answered = answered && answer.has_value();
    return answer;
  };
  // The search starts where the model points: right, it takes two probes, one on either side.
  crossover.batch =
      FindFirst(probe, crossover.model_batch.value_or(max_batch), max_batch, &crossover.probes);
  if (!answered) {
    crossover.verdict = "unmeasured";
  } else if (crossover.batch) {
    crossover.verdict = *crossover.batch == 1 ? "always" : "measured";
  } else {
    crossover.verdict = crossover.model_batch ? "beyond" : "never";
  }
  return crossover;
}

std::optional<int64_t> ClaimedCrossover(const TtShape& shape) {
  if (!shape.is_cube() || shape.cores() != 3 || shape.uniform_rank() == 0) return std::nullopt;
  return shape.in_features() / (2 * shape.uniform_rank()) + 1;
}

}  // namespace ttbench
