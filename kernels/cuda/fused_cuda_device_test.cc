// The comparisons of fused_cuda_test on a CUDA device, skipped where there is none.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/fused_cuda.h"
#include "kernels/cuda/fused_cuda_checks.h"
#include "kernels/cuda/panel_cuda.h"

namespace ttbench {
namespace {

// Why kernels cannot run here, or "".
std::string WhyNot() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  if (devices == 0) return "no CUDA device";
  CudaDevice device;
  if (CurrentCudaDevice(&device) != cudaSuccess) return "the CUDA device does not answer";
  if (device.compute_capability < 80) return device.name + " is older than sm_80";
  return "";
}

void Check(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

// Device memory for elements of the precision, filled with NaN or with values.
class DeviceArray {
 public:
  DeviceArray(int64_t elements, int64_t element_bytes)
      : bytes_(static_cast<size_t>(elements * element_bytes)), element_bytes_(element_bytes) {
    Check(cudaMalloc(&data_, std::max<size_t>(bytes_, 1)));
    Check(cudaMemset(data_, 0xff, bytes_));
  }
  DeviceArray(const std::vector<double>& values, int64_t element_bytes)
      : DeviceArray(static_cast<int64_t>(values.size()), element_bytes) {
    std::vector<uint8_t> stored(bytes_);
    for (size_t i = 0; i < values.size(); ++i) {
      const float value = static_cast<float>(values[i]);
      const CudaBfloat16 half = RoundToBfloat16(value);
      std::memcpy(&stored[i * element_bytes],
                  element_bytes == 4 ? static_cast<const void*>(&value) : &half, element_bytes);
    }
    Check(cudaMemcpy(data_, stored.data(), bytes_, cudaMemcpyHostToDevice));
  }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(other.data_), bytes_(other.bytes_), element_bytes_(other.element_bytes_) {
    other.data_ = nullptr;
  }
  ~DeviceArray() { cudaFree(data_); }

  void* data() const { return data_; }
  std::vector<float> Values() const {
    std::vector<uint8_t> stored(bytes_);
    Check(cudaMemcpy(stored.data(), data_, bytes_, cudaMemcpyDeviceToHost));
    std::vector<float> values(bytes_ / element_bytes_);
    for (size_t i = 0; i < values.size(); ++i) {
      if (element_bytes_ == 4) {
        std::memcpy(&values[i], &stored[4 * i], 4);
      } else {
        CudaBfloat16 half;
        std::memcpy(&half, &stored[2 * i], 2);
        values[i] = ToFloat(half);
      }
    }
    return values;
  }

 private:
  void* data_ = nullptr;
  size_t bytes_;
  int64_t element_bytes_;
};

struct Results {
  std::vector<float> y, dx;
  std::vector<std::vector<float>> dcores;
};

// Plan: FusedCudaPlan or PanelCudaPlan.
template <typename Plan>
Results Run(const CudaTestLayer& layer, const Plan& plan) {
  const int64_t bytes = StoredBytes(plan.precision);
  std::vector<DeviceArray> cores, dcores;
  std::vector<const void*> core_pointers;
  std::vector<void*> dcore_pointers;
  for (const auto& core : layer.cores) {
    cores.emplace_back(core, bytes);
    dcores.emplace_back(static_cast<int64_t>(core.size()), bytes);
  }
  for (const DeviceArray& core : cores) core_pointers.push_back(core.data());
  for (const DeviceArray& dcore : dcores) dcore_pointers.push_back(dcore.data());
  const DeviceArray x(layer.x, bytes), dy(layer.dy, bytes);
  const DeviceArray y(static_cast<int64_t>(layer.dy.size()), bytes);
  const DeviceArray dx(static_cast<int64_t>(layer.x.size()), bytes);
  const DeviceArray packed(plan.packed_elements, bytes);
  Results results;
  const bool forward = plan.pass == CudaPass::kForward;
  if constexpr (std::is_same_v<Plan, FusedCudaPlan>) {
    const DeviceArray partial(plan.partial_elements(), 4);
    float* sums = static_cast<float*>(partial.data());
    Check(forward
              ? LaunchFusedForward(plan, core_pointers, x.data(), y.data(), packed.data(), nullptr)
              : LaunchFusedBackward(plan, core_pointers, x.data(), dy.data(), dx.data(),
                                    dcore_pointers, packed.data(), sums, nullptr));
    Check(cudaDeviceSynchronize());
  } else {
    const DeviceArray joined((forward ? 1 : 2) * plan.value_elements, 4);
    const DeviceArray partial(plan.partial_elements, 4);
    float* values = static_cast<float*>(joined.data());
    float* sums = static_cast<float*>(partial.data());
    Check(forward ? LaunchPanelForward(plan, core_pointers, x.data(), y.data(), packed.data(),
                                       values, nullptr)
                  : LaunchPanelBackward(plan, core_pointers, x.data(), dy.data(), dx.data(),
                                        dcore_pointers, packed.data(), values, sums, nullptr));
    Check(cudaDeviceSynchronize());
  }
  if (forward) {
    results.y = y.Values();
  } else {
    results.dx = dx.Values();
    for (const DeviceArray& dcore : dcores) results.dcores.push_back(dcore.Values());
  }
  return results;
}

template <typename Plan>
void ExpectRight(const CudaTestLayer& layer, const Plan& plan) {
  const std::string text = Describe(layer.shape, plan);
  const Results got = Run(layer, plan);
  if (plan.pass == CudaPass::kForward) {
    EXPECT_LE(CudaError(layer, got.y, layer.oracle.y, layer.magnitude.y), 1) << text;
  } else {
    EXPECT_LE(CudaError(layer, got.dx, layer.oracle.dx, layer.magnitude.dx), 1) << text;
    for (size_t k = 0; k < layer.cores.size(); ++k) {
      EXPECT_LE(CudaError(layer, got.dcores[k], layer.oracle.dcores[k], layer.magnitude.dcores[k]),
                1)
          << text << ", core " << k + 1;
    }
  }
  const Results again = Run(layer, plan);
  EXPECT_TRUE(got.y == again.y && got.dx == again.dx && got.dcores == again.dcores)
      << text << ": other bits the second time";
}

class FusedCudaDeviceTest : public testing::TestWithParam<CudaPrecision> {
 protected:
  void SetUp() override {
    const std::string reason = WhyNot();
    if (!reason.empty()) GTEST_SKIP() << reason;
    Check(CurrentCudaDevice(&device_));
  }
  CudaDevice device_;
};

TEST_P(FusedCudaDeviceTest, RandomLayersInRandomTilesEqualTheOracle) {
  for (int seed = 0; seed < 200 && !HasFailure(); ++seed) {
    std::mt19937_64 engine(seed);
    const TtShape shape = RandomShape(engine);
    const CudaTestLayer layer(shape, RandomBatch(engine), GetParam(), seed);
    for (CudaPass pass : {CudaPass::kForward, CudaPass::kBackward}) {
      ExpectRight(layer, RandomPlan(shape, layer.batch, GetParam(), pass, device_, engine));
      ExpectRight(layer, RandomPanelPlan(shape, layer.batch, GetParam(), pass, device_, engine));
    }
  }
}

// As the planner cuts them, with more blocks than the device holds at once.
TEST_P(FusedCudaDeviceTest, PlannedLayersEqualTheOracle) {
  for (const TtShape& shape :
       {TtShape::Cube(3, 8, 8), TtShape::Cube(3, 16, 8), TtShape::Parse("41x5x2:10x14x15", 8),
        TtShape::Parse("64x64:64x64", 16)}) {
    for (int64_t batch : {1, 333}) {
      const CudaTestLayer layer(shape, batch, GetParam(), 7);
      for (CudaPass pass : {CudaPass::kForward, CudaPass::kBackward}) {
        std::string reason;
        const auto plan = PlanFusedCuda(shape, batch, GetParam(), pass, device_, &reason);
        ASSERT_TRUE(plan) << reason;
        ExpectRight(layer, *plan);
        const auto panel = PlanPanelCuda(shape, batch, GetParam(), pass, device_, &reason);
        ASSERT_TRUE(panel) << reason;
        ExpectRight(layer, *panel);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, FusedCudaDeviceTest,
                         testing::Values(CudaPrecision::kFloat32, CudaPrecision::kTf32,
                                         CudaPrecision::kBfloat16),
                         [](const auto& info) { return std::string(PrecisionName(info.param)); });

}  // namespace
}  // namespace ttbench
