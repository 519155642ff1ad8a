// The fused CUDA kernels in emulation, as a host launches them: pack the cores, run the plan, sum
// the gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/emulation/emulator.h"
#include "kernels/cuda/fused_cuda_plan.h"

namespace ttbench {

struct EmulatedResult {
  std::vector<float> y;                    // Forward.
  std::vector<float> dx;                   // Backward.
  std::vector<std::vector<float>> dcores;  // Backward.
  int barrier_sites = 0;                   // Of the fused kernel.
};

struct EmulationOptions {
  int removed_barrier = -1;  // As in EmulatedLaunch, like the next.
  bool removed_waits = false;
  // Runs the grid's last block alone, on x, dy and results that are only the last `rows` rows of
  // the batch: the others are not in memory. 0: all rows.
  int64_t rows = 0;
};

// x: [rows, N], dy: [rows, M] (backward), row-major; elements are rounded to the plan's precision
// as a tensor of that precision would hold them, and results are such elements. Throws
// EmulationError.
EmulatedResult EmulateFused(const FusedCudaPlan& plan,
                            const std::vector<std::vector<double>>& cores,
                            const std::vector<double>& x, const std::vector<double>& dy,
                            const EmulationOptions& options = {});

}  // namespace ttbench
