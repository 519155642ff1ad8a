// Runs one cell's phase once and finds what it copies, beside what its cost model says it does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/copy_recorder.h"
#include "benchmarks/workload.h"
#include "kernels/cost/cell_cost.h"

namespace ttbench {

struct MeasuredCopies {
  std::vector<RecordedCopy> copies;      // In order.
  std::vector<RecordedScratch> scratch;  // Likewise.
  // What the computing operators read and wrote, and of how many operations (copy_recorder.h).
  int64_t computed_bytes = 0, computed_flops = 0;
};

// Forward and, in training, backward; no optimizer's step. Throws whatever the variant throws.
MeasuredCopies MeasureCopies(const Workload& workload, uint64_t seed);

// "" if the copies are the model's, one by one: in their order, of the same bytes, and from and
// into the same buffers. Else a sentence about the first that is not.
std::string CompareCopies(const MeasuredCopies& measured, const CellCost& model);

}  // namespace ttbench
