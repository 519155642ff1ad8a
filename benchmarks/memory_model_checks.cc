// Checks of the cost models of every variant linked beside them: each figure against LibTorch, to
// the byte. //benchmarks:memory_model_test is the repository's; ttbench_sweep() (defs.bzl) makes
// the test of anyone else's.

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/linear_workload.h"
#include "benchmarks/memory_meter.h"
#include "benchmarks/memory_pass.h"
#include "kernels/cost/linear_cost.h"

namespace ttbench {
namespace {

constexpr uint64_t kSeed = 1;

const std::vector<TtShape>& Shapes() {
  static const auto* shapes = new std::vector<TtShape>{
      TtShape::Cube(2, 6, 3),
      TtShape::Cube(3, 4, 2),
      TtShape::Cube(3, 4, 6),
      // Unequal modes and ranks, K = 2..6.
      TtShape({5, 3}, {4, 7}, {6}),
      TtShape({2, 3, 5}, {3, 2, 4}, {2, 4}),
      TtShape({5, 3, 2}, {4, 2, 3}, {4, 2}),
      TtShape({2, 3, 2, 3}, {3, 2, 4, 2}, {3, 4, 2}),
      TtShape({2, 3, 2, 3, 2}, {3, 2, 2, 2, 3}, {3, 4, 2, 5}),
      TtShape({2, 3, 4, 2, 3, 2}, {2, 2, 4, 2, 2, 3}, {2, 3, 4, 3, 2}),
      // Ranks of 1.
      TtShape({2, 3}, {3, 2}, {1}),
      TtShape({2, 3, 5}, {3, 2, 4}, {1, 1}),
      TtShape({2, 3, 5}, {3, 2, 4}, {1, 2}),
      TtShape({2, 3, 5, 2}, {3, 2, 4, 3}, {3, 1, 2}),
      // Modes of 1.
      TtShape({2, 1, 5}, {3, 2, 4}, {2, 3}),
      TtShape({1, 3, 5}, {3, 1, 4}, {2, 3}),
      TtShape({3, 1}, {1, 4}, {1}),
      TtShape({2, 3, 5, 1}, {1, 2, 4, 3}, {2, 1, 2}),
      TtShape({5, 4, 3}, {1, 1, 1}, {2, 2}),
      TtShape({1, 1, 1}, {5, 4, 3}, {2, 2}),
      TtShape({1, 1}, {1, 1}, {1}),
  };
  return *shapes;
}

std::string Label(const LinearProblem& problem) {
  return problem.shape.modes_name() + " ranks " + problem.shape.ranks_name() + " b" +
         std::to_string(problem.batch) + " " + Name(problem.phase) + " " + Name(problem.dtype);
}

// "" if all is the model's; else the sentence and the table for whoever completes the model.
std::string Difference(const LinearVariant& variant, const LinearProblem& problem,
                       const MeasuredMemory& measured) {
  const LinearCost model = PredictLinearCost(variant, problem);
  const std::string sentence =
      CompareWithModel(measured, model, variant.WhyPeaksUnmodelled(problem).empty());
  if (sentence.empty()) return "";
  return "'" + variant.name() + "' on " + Label(problem) + ": " + sentence + "\n" +
         ShowBesideModel(measured, model) +
         "  Name what is missing in its Trace(), or take it out of Forward().\n";
}

class MemoryModelTest : public testing::TestWithParam<const LinearVariant*> {
 protected:
  MemoryModelTest() { at::set_num_threads(1); }
  const LinearVariant& variant() const { return *GetParam(); }
};

TEST_P(MemoryModelTest, EqualsWhatIsMeasured) {
  int cases = 0;
  for (const TtShape& shape : Shapes()) {
    for (const int64_t batch : {1, 2, 7}) {
      for (const Phase phase : kPhases) {
        for (const DType dtype : kDTypes) {
          const LinearProblem problem{shape, batch, phase, dtype};
          if (!variant().WhySkipped(problem).empty()) continue;
          SCOPED_TRACE(Label(problem));
          ++cases;
          const bool exact = variant().WhyPeaksUnmodelled(problem).empty();
          const LinearCost model = PredictLinearCost(variant(), problem);
          const MeasuredMemory measured =
              MeasureMemory(LinearWorkload(variant(), problem), kSeed, 0);
          const std::string difference = Difference(variant(), problem, measured);
          ASSERT_TRUE(difference.empty()) << difference;
          if (exact) continue;
          auto expect_at_least = [](std::optional<int64_t> got, std::optional<int64_t> want) {
            EXPECT_EQ(got.has_value(), want.has_value());
            EXPECT_GE(got, want);
          };
          expect_at_least(measured.bytes.forward_peak, model.bytes.forward_peak);
          expect_at_least(measured.bytes.backward_peak, model.bytes.backward_peak);
          expect_at_least(measured.bytes.step_peak, model.bytes.step_peak);
          expect_at_least(measured.bytes.peak, model.bytes.peak);
        }
      }
    }
  }
  EXPECT_GT(cases, 0) << "the variant supports none of the shapes";
}

TEST_P(MemoryModelTest, EqualsWhatIsMeasuredOnTwoThreads) {
  at::set_num_threads(2);
  for (const Phase phase : {Phase::kInference, Phase::kTrain}) {
    const LinearProblem problem{TtShape::Cube(3, 8, 4), 64, phase, DType::kFloat32, /*threads=*/2};
    if (!variant().WhySkipped(problem).empty()) continue;
    const std::string difference =
        Difference(variant(), problem, MeasureMemory(LinearWorkload(variant(), problem), kSeed, 0));
    ASSERT_TRUE(difference.empty()) << difference;
  }
}

// Random layers, right and to the byte, from a fixed seed; a failure says how to run its cell
// alone.
TEST_P(MemoryModelTest, EqualsWhatIsMeasuredOnRandomLayers) {
  std::mt19937_64 random(13);
  auto between = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  for (int i = 0; i < 30; ++i) {
    const int64_t cores = between(2, 6), largest = cores <= 3 ? 9 : 4;
    Modes in(cores), out(cores);
    for (int64_t k = 0; k < cores; ++k) {
      in[k] = between(1, largest);
      out[k] = between(1, largest);
    }
    // Clipped where the modes allow less, so that ranks differ.
    const int64_t rank = between(1, 12);
    const Phase phase = between(0, 3) == 0 ? Phase::kInference : Phase::kTrain;
    const LinearProblem problem{TtShape::Uniform(in, out, rank), between(1, 40), phase,
                                kDTypes[between(0, kDTypes.size() - 1)],
                                std::array<int64_t, 4>{1, 2, 3, 8}[between(0, 3)]};
    if (!variant().WhySkipped(problem).empty()) continue;
    // A gradient of one element is a sum that may cancel, and in bfloat16 the roundings of its
    // terms are large beside it.
    bool single = false;
    for (int64_t k = 0; k < cores; ++k) single |= Product(problem.shape.CoreSizes(k)) == 1;
    if (single && problem.dtype == DType::kBFloat16) continue;
    SCOPED_TRACE("bazel run //benchmarks:sweep -- " +
                 LinearCell(variant().name(), problem, rank).Flags() +
                 " --seed=" + std::to_string(kSeed));
    at::set_num_threads(static_cast<int>(problem.threads));
    const LinearWorkload workload(variant(), problem, rank);
    const auto reference = workload.MakeReference(kSeed);
    const MeasuredMemory measured = MeasureMemory(workload, kSeed, 0, reference.get());
    const std::string difference = Difference(variant(), problem, measured);
    ASSERT_TRUE(difference.empty()) << difference;
    EXPECT_LE(measured.max_relative_error, Tolerance(problem));
  }
}

// Set-up, which for a dense weight takes twice its bytes, does not count.
TEST_P(MemoryModelTest, PeakIsTheLeastBudget) {
  for (const Phase phase : kPhases) {
    const LinearProblem problem{TtShape({2, 3, 5}, {3, 2, 4}, {2, 4}), 7, phase, DType::kFloat32};
    if (!variant().WhySkipped(problem).empty()) continue;
    if (!variant().WhyPeaksUnmodelled(problem).empty()) continue;
    SCOPED_TRACE(Label(problem));
    const int64_t peak = *PredictLinearCost(variant(), problem).bytes.peak;
    EXPECT_EQ(MeasureMemory(LinearWorkload(variant(), problem), kSeed, peak).bytes.peak, peak);
    EXPECT_THROW(MeasureMemory(LinearWorkload(variant(), problem), kSeed, peak - 1), OutOfBudget);
    EXPECT_THROW(MeasureMemory(LinearWorkload(variant(), problem), kSeed, 1), OutOfBudget);
  }
}

std::vector<const LinearVariant*> CpuVariants() {
  std::vector<const LinearVariant*> variants;
  for (const auto& variant : LinearVariants()) {
    if (variant->RunsOn(Device::kCpu)) variants.push_back(variant.get());
  }
  return variants;
}

INSTANTIATE_TEST_SUITE_P(Registry, MemoryModelTest, testing::ValuesIn(CpuVariants()),
                         [](const auto& info) {
                           std::string name = info.param->name();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ttbench
