// Runs one cell's phase once: measures what it allocates, byte by byte and as resident memory, and
// checks its results against the oracle.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/cuda_device.h"
#include "benchmarks/memory_meter.h"
#include "benchmarks/workload.h"
#include "kernels/cost/cell_cost.h"

namespace ttbench {

struct MeasuredMemory {
  MemoryFigures bytes;
  // How far the process's resident memory rose over what it was before the run was made.
  int64_t rss_peak_bytes = 0;
  // Of y and of every gradient, or, where y is wrong, of y alone, against the reference; 0 without
  // one.
  double max_relative_error = 0;
  std::string max_error_of;  // The tensor that has it.
  // Allocations and releases of the measured iteration, in order, and what of it outlives it.
  std::vector<MemoryMeter::Event> events, leaks;
  // Of a CUDA device: what its allocator held of the driver at most; and columns of device.csv.
  std::optional<int64_t> reserved_peak_bytes;
  NamedFigures device;
};

// Runs one iteration of the phase under a MemoryMeter; in phases with an optimizer the second one,
// since the first makes the optimizer's state. Throws OutOfBudget if the phase, set-up apart,
// passes the budget (budget_bytes = 0: none), BrokenContract, and whatever the variant throws. The
// gradient of y is zero outside the reference's rows, if given.
//
// On a CUDA device the bytes are its allocator's, of the second iteration in every phase: the first
// sets up what libraries keep (cuBLAS's workspaces, which count from then on as the optimizer's
// state does). The budget is then SetUpDevice()'s, and no events are recorded.
MeasuredMemory MeasureMemory(const Workload& workload, uint64_t seed, int64_t budget_bytes,
                             const Reference* reference = nullptr);

// "" if nothing outlives the iteration and the figures are the model's (with `with_peaks` false:
// weight and held bytes); else a sentence: what is left, or each figure that differs with both
// values, and the first allocation at which the measured sequence leaves the model's.
std::string CompareWithModel(const MeasuredMemory& measured, const CellCost& model,
                             bool with_peaks = true);

// For people: a table of what was allocated and released, by the operators that did it, beside the
// model's named terms, around the first difference.
std::string ShowBesideModel(const MeasuredMemory& measured, const CellCost& model);

}  // namespace ttbench
