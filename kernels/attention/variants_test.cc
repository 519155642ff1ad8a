// Every registered variant: outputs and gradients are the oracle's, measured bytes are the model's,
// in every phase and precision, at the sizes where code paths change.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/attention_run.h"
#include "benchmarks/attention_workload.h"
#include "benchmarks/memory_pass.h"
#include "kernels/attention/attention_cost.h"
#include "kernels/attention/variant.h"

namespace ttbench {
namespace {

constexpr uint64_t kSeed = 3;

std::vector<AttentionProblem> Problems() {
  std::vector<AttentionProblem> problems;
  // L, T, H, layers, B.
  for (const auto& [l, t, h, n, b] : std::vector<std::array<int64_t, 5>>{{7, 4, 12, 0, 3},
                                                                         {1, 4, 12, 0, 3},
                                                                         {7, 1, 12, 0, 3},
                                                                         {7, 4, 12, 0, 1},
                                                                         {1, 1, 1, 0, 1},
                                                                         {1, 1, 5, 0, 2},
                                                                         {60, 3, 64, 0, 5},
                                                                         {3, 40, 20, 0, 2},
                                                                         {5, 3, 8, 1, 3},
                                                                         {1, 1, 4, 2, 1},
                                                                         {4, 5, 16, 2, 2}}) {
    AttentionProblem problem;
    problem.source_len = l;
    problem.target_len = t;
    problem.hidden = h;
    problem.layers = n;
    problem.batch = b;
    problems.push_back(problem);
  }
  return problems;
}

class AttentionVariantTest : public testing::TestWithParam<const AttentionVariant*> {
 protected:
  const AttentionVariant& variant() const { return *GetParam(); }

  // Calls check(problem) for every supported one.
  template <typename Check>
  void ForEachProblem(const Check& check) const {
    int cases = 0;
    for (AttentionProblem problem : Problems()) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
        for (const Phase phase : kPhases) {
          problem.dtype = dtype;
          problem.phase = phase;
          if (!variant().WhySkipped(problem).empty()) continue;
          SCOPED_TRACE(SizeName(problem) + " b" + std::to_string(problem.batch) + " " +
                       Name(phase) + " " + Name(dtype));
          ++cases;
          check(problem);
        }
      }
    }
    EXPECT_GE(cases, 8 * 2 * 4);
  }
};

TEST_P(AttentionVariantTest, ResultsAreTheOraclesAndBytesTheModels) {
  at::set_num_threads(1);
  ForEachProblem([&](const AttentionProblem& problem) {
    const AttentionReference reference = MakeAttentionReference(variant(), problem, kSeed);
    const MeasuredMemory measured =
        MeasureMemory(AttentionWorkload(variant(), problem), kSeed, 0, &reference);
    EXPECT_LE(measured.max_relative_error, Tolerance(problem));
    EXPECT_EQ(CompareWithModel(measured, PredictAttentionCost(variant(), problem)), "");
  });
}

// Three threads share batches of 1, 2, 3 and 5 in each of the ways there are; training allocates
// most.
TEST_P(AttentionVariantTest, BytesAreTheModelsOnMoreThreads) {
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    ForEachProblem([&](AttentionProblem problem) {
      if (threads > 2 && problem.phase != Phase::kTrain) return;
      problem.threads = threads;
      const MeasuredMemory measured =
          MeasureMemory(AttentionWorkload(variant(), problem), kSeed, 0);
      EXPECT_EQ(CompareWithModel(measured, PredictAttentionCost(variant(), problem)), "");
    });
  }
  at::set_num_threads(1);
}

// Sequences after the first, which find their buffers there, give the same bits.
TEST_P(AttentionVariantTest, RepeatsBitForBit) {
  at::set_num_threads(2);
  AttentionProblem problem{5, 3, 24, 0, 4, Phase::kTrain, DType::kFloat32, 2};
  AttentionRun run(variant(), problem, kSeed);
  std::vector<std::vector<at::Tensor>> results;
  for (int sequence = 0; sequence < 2; ++sequence) {
    std::vector<at::Tensor>& result = results.emplace_back();
    const PhaseRun::Tensors y = run.Forward();
    for (const at::Tensor& part : y) result.push_back(part.detach().clone());
    run.Backward(y, run.MakeDy(nullptr));
    for (const PhaseRun::Tensors* leaves : {&run.inputs(), &run.parameters()})
      for (const at::Tensor& leaf : *leaves) result.push_back(leaf.grad().clone());
    run.ClearGradients();
  }
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_TRUE(results[0][i].equal(results[1][i])) << i;
  }
  at::set_num_threads(1);
}

TEST_P(AttentionVariantTest, SaysWhatItDoesNotSupport) {
  AttentionProblem problem{5, 3, 24, 0, 4, Phase::kTrain, DType::kBFloat16, 1};
  EXPECT_NE(variant().WhySkipped(problem), "");
  problem.dtype = DType::kFloat32;
  EXPECT_EQ(variant().WhySkipped(problem), "");
  EXPECT_FALSE(variant().Algorithm(problem).empty());
}

std::vector<const AttentionVariant*> All() {
  std::vector<const AttentionVariant*> all;
  for (const auto& variant : AttentionVariants()) all.push_back(variant.get());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Registry, AttentionVariantTest, testing::ValuesIn(All()),
                         [](const auto& variant) {
                           std::string name = variant.param->name();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(AttentionRegistryTest, HoldsTheFamily) {
  std::set<std::string> names;
  for (const auto& variant : AttentionVariants()) names.insert(variant->name());
  EXPECT_EQ(names, (std::set<std::string>{"additive", "additive-checkpointed", "autograd",
                                          "batched", "clones", "clones-reuse", "fused-additive",
                                          "fused-additive-batched", "prealloc-all", "prealloc-mm",
                                          "prealloc-proven", "sdpa", "sdpa-batched"}));
  EXPECT_EQ(AttentionVariants().front()->name(), kAttentionBaseline);
}

int64_t PeakOf(const std::string& variant, const AttentionProblem& problem) {
  return *PredictAttentionCost(*FindAttentionVariant(variant), problem).bytes.peak;
}

// The thread's size: 64 x 52 x 600 elements in each of 52 clones, 415.3 MB in float32; the 830 MB
// that the thread gives is the size in float64. Sharing leaves one of 52.
TEST(ThreadTest, SavingOfTheFirstPatch) {
  for (const auto& [dtype, megabytes] :
       {std::pair(DType::kFloat32, 415.3), std::pair(DType::kFloat64, 830.7)}) {
    const AttentionProblem problem{52, 52, 600, 0, 64, Phase::kTrain, dtype, 1};
    const int64_t variable_bytes = 52 * problem.context_elements() * ElementBytes(dtype);
    EXPECT_NEAR(static_cast<double>(variable_bytes) * 1e-6, megabytes, 0.05);
    // Beside the two variables each product has a gradInput of its other operand.
    const int64_t small_bytes = 64 * (600 + 52) * ElementBytes(dtype);
    EXPECT_EQ(PeakOf("clones", problem) - PeakOf("prealloc-mm", problem),
              51 * (2 * variable_bytes / 52 + small_bytes));
  }
}

// What each step adds, in float32: the clones three tensors of the context's size, the first patch
// and its sequel one, nngraph's sum; the rest none.
TEST(ThreadTest, GrowthWithTheSteps) {
  AttentionProblem problem{52, 10, 600, 0, 64, Phase::kTrain, DType::kFloat32, 1};
  const int64_t context_bytes = 4 * problem.context_elements();
  auto tensors_a_step = [&](const std::string& variant) {
    problem.target_len = 10;
    const int64_t before = PeakOf(variant, problem);
    problem.target_len = 20;
    return static_cast<double>(PeakOf(variant, problem) - before) / 10 /
           static_cast<double>(context_bytes);
  };
  // Beside these, tensors of [B, H] and [B, L]: 1/52 of the context's size each, or less.
  const struct {
    const char* variant;
    double tensors;
  } expected[] = {{"clones", 3},        {"prealloc-mm", 1},     {"prealloc-all", 1},
                  {"autograd", 0},      {"prealloc-proven", 0}, {"batched", 0},
                  {"sdpa", 0},          {"additive", 1},        {"additive-checkpointed", 0},
                  {"fused-additive", 0}};
  for (const auto& e : expected) {
    const double got = tensors_a_step(e.variant);
    EXPECT_GE(got, e.tensors) << e.variant;
    EXPECT_LT(got, e.tensors + 0.5) << e.variant;
  }
}

}  // namespace
}  // namespace ttbench
