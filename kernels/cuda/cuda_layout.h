// What the plans of the fused CUDA kernels share: sizes rounded up, and matrices in shared memory.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/precision.h"

namespace ttbench {

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// Of a matrix [columns][depth] in shared memory, in elements: at least the depth, and such that the
// lanes of a warp, which read neighbouring depths of 4 or 8 neighbouring columns, meet all banks.
inline int64_t Pitch(CudaPrecision precision, int64_t depth) {
  const int64_t unit = precision == CudaPrecision::kFloat32 ? 4
                       : precision == CudaPrecision::kTf32  ? 8
                                                            : 16;
  const int64_t units = CeilDiv(depth, unit);
  return (units + 1 - units % 2) * unit;
}

inline std::vector<int64_t> Divisors(int64_t value) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= value; ++d) {
    if (value % d == 0) all.push_back(d);
  }
  return all;
}

}  // namespace ttbench
