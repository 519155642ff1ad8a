// What a cell of the linear family costs, by its variant's model: every figure that is measured, as
// predicted, and the terms it is made of.
#pragma once

#include <optional>
#include <vector>

#include "kernels/cost/ledger.h"
#include "kernels/problem.h"
#include "kernels/variant.h"

namespace ttbench {

// Bytes of one cell, measured or predicted. Absent: the phase has no such stage.
//
// The base is x and the parameters. A stage's peak is the most live bytes during the stage beyond
// the base: y, what is held, gradients, optimizer state, temporaries. (docs/memory.md)
struct MemoryFigures {
  std::optional<int64_t> weight;         // The parameters.
  std::optional<int64_t> held;           // Alive after the forward because backward needs it: x
                                         // included, parameters and y not. Only with a backward.
  std::optional<int64_t> forward_peak;   // Forward, from x to y.
  std::optional<int64_t> backward_peak;  // Backward: y and its gradient are alive throughout.
  std::optional<int64_t> step_peak;      // The optimizer's update; y and x's gradient are gone.
  std::optional<int64_t> peak;           // The most over the whole phase, base included.
};

struct LinearCost {
  MemoryFigures bytes;
  std::vector<cost::Term> held_terms;  // They sum to bytes.held.
  std::vector<cost::Term> peak_terms;  // They sum to bytes.peak.
  // Floating-point operations of all products in the phase; a multiply-add is two.
  int64_t flops = 0;
  // Bytes of all buffers allocated in the phase, each counted once: a measure of memory traffic.
  int64_t allocated_bytes = 0;
  // The allocations and releases of the measured iteration, in order.
  std::vector<cost::Ledger::Event> events;
};

// Where the variant's peaks are not modelled, the peaks leave out the library's scratch.
// Throws ShapeError if a count passes 64 bits.
LinearCost PredictLinearCost(const LinearVariant& variant, const LinearProblem& problem);

}  // namespace ttbench
