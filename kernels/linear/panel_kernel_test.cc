#include "kernels/linear/panel_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/oracle.h"

namespace ttbench {
namespace {

std::vector<double> Random(int64_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values(count);
  // Representable in bfloat16, so that every element type computes the same layer.
  for (double& value : values) value = std::round(uniform(engine) * 64) / 64;
  return values;
}

template <typename Element>
std::vector<Element> Convert(const std::vector<double>& values) {
  std::vector<Element> converted(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (std::is_same_v<Element, BFloat16>) {
      const float real = static_cast<float>(values[i]);
      UnpackTile(&real, 1, 1, 1, &converted[i], 1);
    } else {
      converted[i] = static_cast<Element>(values[i]);
    }
  }
  return converted;
}

template <typename Element>
double Error(const std::vector<Element>& got, const std::vector<double>& expected) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    PanelReal<Element> real;
    PackTile(&got[i], 1, 1, 1, 1, &real);
    const double d = std::abs(real - expected[i]);
    difference = d <= difference ? difference : d;
    largest = std::max(largest, std::abs(expected[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

// Sums of a few thousand terms at most, in float or double.
template <typename Real>
constexpr double kSummed = 1000 * std::numeric_limits<Real>::epsilon();

template <typename Element>
class PanelKernelTest : public testing::Test {};
using Elements = testing::Types<float, double, BFloat16>;
TYPED_TEST_SUITE(PanelKernelTest, Elements);

// A layer of two cores and what the oracle makes of it.
struct Layer {
  Layer(const TtShape& shape, int64_t batch)
      : shape(shape),
        batch(batch),
        left(Random(Product(shape.CoreSizes(0)), 1)),
        right(Random(Product(shape.CoreSizes(1)), 2)),
        x(Random(batch * shape.in_features(), 3)),
        dy(Random(batch * shape.out_features(), 4)),
        oracle(EvaluateOracle(shape, {left, right}, x, dy)) {}
  TtShape shape;
  int64_t batch;
  std::vector<double> left, right, x, dy;
  OracleResult oracle;
};

// Computed with panels planned for a machine.
template <typename Element>
void ExpectRight(const Layer& layer, int64_t threads, const FusedMachine& machine) {
  using Real = PanelReal<Element>;
  const auto left = Convert<Real>(layer.left), right = Convert<Real>(layer.right);
  const auto x = Convert<Element>(layer.x), dy = Convert<Element>(layer.dy);
  constexpr Real kNan = std::numeric_limits<Real>::quiet_NaN();
  auto y = Convert<Element>(std::vector<double>(dy.size(), kNan));
  auto dx = Convert<Element>(std::vector<double>(x.size(), kNan));
  std::vector<Real> dleft(left.size(), kNan), dright(right.size(), kNan);
  // Slots in any order.
  const auto run = [](int64_t count, const auto& f) {
    for (int64_t i = count - 1; i >= 0; --i) f(i);
  };
  for (const FusedPass pass : {FusedPass::kForward, FusedPass::kBackward}) {
    const PanelPlan plan =
        PlanPanels(layer.shape, layer.batch, threads, sizeof(Element), pass, machine);
    std::vector<Real> slots(plan.slots * plan.slot_elements, kNan);
    std::vector<Real> gradients(plan.slots * plan.gradient_elements, kNan);
    std::vector<Real> widened(plan.widened_elements, kNan);
    const PanelScratch<Real> scratch{slots.data(), gradients.data(), widened.data()};
    if (pass == FusedPass::kForward) {
      PanelForward(plan, left.data(), right.data(), x.data(), y.data(), scratch, run);
    } else {
      PanelBackward(plan, left.data(), right.data(), x.data(), dy.data(), dx.data(), dleft.data(),
                    dright.data(), scratch, run);
    }
  }
  // bfloat16 sums as float32 does, over all blocks of rows, and rounds each result once.
  constexpr double kSum = kSummed<Real>;
  const double stored = std::is_same_v<Element, BFloat16> ? kSum + std::ldexp(1, -8) : kSum;
  SCOPED_TRACE(layer.shape.modes_name() + " ranks " + layer.shape.ranks_name() + " b" +
               std::to_string(layer.batch) + " t" + std::to_string(threads) + " l2_bytes " +
               std::to_string(machine.l2_bytes));
  EXPECT_LE(Error(y, layer.oracle.y), stored);
  EXPECT_LE(Error(dx, layer.oracle.dx), stored);
  EXPECT_LE(Error(dleft, layer.oracle.dcores[0]), kSum);
  EXPECT_LE(Error(dright, layer.oracle.dcores[1]), kSum);
}

TYPED_TEST(PanelKernelTest, EqualsTheOracle) {
  for (const TtShape& shape : {TtShape({5, 12}, {4, 9}, {6}), TtShape({1, 7}, {3, 1}, {1}),
                               TtShape({6, 1}, {1, 8}, {3}), TtShape({5, 6}, {7, 6}, {35})}) {
    // The last is more rows than bfloat16 is widened by, at any of the ranks.
    for (int64_t batch : {1, 19, 500}) {
      const Layer layer(shape, batch);
      // Caches so small that every loop takes several turns, and this machine's.
      FusedMachine tiny;
      tiny.l2_bytes = 2000;
      for (const FusedMachine& machine : {tiny, ThisFusedMachine()}) {
        for (int64_t threads : {1, 2, 3, 8}) ExpectRight<TypeParam>(layer, threads, machine);
      }
    }
  }
}

TYPED_TEST(PanelKernelTest, RandomLayersAreRight) {
  std::mt19937_64 random(7);
  auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  for (int i = 0; i < 60; ++i) {
    const Modes in = {1 + below(7), 1 + below(9)}, out = {1 + below(7), 1 + below(9)};
    const Layer layer(TtShape(in, out, {1 + below(12)}), 1 + below(i % 5 == 0 ? 500 : 50));
    FusedMachine machine;
    machine.l2_bytes = 500 << below(12);
    ExpectRight<TypeParam>(layer, 1 + below(8), machine);
  }
}

TEST(PanelPlanTest, ScratchDoesNotGrowWithTheBatch) {
  const TtShape shape({20, 41}, {140, 15}, {8});
  for (FusedPass pass : {FusedPass::kForward, FusedPass::kBackward}) {
    const PanelPlan some = PlanPanels(shape, 1000, 2, 2, pass);
    const PanelPlan many = PlanPanels(shape, 1 << 20, 2, 2, pass);
    EXPECT_EQ(some.slot_elements, many.slot_elements);
    EXPECT_EQ(some.gradient_elements, many.gradient_elements);
    EXPECT_EQ(some.widened_elements, many.widened_elements);
    EXPECT_GT(many.widened_elements, 0);
    for (int64_t bytes : {4, 8}) {
      EXPECT_EQ(PlanPanels(shape, 1000, 2, bytes, pass).widened_elements, 0);
    }
  }
}

}  // namespace
}  // namespace ttbench
