// What the cuBLAS variants say of themselves, without a device.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/cost/linear_cost.h"
#include "kernels/cuda/cuda_settings.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

// And the variants of LibTorch's operators that do the same products.
const std::vector<std::pair<const char*, const char*>> kPairs = {
    {"cublas-dense", "dense"}, {"cublas-sequential", "sequential"}, {"cublas-merged", "merged"}};

LinearProblem ProblemOn(Device device, const TtShape& shape, Phase phase, int64_t batch = 7) {
  return {shape, batch, phase, DType::kFloat32, 1, device};
}

TEST(CublasTest, RunsOnCudaOnly) {
  const TtShape shape = TtShape::Cube(3, 4, 2);
  for (const auto& [name, other] : kPairs) {
    const LinearVariant* variant = FindLinearVariant(name);
    ASSERT_NE(variant, nullptr) << name;
    EXPECT_EQ(variant->WhySkipped(ProblemOn(Device::kCpu, shape, Phase::kTrain)),
              "runs on CUDA devices only");
    EXPECT_EQ(variant->WhySkipped(ProblemOn(Device::kCuda, shape, Phase::kTrain)), "");
    EXPECT_NE(variant->WhySkipped(ProblemOn(Device::kCuda, shape, Phase::kTrain, 0)), "");
    EXPECT_THROW(variant->Forward(shape, at::ones({1, 64}), {}), c10::Error);
    EXPECT_EQ(FindLinearVariant(other)->WhySkipped(ProblemOn(Device::kCuda, shape, Phase::kTrain)),
              "");
  }
  EXPECT_EQ(FindLinearVariant("fused")->WhySkipped(ProblemOn(Device::kCuda, shape, Phase::kTrain)),
            "runs on the CPU only");
}

TEST(CublasTest, FlopsAreThoseOfTheCostModels) {
  for (const TtShape& shape : {TtShape::Cube(3, 16, 8), TtShape({2, 3, 5}, {3, 2, 4}, {2, 4}),
                               TtShape({5, 3}, {4, 7}, {6}),
                               TtShape({2, 3, 4, 2, 3, 2}, {2, 2, 4, 2, 2, 3}, {2, 3, 4, 3, 2}),
                               TtShape({5, 4, 3}, {1, 1, 1}, {2, 2})}) {
    for (const int64_t batch : {1, 7, 512}) {
      for (const Phase phase : {Phase::kInference, Phase::kTrain}) {
        for (const auto& [name, other] : kPairs) {
          const LinearProblem problem = ProblemOn(Device::kCuda, shape, phase, batch);
          EXPECT_EQ(PredictLinearCost(*FindLinearVariant(name), problem).flops,
                    PredictLinearCost(*FindLinearVariant(other), problem).flops)
              << name << " " << shape.modes_name() << " b" << batch << " " << Name(phase);
        }
      }
    }
  }
}

TEST(CublasTest, ModelCountsHeldScratchAndWorkspace) {
  const TtShape shape = TtShape::Cube(3, 16, 8);
  const int64_t batch = 128, rows = 4 * batch * shape.in_features();
  const GemmPlan plan = PlanSequential(shape, batch, DType::kFloat32, PlanFor::kTraining);
  const LinearVariant& variant = *FindLinearVariant("cublas-sequential");
  const LinearCost train =
      PredictLinearCost(variant, ProblemOn(Device::kCuda, shape, Phase::kTrain, batch));
  EXPECT_EQ(train.bytes.held, rows + plan.held_bytes);
  const int64_t workspace = kDefaultCublasWorkspaceBytes;
  EXPECT_EQ(train.bytes.forward_peak,
            plan.held_bytes + rows + workspace + plan.forward.scratch_bytes);
  EXPECT_EQ(train.bytes.backward_peak, plan.held_bytes + 3 * rows + 4 * shape.parameters() +
                                           workspace + plan.backward.scratch_bytes);
  const GemmPlan inference = PlanSequential(shape, batch, DType::kFloat32, PlanFor::kInference);
  EXPECT_EQ(PredictLinearCost(variant, ProblemOn(Device::kCuda, shape, Phase::kInference, batch))
                .bytes.forward_peak,
            rows + workspace + inference.forward.scratch_bytes);
}

}  // namespace
}  // namespace ttbench
