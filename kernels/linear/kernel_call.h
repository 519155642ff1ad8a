// What the variants with kernels of their own share: from tensors to raw pointers, and threads.
// Files that include it are compiled with -fopenmp: at::parallel_for runs in one thread where its
// caller is compiled without.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "kernels/linear/small_gemm.h"

namespace ttbench {

// Runs f(0) .. f(count - 1) on as many threads.
template <typename F>
void InParallel(int64_t count, const F& f) {
  if (count == 1) return f(0);
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

// Calls f with an element of the type, as the kernels store it. Throws c10::Error for a type that
// has none.
template <typename F>
void WithElement(at::ScalarType dtype, const F& f) {
  switch (dtype) {
    case at::kFloat:
      return f(float());
    case at::kDouble:
      return f(double());
    case at::kBFloat16:
      return f(BFloat16());
    default:
      TORCH_CHECK(false, "x must be float32, float64 or bfloat16, not ", dtype);
  }
}

// Bytes of what an element is summed in.
inline int64_t RealBytes(int64_t element_bytes) {
  return std::max<int64_t>(element_bytes, sizeof(float));
}

template <typename Element>
const Element* ConstData(const at::Tensor& tensor) {
  return static_cast<const Element*>(tensor.const_data_ptr());
}
template <typename Element>
Element* MutableData(at::Tensor& tensor) {
  return static_cast<Element*>(tensor.mutable_data_ptr());
}

}  // namespace ttbench
