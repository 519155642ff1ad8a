// What a cell of any family costs, by its variant's model: every figure that is measured, as
// predicted, and the terms it is made of.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cost/ledger.h"
#include "kernels/cost/tape.h"
#include "kernels/problem.h"

namespace ttbench {

// Bytes of one cell, measured or predicted. Absent: the phase has no such stage.
//
// The base is the inputs (a linear layer's x) and the parameters. A stage's peak is the most live
// bytes during the stage beyond the base: y, what is held, gradients, optimizer state, temporaries.
// (docs/memory.md)
struct MemoryFigures {
  std::optional<int64_t> weight;         // The parameters.
  std::optional<int64_t> held;           // Alive after the forward because backward needs it:
                                         // inputs included, parameters and y not. Only with a
                                         // backward.
  std::optional<int64_t> forward_peak;   // Forward, from the inputs to y.
  std::optional<int64_t> backward_peak;  // Backward: y and its gradient are alive throughout.
  std::optional<int64_t> step_peak;      // The optimizer's update; y and the inputs' gradients are
                                         // gone.
  std::optional<int64_t> peak;           // The most over the whole phase, base included.
};

struct CellCost {
  MemoryFigures bytes;
  std::vector<cost::Term> held_terms;  // They sum to bytes.held.
  std::vector<cost::Term> peak_terms;  // They sum to bytes.peak.
  // Floating-point operations of all products in the phase; a multiply-add is two.
  int64_t flops = 0;
  // Bytes of all buffers allocated in the phase, each counted once: a measure of memory traffic.
  int64_t allocated_bytes = 0;
  // The allocations and releases of the measured iteration, in order.
  std::vector<cost::Ledger::Event> events;
  // What of them are copies, in order; their events are places in the above, and negative for
  // buffers that are older.
  std::vector<cost::CopyRecord> copies;
  // What is wrong with the model itself, as the end of a sentence; "" for nothing.
  std::string flaw;
};

// A cell's program on the tape.
struct TracedCell {
  std::vector<cost::Tensor> parameters, inputs;  // Leaves.
  std::function<std::vector<cost::Tensor>()> forward;
  // Leaves the gradients with the tape. Absent: the tape's own backward.
  std::function<void(const std::vector<cost::Tensor>& y, const std::vector<cost::Tensor>& dy)>
      backward;
  // Ends an iteration: what the program keeps between its stages goes. May be absent.
  std::function<void()> release;
};

// Runs the phase as the memory pass does (benchmarks/memory_pass.h). `make` allocates the
// parameters, then the inputs. Throws ShapeError if a count passes 64 bits.
CellCost PredictCellCost(Phase phase, DType dtype, int64_t threads,
                         const std::function<TracedCell(cost::Tape& tape)>& make);

}  // namespace ttbench
