// Finds exact crossovers: the smallest batch at which a variant's bytes pass the dense layer's.
//
// Memory is deterministic and grows with the batch, so the crossover is an integer, found by
// bisection over measured bytes. The model's answer, from the cost models alone, must be the same.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/cell.h"
#include "kernels/cost/cell_cost.h"
#include "kernels/shape.h"

namespace ttbench {

// What is compared with the dense layer's.
//   held  weights plus what is held for the backward: the threads' own law, 2Br > d^3
//   peak  the most over the whole phase
enum class CrossoverMetric { kHeld, kPeak };
const char* Name(CrossoverMetric metric);
// Nothing if the figures have no such metric (nothing is held at inference).
std::optional<int64_t> MetricOf(const MemoryFigures& figures, CrossoverMetric metric);

struct Crossover {
  // measured    crosses at `batch`
  // always      already above at batch 1
  // never       by the model it stays at or below at every batch, and did so where it was measured
  // beyond      by the model it crosses past the batches that could be measured, and it did not
  //             where it was
  // unmeasured  a cell that the search needed did not run
  std::string verdict;
  std::optional<int64_t> batch;
  std::optional<int64_t> model_batch;
  int64_t probes = 0;  // Batches measured.
};

// Whether the variant is above the dense layer at a batch; nothing if it cannot be said (the cell
// did not run). Monotonic in the batch.
using IsAbove = std::function<std::optional<bool>(int64_t batch)>;

// The smallest batch in [1, max_batch] at which is_above, by doubling from `start` and bisection.
// Counts its calls in *probes.
std::optional<int64_t> FindFirst(const IsAbove& is_above, int64_t start, int64_t max_batch,
                                 int64_t* probes);

// The model's crossover for a cell's variant, shape and phase: at any batch up to 2^24.
std::optional<int64_t> ModelCrossover(const Cell& cell, CrossoverMetric metric);

// Combines both. `measured` is asked for batches up to max_batch. Where the model sees no crossover
// up to there, the one batch at which that is measured is spot_check_batch.
Crossover FindCrossover(const Cell& cell, CrossoverMetric metric, const IsAbove& measured,
                        int64_t max_batch, int64_t spot_check_batch);

// The smallest batch with 2 B r > d^3, the threads' law; nothing but for cubes of three cores with
// one rank.
std::optional<int64_t> ClaimedCrossover(const TtShape& shape);

}  // namespace ttbench
