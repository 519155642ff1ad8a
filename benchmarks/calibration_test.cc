#include "benchmarks/calibration.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

#include "kernels/linear/auto.h"

namespace ttbench {
namespace {

const LinearVariant& Variant(const char* name) { return *FindLinearVariant(name); }

CalibrationOptions Options(std::vector<const LinearVariant*> variants) {
  CalibrationOptions options;
  options.variants = [variants](const LinearProblem&) { return variants; };
  return options;
}

const LinearProblem kLayer{TtShape::Cube(3, 4, 2), 999, Phase::kTrain, DType::kFloat32, 1};

TEST(CalibrationTest, TimesEachVariantAtEachBatch) {
  CalibrationOptions options = Options({&Variant("fused"), &Variant("dense")});
  options.only_contenders = false;
  std::map<std::string, std::set<int64_t>> batches;
  for (const SpeedSample& sample : CalibrateLayer(kLayer, options)) {
    EXPECT_GT(sample.seconds, 0);
    EXPECT_TRUE(sample.problem.shape == kLayer.shape);
    EXPECT_EQ(sample.problem.phase, Phase::kTrain);
    batches[sample.variant].insert(sample.problem.batch);
  }
  const std::set<int64_t> all(std::begin(kCalibrationBatches), std::end(kCalibrationBatches));
  EXPECT_EQ(batches["fused"], all);
  EXPECT_EQ(batches["dense"], all);
}

TEST(CalibrationTest, LeavesOutWhatCannotBeTheFastest) {
  CalibrationOptions options = Options({&Variant("fused"), &Variant("dense")});
  // A machine so slow that dense's FLOPs alone take an age, and fused is found much faster.
  LinearProblem layer = kLayer;
  layer.phase = Phase::kInference;
  const double dense_flops =
      static_cast<double>(PredictLinearCost(Variant("dense"), {layer.shape, 1}).flops);
  options.peak_gflops["float32/t1"] = dense_flops / 0.9e9;
  for (const SpeedSample& sample : CalibrateLayer(layer, options)) {
    EXPECT_EQ(sample.variant, "fused");
  }
}

TEST(CalibrationTest, StaysWithinTheMemoryGiven) {
  CalibrationOptions options = Options({&Variant("fused")});
  LinearProblem at_16 = kLayer;
  at_16.batch = 16;
  options.memory_bytes = *PredictLinearCost(Variant("fused"), at_16).bytes.peak;
  for (const SpeedSample& sample : CalibrateLayer(kLayer, options)) {
    EXPECT_LE(sample.problem.batch, 16);
  }
}

class Ill : public LinearVariant {
 public:
  std::string name() const override { return "test-ill"; }
  std::string Algorithm(const LinearProblem&) const override { return ""; }
  at::Tensor Forward(const TtShape&, const at::Tensor&, at::TensorList) const override {
    std::raise(SIGKILL);
    std::abort();
  }
  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    return Variant("fused").Trace(tape, shape, x, cores);
  }
};

TEST(CalibrationTest, AVariantThatDiesTakesNoOtherWithIt) {
  const Ill ill;
  const auto samples = CalibrateLayer(kLayer, Options({&ill, &Variant("fused")}));
  EXPECT_FALSE(samples.empty());
  for (const SpeedSample& sample : samples) EXPECT_EQ(sample.variant, "fused");
}

TEST(CalibrationTest, TheTableReadsBack) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/calibration.csv";
  EXPECT_TRUE(ReadCalibration(path).empty());
  const std::vector<SpeedSample> samples = {
      {"fused", {TtShape({2, 3}, {4, 5}, {3}), 16, Phase::kTrain, DType::kFloat64, 2}, 1.25e-3},
      {"naive", {TtShape::Cube(3, 4, 2), 1, Phase::kInference}, 5e-6}};
  std::ofstream(path) << FormatCalibration(samples);
  const auto read = ReadCalibration(path);
  ASSERT_EQ(read.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read[i].variant, samples[i].variant);
    EXPECT_TRUE(read[i].problem.shape == samples[i].problem.shape);
    EXPECT_EQ(read[i].problem.batch, samples[i].problem.batch);
    EXPECT_EQ(read[i].problem.phase, samples[i].problem.phase);
    EXPECT_EQ(read[i].problem.dtype, samples[i].problem.dtype);
    EXPECT_EQ(read[i].problem.threads, samples[i].problem.threads);
    EXPECT_NEAR(read[i].seconds, samples[i].seconds, 1e-9);
  }
  std::ofstream(path) << "variant,speed\r\nfused,1\r\n";
  EXPECT_THROW(ReadCalibration(path), std::runtime_error);
}

}  // namespace
}  // namespace ttbench
