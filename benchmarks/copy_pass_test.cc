// The copies of every variant are those of its cost model, one by one.
#include "benchmarks/copy_pass.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/linear_workload.h"
#include "kernels/cost/linear_cost.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

constexpr uint64_t kSeed = 3;

MeasuredCopies Measure(const std::string& variant, const LinearProblem& problem) {
  return MeasureCopies(LinearWorkload(*FindLinearVariant(variant), problem), kSeed);
}

int64_t BytesOf(const MeasuredCopies& measured, Origin origin) {
  int64_t bytes = 0;
  for (const RecordedCopy& copy : measured.copies) bytes += copy.origin == origin ? copy.bytes : 0;
  return bytes;
}

TEST(CopyPassTest, EveryVariantCopiesWhatItsModelSays) {
  at::set_num_threads(1);
  for (const auto& variant : LinearVariants()) {
    for (const TtShape& shape :
         {TtShape({2, 3, 5}, {3, 2, 4}, {4, 6}), TtShape::Cube(2, 4, 3), TtShape::Cube(3, 4, 4),
          TtShape({2, 3, 2, 4}, {3, 2, 2, 2}, {3, 5, 4}), TtShape::Cube(3, 8, 8)}) {
      for (const int64_t batch : {1, 7, 64}) {
        for (const Phase phase : {Phase::kInference, Phase::kTrain}) {
          for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
            const LinearProblem problem{shape, batch, phase, dtype};
            if (!variant->WhyUnsupported(problem).empty()) continue;
            EXPECT_EQ(CompareCopies(Measure(variant->name(), problem),
                                    PredictLinearCost(*variant, problem)),
                      "")
                << variant->name() << " " << shape.modes_name() << " b" << batch << " "
                << Name(phase);
          }
        }
      }
    }
  }
}

// Three cubic cores forward: both running tensors of r B d^3 are permuted, and y; so is every core.
TEST(CopyPassTest, SequentialCopiesWhatItPermutes) {
  at::set_num_threads(1);
  constexpr int64_t d = 8, r = 4, batch = 16, cube = batch * d * d * d;
  const MeasuredCopies measured =
      Measure("sequential", {TtShape::Cube(3, d, r), batch, Phase::kInference, DType::kFloat64});
  EXPECT_EQ(BytesOf(measured, Origin::kActivation), 8 * (2 * r + 1) * cube);
  EXPECT_EQ(BytesOf(measured, Origin::kParameter), 8 * d * d * (r * r + 2 * r));
  EXPECT_EQ(BytesOf(measured, Origin::kInput), 0);
}

TEST(CopyPassTest, TensordotCopiesX) {
  at::set_num_threads(1);
  constexpr int64_t d = 8, r = 4, batch = 16, cube = batch * d * d * d;
  const MeasuredCopies measured =
      Measure("sequential-l2r", {TtShape::Cube(3, d, r), batch, Phase::kTrain, DType::kFloat32});
  EXPECT_EQ(BytesOf(measured, Origin::kInput), 4 * cube);
  const auto copy = std::find_if(measured.copies.begin(), measured.copies.end(),
                                 [](const auto& c) { return c.origin == Origin::kInput; });
  EXPECT_TRUE(copy->held);
  EXPECT_FALSE(copy->in_backward);
  EXPECT_EQ(copy->chain.front(), "tensordot");
  EXPECT_EQ(copy->chain.back(), "copy_");
  EXPECT_EQ(copy->consumer.op, "mm");
}

TEST(CopyPassTest, FusedCopiesNothingButPacksItsCores) {
  at::set_num_threads(1);
  const MeasuredCopies measured =
      Measure("fused", {TtShape::Cube(3, 8, 4), 16, Phase::kTrain, DType::kFloat32});
  EXPECT_TRUE(measured.copies.empty());
  // Packed cores and tiles in both passes, and the cores' gradients backward.
  EXPECT_EQ(measured.scratch.size(), 5u);
  EXPECT_EQ(measured.computed_flops, 0);
}

TEST(CopyPassTest, CountsWhatAProductReadsAndWrites) {
  at::set_num_threads(1);
  const LinearProblem problem{TtShape::Cube(2, 4, 2), 8, Phase::kInference, DType::kFloat32};
  const MeasuredCopies measured = Measure("dense", problem);
  EXPECT_TRUE(measured.copies.empty());
  EXPECT_TRUE(measured.scratch.empty());
  EXPECT_EQ(measured.computed_bytes, 4 * (8 * 16 + 16 * 16 + 8 * 16));
  EXPECT_EQ(measured.computed_flops, 2 * 8 * 16 * 16);
}

// Two models of the same copies: of one more, and of other bytes.
TEST(CopyPassTest, SaysWhichCopyIsNotTheModels) {
  at::set_num_threads(1);
  const LinearProblem problem{TtShape::Cube(2, 4, 2), 8, Phase::kInference, DType::kFloat32};
  const MeasuredCopies measured = Measure("sequential", problem);
  CellCost model = PredictLinearCost(*FindLinearVariant("sequential"), problem);
  ASSERT_EQ(CompareCopies(measured, model), "");
  model.copies.push_back({"T1", "y", 8, 0, 1});
  EXPECT_NE(CompareCopies(measured, model).find("measured none, model 8 bytes"), std::string::npos);
  model.copies.pop_back();
  model.copies.front().bytes += 4;
  EXPECT_EQ(CompareCopies(measured, model).find("copy 1 is not the model's"), 0u);
}

}  // namespace
}  // namespace ttbench
