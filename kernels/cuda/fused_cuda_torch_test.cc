// What is wrong with the tensors is said before anything is launched. That results are right,
// fused_cuda_device_test tests.
#include "kernels/cuda/fused_cuda_torch.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttbench {
namespace {

template <typename Call>
std::string Complaint(const Call& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "";
}

TEST(FusedCudaTorchTest, SaysWhatIsWrongWithTensors) {
  const TtShape shape = TtShape::Cube(2, 4, 2);
  const auto forward = PlanFusedCuda(shape, 3, CudaPrecision::kTf32, CudaPass::kForward, A100());
  const auto backward = PlanFusedCuda(shape, 3, CudaPrecision::kTf32, CudaPass::kBackward, A100());
  ASSERT_TRUE(forward && backward);
  const at::Tensor x = at::ones({3, 16}), core = at::ones({1, 4, 4, 2});
  const std::vector<at::Tensor> cores = {core, core.view({2, 4, 4, 1})};
  EXPECT_EQ(Complaint([&] { FusedCudaForward(*forward, cores, x, nullptr); }),
            "x must be on a CUDA device, not on cpu");
  EXPECT_EQ(Complaint([&] { FusedCudaBackward(*backward, cores, x, x, nullptr); }),
            "x must be on a CUDA device, not on cpu");
  EXPECT_EQ(Complaint([&] { FusedCudaForward(*backward, cores, x, nullptr); }),
            "a plan of the backward pass");
  EXPECT_EQ(Complaint([&] { FusedCudaBackward(*forward, cores, x, x, nullptr); }),
            "a plan of the forward pass");
}

}  // namespace
}  // namespace ttbench
