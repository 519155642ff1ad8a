#include "kernels/linear/auto.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cost/linear_cost.h"
#include "kernels/cost/speed.h"

namespace ttbench {
namespace {

const LinearVariant& Variant(const char* name) { return *FindLinearVariant(name); }

int64_t Peak(const char* name, const LinearProblem& problem) {
  return *PredictLinearCost(Variant(name), problem).bytes.peak;
}

class AutoTest : public testing::Test {
 protected:
  void SetUp() override { MeasuredSpeeds().Clear(); }
  void TearDown() override { MeasuredSpeeds().Clear(); }
};

TEST_F(AutoTest, CandidatesNeedNoMoreMemoryThanDense) {
  for (int64_t batch : {1, 64, 4096}) {
    for (Phase phase : {Phase::kInference, Phase::kTrain}) {
      const LinearProblem problem{TtShape::Cube(3, 8, 4), batch, phase};
      const int64_t most = std::max(Peak("dense", problem), Peak("fused", problem));
      const auto candidates = AutoCandidates(problem);
      for (const LinearVariant* candidate : candidates) {
        EXPECT_LE(Peak(candidate->name().c_str(), problem), most) << candidate->name();
        EXPECT_FALSE(candidate->is_dense());
      }
      EXPECT_TRUE(std::count(candidates.begin(), candidates.end(), &Variant("fused")));
    }
  }
  // 2Br > d^3 by far: sequential holds more than the dense layer.
  const auto candidates = AutoCandidates({TtShape::Cube(3, 8, 4), 4096, Phase::kTrain});
  EXPECT_FALSE(std::count(candidates.begin(), candidates.end(), &Variant("sequential")));
}

TEST_F(AutoTest, PicksTheFastestByTheCalibratedRates) {
  LinearProblem problem{TtShape::Cube(3, 8, 4), 4, Phase::kInference};
  MeasuredSpeeds().Add({"fused", problem, 1e-3});
  MeasuredSpeeds().Add({"fused-panel", problem, 2e-3});
  EXPECT_EQ(PickLinearVariant(problem).name(), "fused");
  EXPECT_EQ(Variant("auto").Algorithm(problem), "fused: " + Variant("fused").Algorithm(problem));
  // At a larger batch the panel path, whose rebuilding does not grow with it, is the faster one.
  problem.batch = 256;
  MeasuredSpeeds().Add({"fused", problem, 64e-3});
  MeasuredSpeeds().Add({"fused-panel", problem, 8e-3});
  EXPECT_EQ(PickLinearVariant(problem).name(), "fused-panel");
  EXPECT_EQ(PickLinearVariant({problem.shape, 100'000, Phase::kInference}).name(), "fused-panel");
  EXPECT_EQ(PickLinearVariant({problem.shape, 1, Phase::kInference}).name(), "fused");
}

TEST_F(AutoTest, PicksNothingThatNeedsMoreMemoryHoweverFast) {
  const LinearProblem problem{TtShape::Cube(3, 8, 4), 4096, Phase::kTrain};
  MeasuredSpeeds().Add({"sequential", problem, 1e-6});
  MeasuredSpeeds().Add({"fused", problem, 1});
  EXPECT_EQ(PickLinearVariant(problem).name(), "fused");
}

TEST_F(AutoTest, AnOptimizerDoesNotChangeThePick) {
  LinearProblem problem{TtShape::Cube(3, 8, 4), 16, Phase::kTrain};
  MeasuredSpeeds().Add({"fused", problem, 2});
  MeasuredSpeeds().Add({"fused-panel", problem, 1});
  problem.phase = Phase::kStepAdam;
  EXPECT_EQ(PickLinearVariant(problem).name(), "fused-panel");
}

TEST_F(AutoTest, RunsAndModelsItsPick) {
  const TtShape shape({2, 3, 5}, {3, 2, 4}, {2, 4});
  at::set_num_threads(1);
  std::vector<at::Tensor> cores;
  for (int64_t k = 0; k < shape.cores(); ++k) cores.push_back(at::rand(shape.CoreSizes(k)));
  const at::Tensor x = at::rand({7, shape.in_features()});
  for (const char* picked : {"fused", "fused-panel", "sequential"}) {
    for (Phase phase : {Phase::kInference, Phase::kTrain}) {
      const LinearProblem problem{shape, 7, phase};
      MeasuredSpeeds().Clear();
      MeasuredSpeeds().Add({picked, problem, 1e-9});
      // What does not fit is not picked; this layer is small enough for scratch to decide.
      const auto candidates = AutoCandidates(problem);
      if (!std::count(candidates.begin(), candidates.end(), &Variant(picked))) continue;
      EXPECT_EQ(PickLinearVariant(problem).name(), picked);
      const LinearCost cost = PredictLinearCost(Variant("auto"), problem);
      const LinearCost expected = PredictLinearCost(Variant(picked), problem);
      EXPECT_EQ(cost.bytes.peak, expected.bytes.peak);
      EXPECT_EQ(cost.flops, expected.flops);
      if (phase == Phase::kTrain) continue;
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(at::equal(Variant("auto").Forward(shape, x, cores),
                            Variant(picked).Forward(shape, x, cores)));
    }
  }
}

}  // namespace
}  // namespace ttbench
