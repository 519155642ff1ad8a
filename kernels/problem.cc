#include "kernels/problem.h"

#include <algorithm>
#include <cmath>

namespace ttbench {

const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kBFloat16:
      return "bfloat16";
  }
  return "";
}

const char* Name(Phase phase) {
  switch (phase) {
    case Phase::kInference:
      return "inference";
    case Phase::kTrain:
      return "train";
    case Phase::kStepSgd:
      return "step-sgd";
    case Phase::kStepAdam:
      return "step-adam";
  }
  return "";
}

int64_t ElementBytes(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat64:
      return 8;
    case DType::kBFloat16:
      return 2;
  }
  return 0;
}

double UnitRoundoff(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return std::ldexp(1.0, -24);
    case DType::kFloat64:
      return std::ldexp(1.0, -53);
    case DType::kBFloat16:
      return std::ldexp(1.0, -9);
  }
  return 0;
}

double Tolerance(const TtShape& shape, DType dtype) {
  const double cores = static_cast<double>(std::max<int64_t>(shape.cores(), 3));
  if (dtype == DType::kBFloat16) return 2 * (cores + 1) * UnitRoundoff(dtype);
  const double relative = UnitRoundoff(dtype) / UnitRoundoff(DType::kFloat32);
  return 1e-5 * relative * cores / 3 * (dtype == DType::kFloat64 ? 2 : 1);
}

}  // namespace ttbench
