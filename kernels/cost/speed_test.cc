#include "kernels/cost/speed.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "kernels/variant.h"

namespace ttbench {
namespace {

const TtShape kShape = TtShape::Cube(3, 4, 2);

LinearProblem Problem(int64_t batch, Phase phase = Phase::kInference) {
  return {kShape, batch, phase, DType::kFloat32, 2};
}

double Flops(const char* variant, const LinearProblem& problem) {
  return static_cast<double>(PredictLinearCost(*FindLinearVariant(variant), problem).flops);
}

TEST(SpeedTest, ARateIsFlopsOverTime) {
  SpeedTable table;
  table.Add({"sequential", Problem(16), 1e-3});
  // B d^4 (r^2 + 2r) multiply-adds.
  const double flops = 2.0 * 16 * 256 * (4 + 4);
  EXPECT_NEAR(*table.Gflops("sequential", Problem(16)), flops / 1e-3 * 1e-9, 1e-12);
}

TEST(SpeedTest, RatesAreInterpolatedOverTheLogarithmOfTheBatch) {
  SpeedTable table;
  table.Add({"sequential", Problem(4), Flops("sequential", Problem(4)) / 10e9});
  table.Add({"sequential", Problem(64), Flops("sequential", Problem(64)) / 30e9});
  EXPECT_NEAR(*table.Gflops("sequential", Problem(4)), 10, 1e-9);
  EXPECT_NEAR(*table.Gflops("sequential", Problem(16)), 20, 1e-9);
  EXPECT_NEAR(*table.Gflops("sequential", Problem(64)), 30, 1e-9);
  // Beyond them the nearest holds.
  EXPECT_NEAR(*table.Gflops("sequential", Problem(1)), 10, 1e-9);
  EXPECT_NEAR(*table.Gflops("sequential", Problem(4096)), 30, 1e-9);
}

TEST(SpeedTest, OtherLayersPhasesAndThreadsHaveRatesOfTheirOwn) {
  SpeedTable table;
  table.Add({"sequential", Problem(4), 1e-3});
  EXPECT_TRUE(table.Knows(Problem(99)));
  EXPECT_FALSE(table.Gflops("naive", Problem(4)));
  EXPECT_FALSE(table.Knows(Problem(4, Phase::kTrain)));
  LinearProblem other = Problem(4);
  other.threads = 1;
  EXPECT_FALSE(table.Knows(other));
  other = Problem(4);
  other.dtype = DType::kFloat64;
  EXPECT_FALSE(table.Knows(other));
  other = Problem(4);
  other.shape = TtShape::Cube(3, 4, 3);
  EXPECT_FALSE(table.Knows(other));
}

TEST(SpeedTest, AnOptimizerDoesNotChangeTheLayersRate) {
  SpeedTable table;
  table.Add({"sequential", Problem(4, Phase::kTrain), 1e-3});
  EXPECT_EQ(table.Gflops("sequential", Problem(4, Phase::kStepAdam)),
            table.Gflops("sequential", Problem(4, Phase::kTrain)));
  EXPECT_THROW(table.Add({"sequential", Problem(4, Phase::kStepAdam), 1e-3}), std::logic_error);
}

TEST(SpeedTest, PredictsByTheMeasuredRateAndElseByThePlanningRate) {
  const LinearVariant& variant = *FindLinearVariant("sequential");
  const LinearCost cost = PredictLinearCost(variant, Problem(8));
  MeasuredSpeeds().Clear();
  const double planned = PredictSeconds(variant, Problem(8), cost);
  EXPECT_GT(planned, static_cast<double>(cost.flops) / (variant.planning_gflops() * 2e9));
  MeasuredSpeeds().Add({"sequential", Problem(8), 0.25});
  EXPECT_NEAR(PredictSeconds(variant, Problem(8), cost), 0.25, 1e-12);
  EXPECT_NEAR(PredictSeconds(variant, Problem(16), PredictLinearCost(variant, Problem(16))), 0.5,
              1e-12);
  MeasuredSpeeds().Clear();
  EXPECT_EQ(PredictSeconds(variant, Problem(8), cost), planned);
}

}  // namespace
}  // namespace ttbench
