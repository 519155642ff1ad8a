#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/plan_kernels.h"

namespace ttbench {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;

unsigned Blocks(int64_t elements) {
  return static_cast<unsigned>(std::min((elements + kThreads - 1) / kThreads, kMaxBlocks));
}

// A thread for each element of the result, so that writes are side by side.
template <typename Word>
__global__ void Swap(const Word* __restrict__ from, Word* __restrict__ to, int64_t elements,
                     int64_t a, int64_t b, int64_t inner) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements;
       i += stride) {
    int64_t rest = i;
    const int64_t at_inner = rest % inner;
    rest /= inner;
    const int64_t at_a = rest % a;
    rest /= a;
    const int64_t at_b = rest % b;
    rest /= b;
    to[i] = from[((rest * a + at_a) * b + at_b) * inner + at_inner];
  }
}

template <typename From, typename To>
__global__ void Sum(const From* __restrict__ from, To* __restrict__ to, int64_t slices,
                    int64_t elements) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements;
       i += stride) {
    From sum = 0;
    for (int64_t s = 0; s < slices; ++s) sum += from[s * elements + i];
    to[i] = static_cast<To>(sum);
  }
}

template <typename Word>
cudaError_t RunSwap(const void* from, void* to, int64_t outer, int64_t a, int64_t b, int64_t inner,
                    cudaStream_t stream) {
  const int64_t elements = outer * a * b * inner;
  Swap<<<Blocks(elements), kThreads, 0, stream>>>(static_cast<const Word*>(from),
                                                  static_cast<Word*>(to), elements, a, b, inner);
  return cudaGetLastError();
}

template <typename From, typename To>
cudaError_t RunSum(const void* from, void* to, int64_t slices, int64_t elements,
                   cudaStream_t stream) {
  Sum<<<Blocks(elements), kThreads, 0, stream>>>(static_cast<const From*>(from),
                                                 static_cast<To*>(to), slices, elements);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchSwap(int64_t element_bytes, const void* from, void* to, int64_t outer, int64_t a,
                       int64_t b, int64_t inner, cudaStream_t stream) {
  switch (element_bytes) {
    case 2:
      return RunSwap<uint16_t>(from, to, outer, a, b, inner, stream);
    case 4:
      return RunSwap<uint32_t>(from, to, outer, a, b, inner, stream);
    case 8:
      return RunSwap<uint64_t>(from, to, outer, a, b, inner, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t LaunchSum(DType from_type, DType to_type, const void* from, void* to, int64_t slices,
                      int64_t elements, cudaStream_t stream) {
  if (from_type == DType::kFloat64 && to_type == DType::kFloat64)
    return RunSum<double, double>(from, to, slices, elements, stream);
  if (from_type == DType::kFloat32 && to_type == DType::kFloat32)
    return RunSum<float, float>(from, to, slices, elements, stream);
  if (from_type == DType::kFloat32 && to_type == DType::kBFloat16)
    return RunSum<float, __nv_bfloat16>(from, to, slices, elements, stream);
  return cudaErrorInvalidValue;
}

}  // namespace ttbench
