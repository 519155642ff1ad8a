// The kernel and its plan without LibTorch, so that AddressSanitizer sees every access: scratch and
// tensors are allocated to the exact size.
#include "kernels/linear/fused_kernel.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
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
Element As(double value) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    BFloat16 stored;
    const float real = static_cast<float>(value);
    UnpackTile(&real, 1, 1, 1, &stored, 1);
    return stored;
  } else {
    return static_cast<Element>(value);
  }
}

template <typename Element>
double AsDouble(Element value) {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    float real;
    PackTile(&value, 1, 1, 1, 1, &real);
    return real;
  } else {
    return value;
  }
}

template <typename Element>
std::vector<Element> Convert(const std::vector<double>& values) {
  std::vector<Element> converted;
  for (double value : values) converted.push_back(As<Element>(value));
  return converted;
}

template <typename Element>
double Error(const std::vector<Element>& got, const std::vector<double>& expected) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = std::abs(AsDouble(got[i]) - expected[i]);
    difference = d <= difference ? difference : d;
    largest = std::max(largest, std::abs(expected[i]));
  }
  return difference == 0 ? 0 : difference / largest;
}

template <typename Element>
double Roundoff() {
  if constexpr (std::is_same_v<Element, BFloat16>) {
    return std::ldexp(1, -8);
  } else {
    return std::numeric_limits<Element>::epsilon() / 2;
  }
}

// A layer with its inputs, and what the oracle makes of them.
struct Layer {
  Layer(const TtShape& shape, int64_t batch, uint64_t seed) : shape(shape), batch(batch) {
    for (int64_t k = 0; k < shape.cores(); ++k) {
      cores.push_back(Random(Product(shape.CoreSizes(k)), seed + 10 + k));
    }
    x = Random(batch * shape.in_features(), seed + 1);
    dy = Random(batch * shape.out_features(), seed + 2);
    oracle = EvaluateOracle(shape, cores, x, dy);
  }
  TtShape shape;
  int64_t batch;
  std::vector<std::vector<double>> cores;
  std::vector<double> x, dy;
  OracleResult oracle;
};

template <typename Element>
struct Results {
  std::vector<Element> y, dx;
  std::vector<std::vector<Element>> dcores;
};

// Buffers start on cache lines, as LibTorch's do, and end at their last element.
template <typename Real>
std::unique_ptr<Real[]> Buffer(int64_t elements) {
  auto buffer = std::make_unique<Real[]>(elements);
  std::fill_n(buffer.get(), elements, std::numeric_limits<Real>::quiet_NaN());
  return buffer;
}

template <typename Element>
Results<Element> Compute(const Layer& layer, const FusedPlan& forward, const FusedPlan& backward,
                         bool portable) {
  using Kernel = FusedKernel<Element>;
  using Real = typename Kernel::Real;
  Results<Element> results;
  std::vector<std::vector<Element>> cores;
  std::vector<const Element*> core_pointers;
  std::vector<Element*> dcore_pointers;
  for (const auto& core : layer.cores) {
    cores.push_back(Convert<Element>(core));
    results.dcores.emplace_back(core.size());
  }
  for (auto& core : cores) core_pointers.push_back(core.data());
  for (auto& dcore : results.dcores) dcore_pointers.push_back(dcore.data());
  const std::vector<Element> x = Convert<Element>(layer.x), dy = Convert<Element>(layer.dy);
  results.y.resize(dy.size());
  results.dx.resize(x.size());
  for (const FusedPlan& plan : {forward, backward}) {
    const Kernel kernel(layer.shape, plan, portable);
    const auto packed = Buffer<Real>(plan.packed_elements);
    const auto slots = Buffer<Real>(plan.slots * plan.slot_elements);
    const auto gradients = Buffer<Real>(plan.slots * plan.gradient_elements);
    const typename Kernel::Scratch scratch{packed.get(), slots.get(), gradients.get()};
    for (int64_t part : {1, 0, 2}) kernel.PackCores(part, 3, core_pointers, scratch);
    for (int64_t slot = 0; slot < plan.slots; ++slot) {
      if (plan.pass == FusedPass::kForward) {
        kernel.Forward(slot, x.data(), results.y.data(), scratch);
      } else {
        kernel.Backward(slot, x.data(), dy.data(), results.dx.data(), scratch);
      }
    }
    if (plan.pass == FusedPass::kForward) continue;
    for (int64_t part : {1, 0}) kernel.WriteCoreGradients(part, 2, scratch, dcore_pointers);
  }
  return results;
}

template <typename Element>
double WorstError(const Layer& layer, const Results<Element>& results) {
  double worst = std::max(Error(results.y, layer.oracle.y), Error(results.dx, layer.oracle.dx));
  for (size_t k = 0; k < layer.cores.size(); ++k) {
    worst = std::max(worst, Error(results.dcores[k], layer.oracle.dcores[k]));
  }
  return worst;
}

template <typename Element>
double Allowed(const Layer& layer) {
  return 64 * static_cast<double>(layer.shape.cores()) * Roundoff<Element>();
}

template <typename Element>
void ExpectRight(const Layer& layer, const FusedPlan& forward, const FusedPlan& backward) {
  for (bool portable : {false, true}) {
    EXPECT_LE(WorstError(layer, Compute<Element>(layer, forward, backward, portable)),
              Allowed<Element>(layer))
        << layer.shape.modes_name() << " ranks " << layer.shape.ranks_name() << " batch "
        << layer.batch << " tile " << forward.samples << "/" << forward.block << "/"
        << forward.chunk << (forward.mirrored ? " mirrored" : "") << ", backward "
        << backward.samples << "/" << backward.block << "/" << backward.chunk
        << (portable ? " portable" : "");
  }
}

TEST(FusedKernelTest, EveryTileIsRight) {
  for (const TtShape& shape : {TtShape({5, 3}, {4, 7}, {6}), TtShape({3, 4, 6}, {5, 2, 9}, {3, 5}),
                               TtShape({3, 2, 1, 4}, {1, 3, 4, 5}, {2, 7, 3}),
                               TtShape({2, 3, 2, 2, 3, 2}, {2, 2, 3, 2, 2, 3}, {2, 3, 4, 3, 2})}) {
    const Layer layer(shape, 19, 5);
    for (int64_t samples : {1, 3, 16, 32}) {
      for (int64_t block : {1, 2, 3}) {
        for (int64_t chunk : {1, 2}) {
          for (bool mirrored : {false, true}) {
            auto plan = [&](FusedPass pass, int64_t bytes) {
              return MakeFusedPlan(shape, layer.batch, 3, bytes, pass, samples, block, chunk,
                                   mirrored);
            };
            ExpectRight<float>(layer, plan(FusedPass::kForward, 4), plan(FusedPass::kBackward, 4));
            ExpectRight<double>(layer, plan(FusedPass::kForward, 8), plan(FusedPass::kBackward, 8));
          }
        }
      }
    }
  }
}

TEST(FusedKernelTest, RandomLayersAreRight) {
  const bool right = rc::check("the planned kernel equals the oracle", [] {
    const auto cores = *rc::gen::inRange<int64_t>(2, 7);
    const int64_t largest = cores <= 3 ? 9 : 4;
    auto sizes = [&](int64_t count, int64_t bound) {
      return *rc::gen::container<Modes>(static_cast<size_t>(count),
                                        rc::gen::inRange<int64_t>(1, bound + 1));
    };
    const Modes in = sizes(cores, largest), out = sizes(cores, largest);
    const TtShape shape(in, out, sizes(cores - 1, 7));
    const auto batch = *rc::gen::inRange<int64_t>(1, 70);
    const auto threads = *rc::gen::element<int64_t>(1, 2, 3, 8);
    const Layer layer(shape, batch, *rc::gen::inRange<uint64_t>(0, 1000));
    auto plan = [&](FusedPass pass, int64_t bytes) {
      return PlanFused(shape, batch, threads, bytes, pass);
    };
    const FusedPlan forward = plan(FusedPass::kForward, 4),
                    backward = plan(FusedPass::kBackward, 4);
    RC_ASSERT(WorstError(layer, Compute<float>(layer, forward, backward, false)) <=
              Allowed<float>(layer));
    RC_ASSERT(WorstError(layer, Compute<BFloat16>(layer, forward, backward, false)) <=
              Allowed<BFloat16>(layer));
    RC_ASSERT(WorstError(layer, Compute<double>(layer, plan(FusedPass::kForward, 8),
                                                plan(FusedPass::kBackward, 8), false)) <=
              Allowed<double>(layer));
  });
  EXPECT_TRUE(right);
}

TEST(FusedKernelTest, RandomLayersAreRightInEitherOrder) {
  const bool right = rc::check("either order equals the oracle", [] {
    const auto cores = *rc::gen::inRange<int64_t>(2, 7);
    const int64_t largest = cores <= 3 ? 12 : 4;
    auto sizes = [&](int64_t count, int64_t bound) {
      return *rc::gen::container<Modes>(static_cast<size_t>(count),
                                        rc::gen::inRange<int64_t>(1, bound + 1));
    };
    const Modes in = sizes(cores, largest), out = sizes(cores, largest);
    const TtShape shape(in, out, sizes(cores - 1, 7));
    const Layer layer(shape, *rc::gen::inRange<int64_t>(1, 70),
                      *rc::gen::inRange<uint64_t>(0, 1000));
    const auto samples = *rc::gen::element<int64_t>(1, 8, 16, 32);
    for (bool mirrored : {false, true}) {
      const TtShape order = FusedOrder(shape, mirrored);
      const auto block = *rc::gen::inRange<int64_t>(1, order.m(cores - 1) + 1);
      const auto chunk = *rc::gen::inRange<int64_t>(1, order.n(0) + 1);
      auto plan = [&](FusedPass pass) {
        return MakeFusedPlan(shape, layer.batch, 2, 4, pass, samples, block, chunk, mirrored);
      };
      const FusedPlan forward = plan(FusedPass::kForward), backward = plan(FusedPass::kBackward);
      RC_ASSERT(WorstError(layer, Compute<float>(layer, forward, backward, false)) <=
                Allowed<float>(layer));
      RC_ASSERT(WorstError(layer, Compute<BFloat16>(layer, forward, backward, false)) <=
                Allowed<BFloat16>(layer));
    }
  });
  EXPECT_TRUE(right);
}

TEST(FusedKernelTest, AnEmptyBatchHasZeroGradients) {
  const TtShape shape = TtShape::Cube(3, 4, 2);
  const Layer layer(shape, 0, 1);
  const auto results = Compute<float>(layer, PlanFused(shape, 0, 2, 4, FusedPass::kForward),
                                      PlanFused(shape, 0, 2, 4, FusedPass::kBackward), false);
  for (const auto& dcore : results.dcores) {
    for (float value : dcore) EXPECT_EQ(value, 0);
  }
}

TEST(FusedPlanTest, ScratchStaysBelowWhatDenseHolds) {
  for (int64_t d : {4, 5, 6, 8, 10, 16, 20, 32}) {
    for (int64_t r : {1, 2, 4, 8, 16, 32}) {
      const TtShape shape = TtShape::Cube(3, d, r);
      if (2 * shape.parameters() > shape.dense_parameters()) continue;
      const int64_t spare = shape.dense_parameters() - shape.parameters();
      for (int64_t batch : {1, 7, 64, 512}) {
        for (int64_t threads : {1, 2, 3, 8}) {
          EXPECT_LE(PlanFused(shape, batch, threads, 4, FusedPass::kForward).scratch_elements(),
                    spare)
              << "forward d=" << d << " r=" << r << " B=" << batch;
          EXPECT_LE(PlanFused(shape, batch, threads, 4, FusedPass::kBackward).scratch_elements(),
                    2 * spare)
              << "backward d=" << d << " r=" << r << " B=" << batch;
        }
      }
    }
  }
}

// From the last core, 10x14x15:2x5x41 takes 10*14*41*15*8 + 10*14*5*41*8*8 + 2*5*41*10*8
// multiply-adds a row; from the first, which is where its outputs are few, 2*14*15*10*8 +
// 2*5*14*15*8*8 + 2*5*41*15*8, an eleventh of that. Mirrored as a layer, the other way round.
TEST(FusedPlanTest, TakesTheCheaperOrder) {
  const TtShape last_costs = TtShape::Parse("10x14x15:2x5x41", 8);
  EXPECT_EQ(FusedOrder(last_costs, false).sequential_macs_per_row(), 688800 + 1836800 + 32800);
  EXPECT_EQ(FusedOrder(last_costs, true).sequential_macs_per_row(), 33600 + 134400 + 49200);
  const TtShape first_costs = FusedOrder(last_costs, true);
  EXPECT_EQ(first_costs.modes_name(), "15x14x10:41x5x2");
  EXPECT_TRUE(FusedOrder(first_costs, true) == last_costs);
  for (FusedPass pass : {FusedPass::kForward, FusedPass::kBackward}) {
    for (int64_t batch : {1, 64, 512}) {
      EXPECT_TRUE(PlanFused(last_costs, batch, 2, 4, pass).mirrored);
      EXPECT_FALSE(PlanFused(first_costs, batch, 2, 4, pass).mirrored);
      // Nothing to gain.
      EXPECT_FALSE(PlanFused(TtShape::Cube(3, 8, 4), batch, 2, 4, pass).mirrored);
    }
  }
}

TEST(FusedPlanTest, ScratchDoesNotGrowWithTheBatch) {
  for (FusedPass pass : {FusedPass::kForward, FusedPass::kBackward}) {
    const TtShape shape = TtShape::Parse("2x5x41:10x14x15", 8);
    EXPECT_EQ(PlanFused(shape, 4096, 2, 4, pass).scratch_elements(),
              PlanFused(shape, 1 << 20, 2, 4, pass).scratch_elements());
  }
}

}  // namespace
}  // namespace ttbench
