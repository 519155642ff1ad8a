#include "benchmarks/timing_pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "benchmarks/linear_workload.h"

namespace ttbench {
namespace {

TEST(QuantileTest, InterpolatesBetweenTheNearest) {
  EXPECT_EQ(Quantile({3, 1, 2}, 0.5), 2);
  EXPECT_EQ(Quantile({4, 1, 3, 2}, 0), 1);
  EXPECT_EQ(Quantile({4, 1, 3, 2}, 1), 4);
  EXPECT_DOUBLE_EQ(Quantile({4, 1, 3, 2}, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(Quantile({4, 1, 3, 2}, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(Quantile({0, 10}, 0.3), 3);
  for (double q : {0.0, 0.4, 1.0}) EXPECT_EQ(Quantile({5}, q), 5);
}

// Calls `before` and computes the layer as `sequential` does. Not in the registry.
class Observed : public LinearVariant {
 public:
  explicit Observed(std::function<void()> before) : before_(std::move(before)) {}
  std::string name() const override { return "observed"; }
  std::string Algorithm(const LinearProblem&) const override { return "test"; }
  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    before_();
    return Sequential().Forward(shape, x, cores);
  }
  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    return Sequential().Trace(tape, shape, x, cores);
  }

 private:
  static const LinearVariant& Sequential() { return *FindLinearVariant("sequential"); }
  std::function<void()> before_;
};

Timing TimeLinear(const LinearVariant& variant, const LinearVariant* baseline,
                  const LinearProblem& problem, uint64_t seed, const TimingOptions& options) {
  const LinearWorkload workload(variant, problem);
  if (!baseline) return TimeWorkload(workload, nullptr, seed, options);
  const LinearWorkload beside(*baseline, problem);
  return TimeWorkload(workload, &beside, seed, options);
}

constexpr int64_t kMillisecond = 1'000'000;

LinearProblem Problem(Phase phase) { return {TtShape::Cube(3, 2, 2), 3, phase, DType::kFloat32}; }

void Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

class TimeLinearTest : public testing::TestWithParam<Phase> {};

TEST_P(TimeLinearTest, FieldsAgree) {
  int64_t calls = 0;
  const Observed variant([&] { ++calls; });
  const LinearVariant* dense = FindLinearVariant(kBaselineVariant);
  TimingOptions options;
  options.min_time_ns = kMillisecond;
  options.repetitions = 3;
  const Timing timing = TimeLinear(variant, dense, Problem(GetParam()), 1, options);

  EXPECT_GT(timing.min_ns, 0);
  EXPECT_LE(timing.min_ns, timing.median_ns);
  EXPECT_GE(timing.iterations, 1);
  EXPECT_GE(calls, timing.iterations * timing.repetitions);
  EXPECT_GE(timing.repetitions, 1);
  EXPECT_LE(timing.repetitions, 9);
  EXPECT_EQ(timing.spread.has_value(), timing.repetitions > 1);
  ASSERT_TRUE(timing.ratio_to_baseline.has_value());
  EXPECT_GT(*timing.ratio_to_baseline, 0);
  if (timing.stop_reason == "converged") {
    EXPECT_GE(timing.repetitions, 3);
    EXPECT_LE(*timing.spread, kConvergedSpread);
  } else if (timing.stop_reason == "max-repetitions") {
    EXPECT_EQ(timing.repetitions, 9);
    EXPECT_GT(*timing.spread, kConvergedSpread);
  } else {
    EXPECT_EQ(timing.stop_reason, "time-limit");
  }
}

INSTANTIATE_TEST_SUITE_P(Phases, TimeLinearTest, testing::ValuesIn(kPhases), [](const auto& phase) {
  std::string name = Name(phase.param);
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
});

TEST(TimeLinear, WithoutABaselineThereIsNoRatio) {
  TimingOptions options;
  options.min_time_ns = kMillisecond;
  options.repetitions = 1;
  const Timing timing =
      TimeLinear(*FindLinearVariant("sequential"), nullptr, Problem(Phase::kTrain), 1, options);
  EXPECT_EQ(timing.ratio_to_baseline, std::nullopt);
}

// A single repetition has no spread.
TEST(TimeLinear, StopsAtItsTimeLimit) {
  TimingOptions options;
  options.min_time_ns = 1;
  options.repetitions = 5;
  const Timing timing =
      TimeLinear(*FindLinearVariant("sequential"), nullptr, Problem(Phase::kInference), 1, options);
  EXPECT_EQ(timing.stop_reason, "time-limit");
  EXPECT_EQ(timing.repetitions, 1);
  EXPECT_EQ(timing.spread, std::nullopt);
}

// No speed is asserted: a sleep lasts at least as long as it was told to, and a layer of 64 weights
// less than 50 ms on any machine.
TEST(TimeLinear, IsInNanosecondsOfTheVariantOverTheBaseline) {
  const Observed variant([] { Sleep(50); });
  TimingOptions options;
  options.min_time_ns = kMillisecond;
  options.repetitions = 1;
  const Timing timing = TimeLinear(variant, FindLinearVariant(kBaselineVariant),
                                   Problem(Phase::kInference), 1, options);
  EXPECT_GE(timing.min_ns, 50.0 * kMillisecond);
  EXPECT_GE(timing.median_ns, 50.0 * kMillisecond);
  EXPECT_GT(*timing.ratio_to_baseline, 1);
}

TEST(TimeLinear, PassesExceptionsOn) {
  for (int good_calls : {0, 1, 50}) {
    int calls = 0;
    const Observed variant([&] {
      if (calls++ >= good_calls) throw std::runtime_error("out of luck");
    });
    TimingOptions options;
    options.min_time_ns = 10 * kMillisecond;
    try {
      TimeLinear(variant, FindLinearVariant(kBaselineVariant), Problem(Phase::kTrain), 1, options);
      FAIL() << "nothing thrown after " << good_calls << " calls";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "out of luck");
    }
    EXPECT_EQ(calls, good_calls + 1) << "it went on after the exception";
  }
}

}  // namespace
}  // namespace ttbench
