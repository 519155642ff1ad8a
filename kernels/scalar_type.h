// A problem's element type as LibTorch names it.
#pragma once

#include <c10/core/ScalarType.h>

#include <stdexcept>
#include <string>

#include "kernels/problem.h"

namespace ttbench {

inline at::ScalarType ScalarTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return at::kFloat;
    case DType::kFloat64:
      return at::kDouble;
    case DType::kBFloat16:
      return at::kBFloat16;
  }
  return at::kFloat;
}

// Throws std::invalid_argument for a type that has no variants.
inline DType DTypeOf(at::ScalarType type) {
  for (DType dtype : kDTypes) {
    if (ScalarTypeOf(dtype) == type) return dtype;
  }
  throw std::invalid_argument(std::string("a TT layer of ") + c10::toString(type) +
                              " has no variants; use Float, Double or BFloat16");
}

}  // namespace ttbench
