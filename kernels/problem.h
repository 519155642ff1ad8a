// What one linear-family cell computes: the words that flags, cell names and result rows share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/shape.h"

namespace ttbench {

enum class DType { kFloat32, kFloat64, kBFloat16 };
// inference: forward without autograd. train: forward, then backward for x and every parameter.
// step-sgd, step-adam: train, then the optimizer's update of every parameter.
enum class Phase { kInference, kTrain, kStepSgd, kStepAdam };

// Where tensors are and products run.
enum class Device { kCpu, kCuda };

inline constexpr std::array kDTypes = {DType::kFloat32, DType::kFloat64, DType::kBFloat16};
inline constexpr std::array kPhases = {Phase::kInference, Phase::kTrain, Phase::kStepSgd,
                                       Phase::kStepAdam};
inline constexpr std::array kDevices = {Device::kCpu, Device::kCuda};

// The phase less its optimizer's update, which is the same for all layers with cores.
inline Phase WithoutOptimizer(Phase phase) {
  return phase == Phase::kInference ? phase : Phase::kTrain;
}

const char* Name(DType dtype);    // "float32"
const char* Name(Phase phase);    // "train"
const char* Name(Device device);  // "cuda"
// Why a cell is skipped whose variant does not run on this device.
const char* WhyNotOn(Device device);
int64_t ElementBytes(DType dtype);
// The largest relative error of rounding one number: 2^-24 for float32.
double UnitRoundoff(DType dtype);
inline constexpr double kTf32Roundoff = 1.0 / (1 << 11);  // 11 significant bits.

struct LinearProblem {
  TtShape shape;
  int64_t batch = 1;  // Rows of x.
  Phase phase = Phase::kInference;
  DType dtype = DType::kFloat32;
  int64_t threads = 1;
  Device device = Device::kCpu;
  bool tf32 = false;  // On CUDA devices: operands of float32 products are rounded to TF32.
};

// The largest error, relative to the largest element of the result, that a correct variant may show
// against the float64 oracle: 1e-5 in float32 for three cores. The errors of contractions in series
// add, so it grows with the number of cores, and it scales with the unit roundoff. (float64 is
// compared with an oracle of its own precision, hence a factor of two. bfloat16 rounds what it
// stores after each contraction and accumulates in float32: two roundoffs a contraction.)
double Tolerance(const TtShape& shape, DType dtype);

// The same for a whole cell. Where there are gradients, a core's may have been summed over all
// elements of the matrix that one of its elements takes part in (M*N / (n_k m_k) of them, as in the
// variants that rebuild the matrix): rounding n sums grows as sqrt(n) roundoffs (Higham and Mary,
// "A New Approach to Probabilistic Rounding Error Analysis", 2019), twice which is allowed if more.
// With TF32, as for bfloat16: two of its roundoffs a contraction.
double Tolerance(const LinearProblem& problem);

}  // namespace ttbench
