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

const char* Name(Device device) {
  switch (device) {
    case Device::kCpu:
      return "cpu";
    case Device::kCuda:
      return "cuda";
  }
  return "";
}

const char* WhyNotOn(Device device) {
  return device == Device::kCpu ? "runs on CUDA devices only" : "runs on the CPU only";
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
      return std::ldexp(1.0, -8);  // 8 significant bits, the leading one implied.
  }
  return 0;
}

double Tolerance(const TtShape& shape, DType dtype) {
  const double cores = static_cast<double>(std::max<int64_t>(shape.cores(), 3));
  if (dtype == DType::kBFloat16) return 2 * (cores + 1) * UnitRoundoff(dtype);
  const double relative = UnitRoundoff(dtype) / UnitRoundoff(DType::kFloat32);
  return 1e-5 * relative * cores / 3 * (dtype == DType::kFloat64 ? 2 : 1);
}

double Tolerance(const LinearProblem& problem) {
  const TtShape& shape = problem.shape;
  const bool tf32 = problem.tf32 && problem.dtype == DType::kFloat32;
  const double roundoff = tf32 ? kTf32Roundoff : UnitRoundoff(problem.dtype);
  const double cores = static_cast<double>(std::max<int64_t>(shape.cores(), 3));
  const double tolerance = tf32 ? 2 * (cores + 1) * roundoff : Tolerance(shape, problem.dtype);
  if (problem.phase == Phase::kInference) return tolerance;
  int64_t smallest = shape.n(0) * shape.m(0);
  for (int64_t k = 1; k < shape.cores(); ++k) {
    smallest = std::min(smallest, shape.n(k) * shape.m(k));
  }
  const double terms = static_cast<double>(shape.dense_parameters() / smallest);
  return std::max(tolerance, 2 * roundoff * std::sqrt(terms));
}

}  // namespace ttbench
