#include "benchmarks/crossover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>

#include "benchmarks/linear_workload.h"
#include "kernels/cost/linear_cost.h"

namespace ttbench {
namespace {

// Above from `first` on; asks are counted and must lie in [1, max_batch].
class Threshold {
 public:
  Threshold(int64_t first, int64_t max_batch) : first_(first), max_batch_(max_batch) {}

  IsAbove Asked() {
    return [this](int64_t batch) -> std::optional<bool> {
      EXPECT_GE(batch, 1);
      EXPECT_LE(batch, max_batch_);
      ++asked_;
      return batch >= first_;
    };
  }
  int64_t asked() const { return asked_; }

 private:
  int64_t first_, max_batch_, asked_ = 0;
};

// The number of binary digits.
int64_t Digits(int64_t value) {
  int64_t digits = 0;
  for (; value > 0; value /= 2) ++digits;
  return digits;
}

TEST(FindFirstTest, IsTheFirstOfAll) {
  for (int64_t max_batch : {1, 2, 3, 7, 8, 20}) {
    for (int64_t first = 1; first <= max_batch + 2; ++first) {
      for (int64_t start = 0; start <= max_batch + 2; ++start) {
        SCOPED_TRACE(std::to_string(first) + " from " + std::to_string(start) + " up to " +
                     std::to_string(max_batch));
        Threshold threshold(first, max_batch);
        int64_t probes = 0;
        const auto found = FindFirst(threshold.Asked(), start, max_batch, &probes);
        EXPECT_EQ(found, first <= max_batch ? std::optional(first) : std::nullopt);
        EXPECT_EQ(probes, threshold.asked());
      }
    }
  }
}

// Doubling away from the start and halving back: about twice the digits of the distance.
TEST(FindFirstTest, TakesFewProbes) {
  std::mt19937_64 random(7);
  constexpr int64_t kMaxBatch = int64_t{1} << 40;
  for (int i = 0; i < 1000; ++i) {
    const int64_t first = 1 + static_cast<int64_t>(random() % (uint64_t{1} << (1 + i % 40)));
    const int64_t start = 1 + static_cast<int64_t>(random() % (uint64_t{1} << (1 + i / 7 % 40)));
    Threshold threshold(first, kMaxBatch);
    int64_t probes = 0;
    EXPECT_EQ(FindFirst(threshold.Asked(), start, kMaxBatch, &probes), first);
    EXPECT_LE(probes, 2 * Digits(std::abs(first - start)) + 2) << first << " from " << start;
  }
}

TEST(FindFirstTest, TakesTwoProbesWhereTheStartIsRight) {
  for (int64_t first : {2, 17, 1000}) {
    int64_t probes = 0;
    EXPECT_EQ(FindFirst(Threshold(first, 4096).Asked(), first, 4096, &probes), first);
    EXPECT_EQ(probes, 2);
  }
}

TEST(FindFirstTest, AddsToTheProbesBefore) {
  int64_t probes = 10;
  FindFirst(Threshold(1, 8).Asked(), 1, 8, &probes);
  EXPECT_EQ(probes, 11);
}

// What it finds is right whatever batches cannot be measured, and it gives up rather than guess.
TEST(FindFirstTest, GivesUpWhereItIsNotAnswered) {
  for (int64_t first = 1; first <= 12; ++first) {
    for (int64_t start = 1; start <= 12; ++start) {
      for (int64_t dumb = 1; dumb <= 12; ++dumb) {
        bool asked_in_vain = false;
        auto is_above = [&](int64_t batch) -> std::optional<bool> {
          if (batch != dumb) return batch >= first;
          asked_in_vain = true;
          return std::nullopt;
        };
        int64_t probes = 0;
        const auto found = FindFirst(is_above, start, 12, &probes);
        EXPECT_EQ(found, asked_in_vain ? std::nullopt : std::optional(first))
            << first << " from " << start << " without " << dumb;
        // Nobody can tell without asking on both sides.
        EXPECT_TRUE(asked_in_vain || (dumb != first && dumb != first - 1));
      }
    }
  }
}

Cell CellOf(const std::string& variant, const TtShape& shape, Phase phase) {
  return LinearCell(variant, {shape, 1, phase}, shape.uniform_rank());
}

TEST(ClaimedCrossoverTest, IsTheSmallestBatchOfTheLaw) {
  for (int64_t d = 2; d <= 12; ++d) {
    for (int64_t r = 1; r <= d * d; ++r) {
      int64_t smallest = 1;
      while (2 * smallest * r <= d * d * d) ++smallest;
      EXPECT_EQ(ClaimedCrossover(TtShape::Cube(3, d, r)), smallest) << "d " << d << " r " << r;
    }
  }
}

TEST(ClaimedCrossoverTest, IsForCubesOfThreeCoresAndOneRank) {
  EXPECT_EQ(ClaimedCrossover(TtShape::Cube(4, 4, 2)), std::nullopt);
  EXPECT_EQ(ClaimedCrossover(TtShape::Cube(2, 4, 2)), std::nullopt);
  EXPECT_EQ(ClaimedCrossover(TtShape({4, 4, 4}, {4, 4, 4}, {2, 3})), std::nullopt);
  EXPECT_EQ(ClaimedCrossover(TtShape::Parse("4x4x4:4x4x5", 2)), std::nullopt);
}

// `sequential` holds x, 2 r B d^3 elements of intermediates, and a permuted copy of each core; the
// weights are d^2 (r^2 + 2r). They pass the dense layer's d^6 + B d^3 at the smallest B with
//   2 d^2 (r^2 + 2r) + 2 r B d^3 > d^6.
TEST(ModelCrossoverTest, OfHeldBytesIsTheFormulas) {
  for (int64_t d : {3, 4, 8, 16}) {
    for (int64_t r = 2; r <= d; ++r) {
      int64_t smallest = 1;
      while (2 * d * d * (r * r + 2 * r) + 2 * r * smallest * d * d * d <= d * d * d * d * d * d) {
        ++smallest;
      }
      const Cell cell = CellOf("sequential", TtShape::Cube(3, d, r), Phase::kTrain);
      EXPECT_EQ(ModelCrossover(cell, CrossoverMetric::kHeld), smallest) << "d " << d << " r " << r;
    }
  }
}

TEST(ModelCrossoverTest, OfThePeakIsWhereTheModelsCross) {
  const LinearVariant& dense = *FindLinearVariant(kBaselineVariant);
  const LinearVariant& sequential = *FindLinearVariant("sequential");
  for (Phase phase : kPhases) {
    const Cell cell = CellOf("sequential", TtShape::Cube(3, 4, 2), phase);
    auto is_above = [&](int64_t batch) {
      LinearProblem problem = LinearOf(cell).problem();
      problem.batch = batch;
      return *PredictLinearCost(sequential, problem).bytes.peak >
             *PredictLinearCost(dense, problem).bytes.peak;
    };
    int64_t smallest = 1;
    while (!is_above(smallest) && smallest < 1000) ++smallest;
    ASSERT_LT(smallest, 1000);
    EXPECT_EQ(ModelCrossover(cell, CrossoverMetric::kPeak), smallest) << Name(phase);
  }
}

TEST(ModelCrossoverTest, IsNoneWhereNothingIsHeld) {
  const Cell cell = CellOf("sequential", TtShape::Cube(3, 4, 2), Phase::kInference);
  EXPECT_EQ(ModelCrossover(cell, CrossoverMetric::kHeld), std::nullopt);
}

TEST(ModelCrossoverTest, DenseDoesNotPassItself) {
  const Cell cell = CellOf(kBaselineVariant, TtShape::Cube(3, 4, 2), Phase::kTrain);
  EXPECT_EQ(ModelCrossover(cell, CrossoverMetric::kHeld), std::nullopt);
  EXPECT_EQ(ModelCrossover(cell, CrossoverMetric::kPeak), std::nullopt);
}

TEST(MetricOfTest, AddsWhatIsHeldToTheWeights) {
  MemoryFigures figures;
  EXPECT_EQ(MetricOf(figures, CrossoverMetric::kPeak), std::nullopt);
  figures.weight = 100;
  EXPECT_EQ(MetricOf(figures, CrossoverMetric::kHeld), std::nullopt);
  figures.held = 23;
  figures.peak = 7000;
  EXPECT_EQ(MetricOf(figures, CrossoverMetric::kHeld), 123);
  EXPECT_EQ(MetricOf(figures, CrossoverMetric::kPeak), 7000);
}

// d = 4, r = 2: the formula above gives B > (4096 - 256) / 256 = 15.
class FindCrossoverTest : public testing::Test {
 protected:
  static Crossover Find(int64_t measured, int64_t max_batch) {
    return FindCrossover(CellOf("sequential", TtShape::Cube(3, 4, 2), Phase::kTrain),
                         CrossoverMetric::kHeld, Threshold(measured, max_batch).Asked(), max_batch,
                         std::min<int64_t>(max_batch, 8));
  }
};

TEST_F(FindCrossoverTest, MeasuresWhatTheModelSays) {
  const Crossover crossover = Find(16, 1024);
  EXPECT_EQ(crossover.verdict, "measured");
  EXPECT_EQ(crossover.batch, 16);
  EXPECT_EQ(crossover.model_batch, 16);
  EXPECT_EQ(crossover.probes, 2);
}

TEST_F(FindCrossoverTest, KeepsWhatIsMeasuredApartFromTheModel) {
  for (int64_t measured : {2, 15, 17, 900}) {
    const Crossover crossover = Find(measured, 1024);
    EXPECT_EQ(crossover.verdict, "measured");
    EXPECT_EQ(crossover.batch, measured);
    EXPECT_EQ(crossover.model_batch, 16);
  }
}

TEST_F(FindCrossoverTest, AlwaysAbove) {
  const Crossover crossover = Find(1, 1024);
  EXPECT_EQ(crossover.verdict, "always");
  EXPECT_EQ(crossover.batch, 1);
}

TEST_F(FindCrossoverTest, BeyondTheLargestBatch) {
  const Crossover crossover = Find(16, 15);
  EXPECT_EQ(crossover.verdict, "beyond");
  EXPECT_EQ(crossover.batch, std::nullopt);
  EXPECT_EQ(crossover.model_batch, 16);
}

TEST_F(FindCrossoverTest, AProbeWithoutAnAnswerIsNoVerdict) {
  const IsAbove no_answer = [](int64_t) { return std::optional<bool>(); };
  for (int64_t max_batch : {15, 1024}) {
    const Crossover crossover =
        FindCrossover(CellOf("sequential", TtShape::Cube(3, 4, 2), Phase::kTrain),
                      CrossoverMetric::kHeld, no_answer, max_batch, 8);
    EXPECT_EQ(crossover.verdict, "unmeasured");
    EXPECT_EQ(crossover.batch, std::nullopt);
    EXPECT_EQ(crossover.model_batch, 16);
  }
}

TEST_F(FindCrossoverTest, Never) {
  const Crossover crossover =
      FindCrossover(CellOf(kBaselineVariant, TtShape::Cube(3, 4, 2), Phase::kTrain),
                    CrossoverMetric::kPeak, Threshold(1025, 1024).Asked(), 1024, 64);
  EXPECT_EQ(crossover.verdict, "never");
  EXPECT_EQ(crossover.batch, std::nullopt);
  EXPECT_EQ(crossover.model_batch, std::nullopt);
}

}  // namespace
}  // namespace ttbench
