// What measures a layer in Python as the suite does in C++: the memory meter, the inputs, the
// float64 reference and its tolerance, as operators of PyTorch.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "benchmarks/fingerprint.h"
#include "benchmarks/inputs.h"
#include "benchmarks/machine.h"
#include "benchmarks/memory_meter.h"
#include "benchmarks/reference.h"
#include "kernels/problem.h"
#include "kernels/shape.h"

namespace ttbench {
namespace {

std::unique_ptr<MemoryMeter>& Installed() {
  static auto* meter = new std::unique_ptr<MemoryMeter>;
  return *meter;
}

MemoryMeter& Meter() {
  TORCH_CHECK(Installed() != nullptr, "no meter is installed; call meter_start() first");
  return *Installed();
}

void MeterStart(int64_t budget_bytes) {
  TORCH_CHECK(Installed() == nullptr, "a meter is installed already; call meter_stop() first");
  Installed() = std::make_unique<MemoryMeter>(budget_bytes);
}
void MeterStop() { Installed().reset(); }
int64_t MeterLive() { return Meter().live_bytes(); }
int64_t MeterPeak() { return Meter().peak_bytes(); }
void MeterResetPeak() { Meter().ResetPeak(); }

LinearProblem ProblemOf(at::IntArrayRef in_modes, at::IntArrayRef out_modes, at::IntArrayRef ranks,
                        int64_t batch, bool train) {
  return {TtShape(in_modes.vec(), out_modes.vec(), ranks.vec()), batch,
          train ? Phase::kTrain : Phase::kInference, DType::kFloat32, /*threads=*/1};
}

at::Tensor Filled(const UniformValues& values, at::IntArrayRef sizes) {
  at::Tensor tensor = at::empty(sizes, at::kFloat);
  float* data = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) data[i] = static_cast<float>(values[i]);
  return tensor;
}

// x, the gradient of y, and the cores: those of LinearRun.
std::tuple<at::Tensor, at::Tensor, std::vector<at::Tensor>> Inputs(at::IntArrayRef in_modes,
                                                                   at::IntArrayRef out_modes,
                                                                   at::IntArrayRef ranks,
                                                                   int64_t batch, int64_t seed) {
  const TtShape shape(in_modes.vec(), out_modes.vec(), ranks.vec());
  std::vector<at::Tensor> cores;
  for (int64_t k = 0; k < shape.cores(); ++k) {
    cores.push_back(
        Filled(UniformValues(seed, StreamOfCore(k), CoreScale(shape, k)), shape.CoreSizes(k)));
  }
  return {Filled(UniformValues(seed, kStreamX, 1), {batch, shape.in_features()}),
          Filled(UniformValues(seed, kStreamDy, 1), {batch, shape.out_features()}), cores};
}

at::Tensor Wide(const std::vector<double>& values, at::IntArrayRef sizes) {
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
  return tensor;
}

// The rows of x that are checked, y there, and in training, with the gradient of y zero in all
// other rows, dx there and the gradient of every core.
std::vector<at::Tensor> Reference(at::IntArrayRef in_modes, at::IntArrayRef out_modes,
                                  at::IntArrayRef ranks, int64_t batch, bool train, int64_t seed) {
  const LinearProblem problem = ProblemOf(in_modes, out_modes, ranks, batch, train);
  const TtShape& shape = problem.shape;
  const LinearReference reference = MakeReference(problem, seed);
  const int64_t count = static_cast<int64_t>(reference.rows.size());
  at::Tensor rows = at::empty({count}, at::kLong);
  std::copy(reference.rows.begin(), reference.rows.end(), rows.mutable_data_ptr<int64_t>());
  std::vector<at::Tensor> result = {rows, Wide(reference.oracle.y, {count, shape.out_features()})};
  if (!train) return result;
  result.push_back(Wide(reference.oracle.dx, {count, shape.in_features()}));
  for (int64_t k = 0; k < shape.cores(); ++k) {
    result.push_back(Wide(reference.oracle.dcores[k], shape.CoreSizes(k)));
  }
  return result;
}

double ToleranceOf(at::IntArrayRef in_modes, at::IntArrayRef out_modes, at::IntArrayRef ranks,
                   int64_t batch, bool train) {
  return Tolerance(ProblemOf(in_modes, out_modes, ranks, batch, train));
}

int64_t AvailableMemory() { return AvailableMemoryBytes(); }

// Machine, LibTorch, sources and warnings, as run.json has them.
std::string Fingerprint() { return DescribeRun(ReadMachine(), {}).dump(); }

TORCH_LIBRARY(ttbench_measure, library) {
  library.def("meter_start(int budget_bytes) -> ()", &MeterStart);
  library.def("meter_stop", &MeterStop);
  library.def("meter_live", &MeterLive);
  library.def("meter_peak", &MeterPeak);
  library.def("meter_reset_peak", &MeterResetPeak);
  library.def(
      "inputs(int[] in_modes, int[] out_modes, int[] ranks, int batch, int seed) -> "
      "(Tensor, Tensor, Tensor[])",
      &Inputs);
  library.def(
      "reference(int[] in_modes, int[] out_modes, int[] ranks, int batch, bool train, int seed) -> "
      "Tensor[]",
      &Reference);
  library.def(
      "tolerance(int[] in_modes, int[] out_modes, int[] ranks, int batch, bool train) -> float",
      &ToleranceOf);
  library.def("available_memory", &AvailableMemory);
  library.def("fingerprint", &Fingerprint);
}

}  // namespace
}  // namespace ttbench
