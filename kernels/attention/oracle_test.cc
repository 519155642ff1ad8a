#include "kernels/attention/oracle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace ttbench {
namespace {

AttentionOracleInputs MakeInputs(int64_t layers, bool additive) {
  AttentionOracleInputs in;
  in.rows = 2;
  in.source_len = 3;
  in.target_len = 3;
  in.hidden = 2;
  in.layers = layers;
  in.word_size = 3;
  in.additive = additive;
  uint64_t state = 11;
  auto fill = [&](int64_t count) {
    std::vector<double> values(count);
    for (double& value : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<double>(static_cast<int64_t>(state >> 33) % 1000) / 600.0 - 0.8;
    }
    return values;
  };
  in.context = fill(in.rows * in.source_len * in.hidden);
  in.steps = fill(in.rows * in.target_len * (layers > 0 ? in.word_size : in.hidden));
  in.dy = fill(in.rows * in.target_len * in.hidden);
  if (layers > 0) {
    for (int64_t i = 0; i < 1 + 2 * layers; ++i) in.initial.push_back(fill(in.rows * in.hidden));
  }
  for (int64_t n = 0; n < layers; ++n) {
    const int64_t width = n == 0 ? in.word_size + in.hidden : in.hidden;
    in.parameters.push_back(fill(4 * in.hidden * width));
    in.parameters.push_back(fill(4 * in.hidden));
    in.parameters.push_back(fill(4 * in.hidden * in.hidden));
  }
  const int64_t square = in.hidden * in.hidden;
  in.parameters.push_back(fill(square));
  if (additive) {
    in.parameters.push_back(fill(square));
    in.parameters.push_back(fill(in.hidden));
  }
  in.parameters.push_back(fill(2 * square));
  return in;
}

double Objective(const AttentionOracleInputs& inputs) {
  AttentionOracleInputs forward = inputs;
  forward.dy.clear();
  const std::vector<double> y = EvaluateAttentionOracle(forward).y;
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * inputs.dy[i];
  return sum;
}

// Each gradient against a central difference.
void CheckGradients(AttentionOracleInputs inputs) {
  const AttentionOracleResult result = EvaluateAttentionOracle(inputs);
  auto check = [&](std::vector<double>& values, const std::vector<double>& gradient,
                   const std::string& name) {
    ASSERT_EQ(values.size(), gradient.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      constexpr double kStep = 1e-5;
      const double value = values[i];
      values[i] = value + kStep;
      const double above = Objective(inputs);
      values[i] = value - kStep;
      const double below = Objective(inputs);
      values[i] = value;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-8) << name << " " << i;
    }
  };
  check(inputs.context, result.dcontext, "context");
  check(inputs.steps, result.dsteps, "steps");
  for (size_t i = 0; i < inputs.initial.size(); ++i)
    check(inputs.initial[i], result.dinitial[i], "initial");
  for (size_t i = 0; i < inputs.parameters.size(); ++i)
    check(inputs.parameters[i], result.dparameters[i], "parameter " + std::to_string(i));
}

TEST(AttentionOracleTest, GradientsAreThoseOfTheForward) {
  CheckGradients(MakeInputs(0, false));
  CheckGradients(MakeInputs(0, true));
  CheckGradients(MakeInputs(1, false));
  CheckGradients(MakeInputs(2, false));
}

// L = T = H = 1 by hand: the softmax of one score is 1.
TEST(AttentionOracleTest, OneSourceState) {
  AttentionOracleInputs in;
  in.rows = in.source_len = in.target_len = in.hidden = 1;
  in.context = {0.7};
  in.steps = {0.4};
  in.parameters = {{0.9}, {0.3, -0.5}};
  const double y = std::tanh(0.3 * 0.7 - 0.5 * 0.4);
  EXPECT_DOUBLE_EQ(EvaluateAttentionOracle(in).y[0], y);
  in.dy = {2};
  const AttentionOracleResult result = EvaluateAttentionOracle(in);
  EXPECT_DOUBLE_EQ(result.dcontext[0], 2 * (1 - y * y) * 0.3);
  EXPECT_DOUBLE_EQ(result.dsteps[0], 2 * (1 - y * y) * -0.5);
  EXPECT_DOUBLE_EQ(result.dparameters[0][0], 0);
}

// Two source states with scores 0 and log 3, weights 1/4 and 3/4.
TEST(AttentionOracleTest, TwoSourceStates) {
  AttentionOracleInputs in;
  in.rows = in.target_len = in.hidden = 1;
  in.source_len = 2;
  in.context = {0, 1};
  in.steps = {1};
  in.parameters = {{std::log(3.0)}, {1, 0}};
  EXPECT_NEAR(EvaluateAttentionOracle(in).y[0], std::tanh(0.75), 1e-15);
}

}  // namespace
}  // namespace ttbench
