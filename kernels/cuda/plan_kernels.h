// The steps of a plan that are no products, on a device. Without LibTorch; every launch is
// asynchronous on its stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/problem.h"

namespace ttbench {

// to [outer, b, a, inner] = from [outer, a, b, inner], of elements of 2, 4 or 8 bytes.
cudaError_t LaunchSwap(int64_t element_bytes, const void* from, void* to, int64_t outer, int64_t a,
                       int64_t b, int64_t inner, cudaStream_t stream);

// to [elements] = the sum of from [slices, elements], in the type of `from`, in order of the
// slices: equal calls give equal bits. `from_type` is `to_type`, or float32 where that is bfloat16.
cudaError_t LaunchSum(DType from_type, DType to_type, const void* from, void* to, int64_t slices,
                      int64_t elements, cudaStream_t stream);

}  // namespace ttbench
