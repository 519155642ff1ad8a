#include "kernels/attention/fused_additive_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "kernels/attention/oracle.h"

namespace ttbench {
namespace {

template <typename Real>
class FusedAdditiveTest : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(FusedAdditiveTest, Reals);

TYPED_TEST(FusedAdditiveTest, TanhIsRightInTheLastPlaces) {
  using Real = TypeParam;
  std::vector<Real> x;
  for (double v = 1e-30; v < 1e30; v *= 1.0173) x.push_back(static_cast<Real>(v));
  for (int i = 0; i < 20000; ++i) x.push_back(static_cast<Real>(i) / 700);
  for (size_t i = 0, count = x.size(); i < count; ++i) x.push_back(-x[i]);
  x.push_back(0);
  x.push_back(std::numeric_limits<Real>::infinity());
  x.push_back(-std::numeric_limits<Real>::infinity());
  std::vector<Real> y(x.size());
  VectorTanh(x.data(), static_cast<int64_t>(x.size()), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const long double want = std::tanh(static_cast<long double>(x[i]));
    const long double error = std::abs(static_cast<long double>(y[i]) - want);
    EXPECT_LE(error, 4 * std::numeric_limits<Real>::epsilon() * std::abs(want))
        << "tanh " << x[i] << " = " << y[i];
  }
  const Real nan = std::numeric_limits<Real>::quiet_NaN();
  Real out = 0;
  VectorTanh(&nan, 1, &out);
  EXPECT_TRUE(std::isnan(out));
}

// The kernel between the oracle's projections: W_q, W_s the identity, so that q = h and keys =
// context, and W_c = [identity, 0], of whose tanh the inverse gives c.
template <typename Real>
void CheckAgainstOracle(int64_t source_len, int64_t queries, int64_t hidden, double scale) {
  AttentionOracleInputs in;
  in.rows = 1;
  in.source_len = source_len;
  in.target_len = queries;
  in.hidden = hidden;
  in.additive = true;
  uint64_t state = 5;
  auto fill = [&](int64_t count, double size) {
    std::vector<double> values(count);
    for (double& value : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = size * (static_cast<double>((state >> 33) % 256) / 128 - 1);
    }
    return values;
  };
  in.context = fill(source_len * hidden, 1);
  in.steps = fill(queries * hidden, 1);
  const std::vector<double> v = fill(hidden, scale);
  std::vector<double> identity(hidden * hidden), joined(2 * hidden * hidden);
  for (int64_t i = 0; i < hidden; ++i) identity[i * hidden + i] = joined[i * 2 * hidden + i] = 1;
  in.parameters = {identity, identity, v, joined};
  in.dy = fill(queries * hidden, 1);
  const AttentionOracleResult oracle = EvaluateAttentionOracle(in);

  const std::vector<Real> keys(in.context.begin(), in.context.end());
  const std::vector<Real> q(in.steps.begin(), in.steps.end()), real_v(v.begin(), v.end());
  std::vector<Real> c(queries * hidden), statistics(2 * queries);
  const FusedAdditiveShape shape{source_len, queries, hidden};
  const FusedAdditiveRow<Real> row{keys.data(),   keys.data(), q.data(),
                                   real_v.data(), c.data(),    statistics.data()};
  FusedAdditiveForward(shape, row);
  const double tolerance = 200 * std::numeric_limits<Real>::epsilon();
  std::vector<Real> dc(queries * hidden);
  for (size_t i = 0; i < c.size(); ++i) {
    EXPECT_NEAR(std::tanh(static_cast<double>(c[i])), oracle.y[i], tolerance);
    dc[i] = static_cast<Real>(in.dy[i] * (1 - oracle.y[i] * oracle.y[i]));
  }

  std::vector<Real> dkeys(keys.size()), dcontext(keys.size()), dq(q.size()), dv(hidden);
  std::vector<Real> scratch(FusedAdditiveScratch(shape));
  FusedAdditiveBackward(shape, row,
                        {dc.data(), hidden, dkeys.data(), dcontext.data(), dq.data(), dv.data()},
                        scratch.data());
  auto check = [&](const std::vector<Real>& got, const std::vector<double>& want) {
    double largest = 0;
    for (double w : want) largest = std::max(largest, std::abs(w));
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], tolerance * static_cast<double>(queries) * (largest + 1e-3));
  };
  // The oracle's context serves as keys too.
  std::vector<Real> dboth(keys.size());
  for (size_t i = 0; i < dboth.size(); ++i) dboth[i] = dkeys[i] + dcontext[i];
  check(dboth, oracle.dcontext);
  check(dq, oracle.dsteps);
  check(dv, oracle.dparameters[2]);
}

TYPED_TEST(FusedAdditiveTest, IsTheOracles) {
  for (int64_t source_len : {1, 7, 8, 9, 20})
    for (int64_t queries : {1, 3})
      for (int64_t hidden : {1, 3, 8, 17, 33})
        CheckAgainstOracle<TypeParam>(source_len, queries, hidden, 1);
}

// Scores far apart: the maximum moves from tile to tile, and most weights vanish.
TYPED_TEST(FusedAdditiveTest, LargeScoresStayFinite) {
  CheckAgainstOracle<TypeParam>(40, 2, 16, 4);
}

}  // namespace
}  // namespace ttbench
