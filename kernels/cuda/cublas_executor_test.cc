// What the executor asks cuBLAS for is what the plan says: cuBLAS replaced by column-major loops on
// the host (cublas_on_host.cc), the results must be the very ones of the host executor, but for the
// order of sums.
#include "kernels/cuda/cublas_executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/host_executor.h"

namespace ttbench {
namespace {

// Every buffer of a plan, in doubles.
struct Tensors {
  Tensors(const GemmPlan& plan, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    parameters.resize(8);
    gradients.resize(8);
    auto fill = [&](std::vector<double>* values, int64_t count, bool is_input) {
      values->resize(static_cast<size_t>(count), std::nan(""));
      if (!is_input) return;
      for (double& value : *values) value = uniform(random);
    };
    for (const PlanBuffer& buffer : plan.buffers) {
      const auto index = static_cast<size_t>(buffer.index);
      if (buffer.place == Place::kX) fill(&x, buffer.elements, true);
      if (buffer.place == Place::kDy) fill(&dy, buffer.elements, true);
      if (buffer.place == Place::kY) fill(&y, buffer.elements, false);
      if (buffer.place == Place::kDx) fill(&dx, buffer.elements, false);
      if (buffer.place == Place::kParameter) fill(&parameters[index], buffer.elements, true);
      if (buffer.place == Place::kParameterGradient)
        fill(&gradients[index], buffer.elements, false);
    }
    fill(&held, plan.held_bytes / 8 + 1, false);
    fill(&forward_scratch, plan.forward.scratch_bytes / 8 + 1, false);
    fill(&backward_scratch, plan.backward.scratch_bytes / 8 + 1, false);
  }
  PlanPointers Pointers(std::vector<double>* scratch) {
    PlanPointers pointers;
    pointers.x = x.data();
    pointers.y = y.data();
    pointers.dy = dy.data();
    pointers.dx = dx.data();
    for (size_t i = 0; i < parameters.size(); ++i) {
      pointers.parameters.push_back(parameters[i].data());
      pointers.parameter_gradients.push_back(gradients[i].data());
    }
    pointers.held = held.data();
    pointers.scratch = scratch->data();
    return pointers;
  }
  // y, dx and all gradients, one after the other.
  std::vector<double> Results() const {
    std::vector<double> results = y;
    results.insert(results.end(), dx.begin(), dx.end());
    for (const std::vector<double>& gradient : gradients)
      results.insert(results.end(), gradient.begin(), gradient.end());
    return results;
  }

  std::vector<double> x, y, dy, dx, held, forward_scratch, backward_scratch;
  std::vector<std::vector<double>> parameters, gradients;
};

void ExpectWhatThePlanSays(const GemmPlan& plan) {
  Tensors right(plan, 3);
  RunOnHost(plan, plan.forward, right.Pointers(&right.forward_scratch));
  RunOnHost(plan, plan.backward, right.Pointers(&right.backward_scratch));
  const std::vector<double> want = right.Results();
  for (const bool lt : {false, true}) {
    Tensors tensors(plan, 3);
    CublasExecutor executor;
    const CublasOptions options{false, lt, nullptr, 0};
    executor.Run(plan, plan.forward, tensors.Pointers(&tensors.forward_scratch), options, nullptr);
    executor.Run(plan, plan.backward, tensors.Pointers(&tensors.backward_scratch), options,
                 nullptr);
    const std::vector<double> got = tensors.Results();
    ASSERT_EQ(got.size(), want.size());
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double difference = std::abs(got[i] - want[i]);
      worst = std::isfinite(difference) ? std::max(worst, difference) : HUGE_VAL;
    }
    EXPECT_LE(worst, 1e-11) << plan.layer << (lt ? " by cublasLt" : "");
  }
}

TEST(CublasExecutorTest, AsksForWhatThePlanSays) {
  std::mt19937_64 random(23);
  auto draw = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int i = 0; i < 60; ++i) {
    const int64_t cores = 1 + draw(5);
    Modes in, out, ranks;
    for (int64_t k = 0; k < cores; ++k) {
      in.push_back(draw(cores < 4 ? 7 : 3));
      out.push_back(draw(cores < 4 ? 7 : 3));
      if (k > 0) ranks.push_back(draw(6));
    }
    const TtShape shape(in, out, ranks);
    const int64_t batch = draw(9);
    ExpectWhatThePlanSays(PlanSequential(shape, batch, DType::kFloat64, PlanFor::kTraining));
    ExpectWhatThePlanSays(PlanMerged(shape, batch, DType::kFloat64, PlanFor::kTraining));
    ExpectWhatThePlanSays(PlanDense(draw(9), draw(9), batch, DType::kFloat64, PlanFor::kTraining));
  }
}

TEST(CublasExecutorTest, SplitBatchesAndSlices) {
  ExpectWhatThePlanSays(PlanSequential(TtShape::Cube(2, 2, 2), kMaxBatchCount + 4000,
                                       DType::kFloat64, PlanFor::kTraining));
}

TEST(CublasExecutorTest, SaysWhichStepFailed) {
  GemmPlan plan = PlanDense(3, 4, 2, DType::kFloat64, PlanFor::kInference);
  std::get<GemmStep>(plan.forward.steps[0]).a.ld = 1;
  Tensors tensors(plan, 3);
  try {
    CublasExecutor().Run(plan, plan.forward, tensors.Pointers(&tensors.forward_scratch), {},
                         nullptr);
    FAIL() << "accepted a leading dimension that cuBLAS refuses";
  } catch (const CudaFailure& error) {
    EXPECT_EQ(std::string(error.what()),
              "cublasGemmStridedBatchedEx for 'y' of dense 4:3 b2 failed: invalid value");
  }
}

}  // namespace
}  // namespace ttbench
