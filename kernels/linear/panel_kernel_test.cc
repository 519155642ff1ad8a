#include "kernels/linear/panel_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/oracle.h"

namespace ttbench {
namespace {

std::vector<double> Random(int64_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values(count);
  for (double& value : values) value = uniform(engine);
  return values;
}

double Error(const std::vector<double>& got, const std::vector<double>& expected) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = std::abs(got[i] - expected[i]);
    difference = d <= difference ? difference : d;
    largest = std::max(largest, std::abs(expected[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

TEST(PanelKernelTest, EqualsTheOracle) {
  // Caches so small that every loop takes several turns, and this machine's.
  FusedMachine tiny;
  tiny.l2_bytes = 2000;
  for (const FusedMachine& machine : {tiny, ThisFusedMachine()}) {
    for (const TtShape& shape : {TtShape({5, 12}, {4, 9}, {6}), TtShape({1, 7}, {3, 1}, {1}),
                                 TtShape({6, 1}, {1, 8}, {3})}) {
      for (int64_t batch : {1, 19, 300}) {
        const std::vector<double> left = Random(Product(shape.CoreSizes(0)), 1);
        const std::vector<double> right = Random(Product(shape.CoreSizes(1)), 2);
        const std::vector<double> x = Random(batch * shape.in_features(), 3);
        const std::vector<double> dy = Random(batch * shape.out_features(), 4);
        const OracleResult oracle = EvaluateOracle(shape, {left, right}, x, dy);
        for (int64_t threads : {1, 2, 3, 8}) {
          const double nan = std::numeric_limits<double>::quiet_NaN();
          std::vector<double> y(dy.size(), nan), dx(x.size(), nan);
          std::vector<double> dleft(left.size(), nan), dright(right.size(), nan);
          PanelPlan plan = PlanPanels(shape, batch, threads, 8, FusedPass::kForward, machine);
          std::vector<double> slots(plan.slots * plan.slot_elements, nan);
          for (int64_t slot = 0; slot < plan.slots; ++slot) {
            PanelForward(plan, slot, left.data(), right.data(), x.data(), y.data(), slots.data());
          }
          plan = PlanPanels(shape, batch, threads, 8, FusedPass::kBackward, machine);
          slots.assign(plan.slots * plan.slot_elements, nan);
          slots.shrink_to_fit();
          std::vector<double> gradients(plan.slots * plan.gradient_elements, nan);
          for (int64_t slot = 0; slot < plan.slots; ++slot) {
            PanelBackward(plan, slot, left.data(), right.data(), x.data(), dy.data(), dx.data(),
                          dright.data(), slots.data(), gradients.data());
          }
          WriteLeftGradient(plan, gradients.data(), dleft.data());
          constexpr double kAllowed = 1e-13;
          EXPECT_LE(Error(y, oracle.y), kAllowed);
          EXPECT_LE(Error(dx, oracle.dx), kAllowed);
          EXPECT_LE(Error(dleft, oracle.dcores[0]), kAllowed);
          EXPECT_LE(Error(dright, oracle.dcores[1]), kAllowed);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ttbench
