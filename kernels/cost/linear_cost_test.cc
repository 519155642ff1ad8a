// The models against formulas worked out by hand. That LibTorch allocates what the models say is
// benchmarks/memory_model_checks.cc's to show.
#include "kernels/cost/linear_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ttbench {
namespace {

LinearCost Predict(const std::string& variant, const TtShape& shape, int64_t batch,
                   Phase phase = Phase::kTrain, DType dtype = DType::kFloat32) {
  const LinearVariant* found = FindLinearVariant(variant);
  if (!found) throw std::invalid_argument("no variant " + variant);
  return PredictLinearCost(*found, {shape, batch, phase, dtype});
}

using Bytes = std::map<std::string, int64_t>;

Bytes ByName(const std::vector<cost::Term>& terms) {
  Bytes bytes;
  for (const cost::Term& term : terms) bytes[term.name] += term.bytes;
  return bytes;
}

int64_t Sum(const std::vector<cost::Term>& terms) {
  int64_t bytes = 0;
  for (const cost::Term& term : terms) bytes += term.bytes;
  return bytes;
}

// K = 3, all modes d, all ranks r: the shapes of the thread. For d, r, B >= 2.
struct Cubic {
  int64_t d, r, b;
  TtShape shape() const { return TtShape::Cube(3, d, r); }
  int64_t x() const { return b * d * d * d; }  // Elements of x, and of y.
  int64_t cores() const { return d * d * (r * r + 2 * r); }
  int64_t matrix() const { return d * d * d * d * d * d; }
};

std::ostream& operator<<(std::ostream& stream, const Cubic& c) {
  return stream << "d=" << c.d << " r=" << c.r << " B=" << c.b;
}

class CubicCostTest : public testing::TestWithParam<Cubic> {};

INSTANTIATE_TEST_SUITE_P(Shapes, CubicCostTest,
                         testing::Values(Cubic{4, 2, 7}, Cubic{8, 4, 16}, Cubic{16, 8, 128},
                                         Cubic{10, 16, 33}, Cubic{16, 8, 1024}));

TEST_P(CubicCostTest, Weights) {
  const Cubic c = GetParam();
  EXPECT_EQ(Predict("dense", c.shape(), c.b).bytes.weight, 4 * c.matrix());
  for (const auto& variant : LinearVariants()) {
    if (variant->is_dense() || !variant->WhySkipped({c.shape(), c.b}).empty()) continue;
    EXPECT_EQ(Predict(variant->name(), c.shape(), c.b).bytes.weight, 4 * c.cores())
        << variant->name();
  }
}

// Dense keeps x. The backward has y and its gradient, and both gradients, at once.
TEST_P(CubicCostTest, Dense) {
  const Cubic c = GetParam();
  const LinearCost train = Predict("dense", c.shape(), c.b);
  EXPECT_EQ(train.bytes.held, 4 * c.x());
  EXPECT_EQ(ByName(train.held_terms), (Bytes{{"x", 4 * c.x()}}));
  EXPECT_EQ(train.bytes.forward_peak, 4 * c.x());
  EXPECT_EQ(train.bytes.backward_peak, 4 * (3 * c.x() + c.matrix()));
  EXPECT_EQ(train.bytes.peak, 4 * (4 * c.x() + 2 * c.matrix()));
  const LinearCost inference = Predict("dense", c.shape(), c.b, Phase::kInference);
  EXPECT_EQ(inference.bytes.peak, 4 * (2 * c.x() + c.matrix()));
}

// The thread's B d^3 (2r + 1): x, and what the last and the middle core leave, of r B d^3 each, as
// the copies that the next products read. The cores are kept as such copies too: a product wants
// [n_k, r_k] innermost, and they lie as [r_{k-1}, n_k, m_k, r_k].
TEST_P(CubicCostTest, SequentialHolds) {
  const Cubic c = GetParam();
  const LinearCost cost = Predict("sequential", c.shape(), c.b);
  const int64_t end_core = c.d * c.d * c.r, middle_core = end_core * c.r;
  EXPECT_EQ(ByName(cost.held_terms), (Bytes{{"x", 4 * c.x()},
                                            {"T3, permuted", 4 * c.r * c.x()},
                                            {"T2, permuted", 4 * c.r * c.x()},
                                            {"G1, permuted", 4 * end_core},
                                            {"G2, permuted", 4 * middle_core},
                                            {"G3, permuted", 4 * end_core}}));
  EXPECT_EQ(cost.bytes.held,
            4 * c.b * c.d * c.d * c.d * (2 * c.r + 1) + 4 * c.d * c.d * (c.r * c.r + 2 * c.r));
}

// Forward without autograd: at the middle core's product, what it reads (r), what it writes (r) and
// its permuted core are alive. With it: when T2 is copied, T3's copy and T2 are too (3r), with two
// cores; when y is copied, both copies and T1, of B d^3 (2r + 2), with all cores.
// Backward: the most is alive when the first node has run up to T2's gradient (r): y, its gradient
// and the permuted copy of that (3), both copies (2r), all cores and G1's gradient.
TEST_P(CubicCostTest, SequentialPeaks) {
  const Cubic c = GetParam();
  const int64_t end_core = c.d * c.d * c.r, middle_core = end_core * c.r;
  const LinearCost inference = Predict("sequential", c.shape(), c.b, Phase::kInference);
  EXPECT_EQ(inference.bytes.forward_peak, 4 * (2 * c.r * c.x() + middle_core));
  EXPECT_EQ(inference.bytes.peak, 4 * ((2 * c.r + 1) * c.x() + middle_core + c.cores()));
  const LinearCost train = Predict("sequential", c.shape(), c.b);
  EXPECT_EQ(train.bytes.forward_peak, 4 * std::max(3 * c.r * c.x() + end_core + middle_core,
                                                   (2 * c.r + 2) * c.x() + c.cores()));
  EXPECT_EQ(train.bytes.backward_peak, 4 * ((3 * c.r + 3) * c.x() + c.cores() + end_core));
}

// Tensordot moves the contracted mode to the end, which copies x (n_1 is outermost behind B) and
// each T; of the cores, G_2 and G_3 are wanted as [n, r] and lie as [r, n]; G_1 lies right.
TEST_P(CubicCostTest, SequentialLeftToRightHolds) {
  const Cubic c = GetParam();
  const LinearCost cost = Predict("sequential-l2r", c.shape(), c.b);
  const int64_t end_core = c.d * c.d * c.r, middle_core = end_core * c.r;
  EXPECT_EQ(ByName(cost.held_terms), (Bytes{{"x", 4 * c.x()},
                                            {"x, permuted", 4 * c.x()},
                                            {"T1, permuted", 4 * c.r * c.x()},
                                            {"T2, permuted", 4 * c.r * c.x()},
                                            {"G2, permuted", 4 * middle_core},
                                            {"G3, permuted", 4 * end_core}}));
  EXPECT_EQ(cost.bytes.held, 4 * ((2 * c.r + 2) * c.x() + middle_core + end_core));
}

// Bmm reads T3 and T2 as they are written; every core is copied once, m before n. The backward's
// most is at the middle core: its gradient for each of the B d rows before the sum, r^2 B d^3, with
// T3 and the gradients of T2 and T3 (r each), y and dy, the copies of G2 and G3, and G1's gradient.
TEST_P(CubicCostTest, SequentialBmm) {
  const Cubic c = GetParam();
  const LinearCost cost = Predict("sequential-bmm", c.shape(), c.b);
  const int64_t end_core = c.d * c.d * c.r, middle_core = end_core * c.r;
  EXPECT_EQ(ByName(cost.held_terms), (Bytes{{"x", 4 * c.x()},
                                            {"T3", 4 * c.r * c.x()},
                                            {"T2", 4 * c.r * c.x()},
                                            {"G1, permuted", 4 * end_core},
                                            {"G2, permuted", 4 * middle_core},
                                            {"G3, permuted", 4 * end_core}}));
  EXPECT_EQ(cost.bytes.held, 4 * ((2 * c.r + 1) * c.x() + c.cores()));
  EXPECT_EQ(cost.bytes.backward_peak,
            4 * ((c.r * c.r + 3 * c.r + 2) * c.x() + middle_core + 2 * end_core));
}

// Einsum puts the summed labels in alphabetical order, ranks (capitals) before input modes. Behind
// it x and each T are copied, with those labels innermost; a core [r_{k-1}, n_k, m_k, r_k] lies so.
TEST_P(CubicCostTest, EinsumHolds) {
  const Cubic c = GetParam();
  const LinearCost cost = Predict("einsum", c.shape(), c.b);
  EXPECT_EQ(ByName(cost.held_terms), (Bytes{{"x", 4 * c.x()},
                                            {"x, permuted", 4 * c.x()},
                                            {"x G1..1, permuted", 4 * c.r * c.x()},
                                            {"x G1..2, permuted", 4 * c.r * c.x()}}));
  EXPECT_EQ(cost.bytes.held, 4 * (2 * c.r + 2) * c.x());
}

// Cores first: no core and no join lies as its product wants it (the output's modes first, then
// what is summed later), so each is copied, of d^4 r and d^6; x lies right.
TEST_P(CubicCostTest, EinsumCoresFirstHolds) {
  const Cubic c = GetParam();
  const LinearCost cost = Predict("einsum-cores-first", c.shape(), c.b);
  const int64_t end_core = c.d * c.d * c.r, middle_core = end_core * c.r;
  const int64_t joined = c.d * c.d * c.d * c.d * c.r;
  EXPECT_EQ(ByName(cost.held_terms), (Bytes{{"x", 4 * c.x()},
                                            {"G1, permuted", 4 * end_core},
                                            {"G2, permuted", 4 * middle_core},
                                            {"G3, permuted", 4 * end_core},
                                            {"G1..2, permuted", 4 * joined},
                                            {"G1..3, permuted", 4 * c.matrix()}}));
  EXPECT_EQ(cost.bytes.held, 4 * (c.x() + c.cores() + joined + c.matrix()));
}

// Cores are read as they lie. Kept: the first two joined (d^4 r) and the matrix in order; the
// matrix exists twice while it is put in order.
TEST_P(CubicCostTest, Naive) {
  const Cubic c = GetParam();
  const LinearCost cost = Predict("naive", c.shape(), c.b);
  const int64_t joined = c.d * c.d * c.d * c.d * c.r;
  EXPECT_EQ(ByName(cost.held_terms),
            (Bytes{{"x", 4 * c.x()}, {"G1..2", 4 * joined}, {"matrix", 4 * c.matrix()}}));
  EXPECT_EQ(cost.bytes.held, 4 * (c.x() + joined + c.matrix()));
  EXPECT_EQ(cost.bytes.forward_peak, 4 * (joined + c.matrix() + std::max(c.matrix(), c.x())));
}

// Kept: the two cores joined, r d^4. In bfloat16 all cores are first copied to float32, in which
// the joined ones then are; the copies are kept to join them backward.
TEST_P(CubicCostTest, FusedPanelHolds) {
  const Cubic c = GetParam();
  const int64_t joined = c.r * c.d * c.d * c.d * c.d;
  EXPECT_EQ(Predict("fused-panel", c.shape(), c.b).bytes.held, 4 * (c.x() + joined));
  EXPECT_EQ(Predict("fused-panel", c.shape(), c.b, Phase::kTrain, DType::kBFloat16).bytes.held,
            2 * c.x() + 4 * (joined + c.cores()));
}

// A multiply-add is two operations; the backward of a product is two products of the same size.
TEST_P(CubicCostTest, Flops) {
  const Cubic c = GetParam();
  const int64_t d4 = c.d * c.d * c.d * c.d;
  const std::map<std::string, int64_t> macs = {
      {"dense", c.b * c.matrix()},
      {"dense-onednn", c.b * c.matrix()},
      {"naive", c.b * c.matrix() + d4 * c.r * c.r + c.matrix() * c.r},
      {"einsum-cores-first", c.b * c.matrix() + d4 * c.r * c.r + c.matrix() * c.r},
      {"einsum", c.b * d4 * (c.r * c.r + 2 * c.r)},
      {"sequential", c.b * d4 * (c.r * c.r + 2 * c.r)},
      {"sequential-l2r", c.b * d4 * (c.r * c.r + 2 * c.r)},
      {"sequential-bmm", c.b * d4 * (c.r * c.r + 2 * c.r)},
  };
  for (const auto& [variant, count] : macs) {
    EXPECT_EQ(Predict(variant, c.shape(), c.b, Phase::kInference).flops, 2 * count) << variant;
    EXPECT_EQ(Predict(variant, c.shape(), c.b, Phase::kTrain).flops, 3 * 2 * count) << variant;
  }
}

// Any K, unequal modes and ranks, all of them 2 or more (so that no permute is a view), B >= 2.
const std::vector<TtShape>& UnequalShapes() {
  static const auto* shapes = new std::vector<TtShape>{
      TtShape({5, 3}, {4, 7}, {6}),
      TtShape({2, 3, 5}, {3, 2, 4}, {2, 4}),
      TtShape({2, 5, 41}, {10, 14, 15}, {8, 8}),
      TtShape({6, 2, 3, 4}, {3, 5, 4, 2}, {7, 3, 5}),
      TtShape({2, 3, 2, 3, 2}, {3, 2, 2, 2, 3}, {3, 6, 2, 5}),
      TtShape({2, 3, 4, 2, 3, 2}, {2, 2, 4, 2, 2, 3}, {2, 3, 4, 3, 2}),
  };
  return *shapes;
}

// After core k, counted from the last, B n_1 .. n_{k-1} rows of r_{k-1} m_k .. m_K are left.
TEST(LinearCostTest, SequentialOfAnyShape) {
  for (const TtShape& shape : UnequalShapes()) {
    for (const int64_t batch : {2, 33}) {
      SCOPED_TRACE(shape.modes_name() + " ranks " + shape.ranks_name());
      int64_t held = 0, macs = 0;
      for (int64_t k = 1; k <= shape.cores(); ++k) {
        int64_t rows = batch, outputs = 1;
        for (int64_t i = 1; i < k; ++i) rows *= shape.in_modes()[i - 1];
        for (int64_t i = k; i <= shape.cores(); ++i) outputs *= shape.out_modes()[i - 1];
        const int64_t left = rows * shape.ranks()[k - 1] * outputs;
        if (k > 1) held += left;
        macs += left * shape.in_modes()[k - 1] * shape.ranks()[k];
      }
      int64_t cores = 0;
      for (int64_t k = 1; k <= shape.cores(); ++k) {
        cores += shape.ranks()[k - 1] * shape.in_modes()[k - 1] * shape.out_modes()[k - 1] *
                 shape.ranks()[k];
      }
      for (const char* variant : {"sequential", "sequential-bmm"}) {
        const LinearCost cost = Predict(variant, shape, batch);
        EXPECT_EQ(cost.bytes.weight, 4 * cores) << variant;
        EXPECT_EQ(cost.bytes.held, 4 * (batch * shape.in_features() + held + cores)) << variant;
        EXPECT_EQ(cost.flops, 6 * macs) << variant;
      }
      EXPECT_EQ(macs, batch * shape.sequential_macs_per_row());
    }
  }
}

// After core k, B m_1 .. m_k n_{k+1} .. n_K r_k elements are left.
TEST(LinearCostTest, LeftToRightOfAnyShape) {
  for (const TtShape& shape : UnequalShapes()) {
    SCOPED_TRACE(shape.modes_name() + " ranks " + shape.ranks_name());
    constexpr int64_t kBatch = 7;
    int64_t held = 0, macs = 0;
    int64_t elements = kBatch * shape.in_features();
    for (int64_t k = 0; k < shape.cores(); ++k) {
      held += elements;  // Its permuted copy; of x, beside x.
      if (k > 0) held += Product(shape.CoreSizes(k));
      macs += elements * shape.m(k) * shape.right_rank(k);
      elements = elements / (shape.left_rank(k) * shape.n(k)) * shape.m(k) * shape.right_rank(k);
    }
    const LinearCost cost = Predict("sequential-l2r", shape, kBatch);
    EXPECT_EQ(cost.bytes.held, 4 * (kBatch * shape.in_features() + held));
    EXPECT_EQ(cost.flops, 6 * macs);
    EXPECT_EQ(Predict("einsum", shape, kBatch).flops, 6 * macs);
  }
}

TEST(LinearCostTest, NaiveOfAnyShape) {
  for (const TtShape& shape : UnequalShapes()) {
    SCOPED_TRACE(shape.modes_name() + " ranks " + shape.ranks_name());
    constexpr int64_t kBatch = 7;
    int64_t joins = 0, rows = shape.n(0) * shape.m(0);
    for (int64_t k = 1; k + 1 < shape.cores(); ++k) {
      rows *= shape.n(k) * shape.m(k);
      joins += rows * shape.right_rank(k);
    }
    const LinearCost cost = Predict("naive", shape, kBatch);
    EXPECT_EQ(cost.bytes.held,
              4 * (kBatch * shape.in_features() + joins + shape.dense_parameters()));
    EXPECT_EQ(cost.flops, 6 * (kBatch * shape.dense_parameters() + shape.rebuild_macs()));
  }
}

// The claim C1 in the thread's own terms: at d = 16, r = 8 the cores are d^2 (r^2 + 2r) = 20480
// elements against d^6 = 16777216, and the crossover of what is held is near 2 B r = d^3.
TEST(LinearCostTest, HeldBytesCrossTheDenseLayersNearTheThreadsLaw) {
  const TtShape shape = TtShape::Cube(3, 16, 8);
  auto kept = [&](const char* variant, int64_t batch) {
    const LinearCost cost = Predict(variant, shape, batch);
    return *cost.bytes.weight + *cost.bytes.held;
  };
  EXPECT_EQ(*Predict("sequential", shape, 1).bytes.weight, 4 * 20480);
  // (2r + 1) B d^3 + 2 * 20480 > d^6 + B d^3 from B = 256 on, where 2 B r = d^3.
  EXPECT_LT(kept("sequential", 255), kept("dense", 255));
  EXPECT_GT(kept("sequential", 256), kept("dense", 256));
}

TEST(LinearCostTest, BytesScaleWithTheElement) {
  for (const auto& variant : LinearVariants()) {
    const TtShape shape({2, 3, 5}, {3, 2, 4}, {2, 4});
    if (!variant->WhySkipped({shape, 7, Phase::kTrain, DType::kFloat64}).empty()) continue;
    const LinearCost narrow =
        PredictLinearCost(*variant, {shape, 7, Phase::kTrain, DType::kFloat32});
    const LinearCost wide = PredictLinearCost(*variant, {shape, 7, Phase::kTrain, DType::kFloat64});
    EXPECT_EQ(*wide.bytes.weight, 2 * *narrow.bytes.weight) << variant->name();
    EXPECT_EQ(*wide.bytes.held, 2 * *narrow.bytes.held) << variant->name();
    EXPECT_EQ(wide.flops, narrow.flops) << variant->name();
  }
}

// SGD updates in place: the parameters' gradients alone are left. Adam keeps two moments of every
// parameter, from the first step on; its update takes a root and a quotient beside them, and for a
// moment a number wrapped as float64 and converted to float32.
TEST(LinearCostTest, OptimizerState) {
  const TtShape shape({2, 3, 5}, {3, 2, 4}, {2, 4});
  const int64_t cores = 2 * 3 * 2 + 2 * 3 * 2 * 4 + 4 * 5 * 4, largest = 4 * 5 * 4;
  ASSERT_EQ(shape.parameters(), cores);
  for (const auto& variant : LinearVariants()) {
    if (!variant->WhySkipped({shape, 7, Phase::kStepAdam, DType::kFloat64}).empty()) continue;
    SCOPED_TRACE(variant->name());
    const int64_t parameters = variant->is_dense() ? shape.dense_parameters() : cores;
    const int64_t updated = variant->is_dense() ? shape.dense_parameters() : largest;
    auto predict = [&](Phase phase, DType dtype = DType::kFloat32) {
      return PredictLinearCost(*variant, {shape, 7, phase, dtype}).bytes;
    };
    const MemoryFigures train = predict(Phase::kTrain), sgd = predict(Phase::kStepSgd),
                        adam = predict(Phase::kStepAdam);
    EXPECT_EQ(train.step_peak, std::nullopt);
    EXPECT_EQ(sgd.step_peak, 4 * parameters);
    EXPECT_EQ(sgd.held, train.held);
    EXPECT_EQ(sgd.backward_peak, train.backward_peak);
    EXPECT_EQ(sgd.peak, train.peak);
    const int64_t state = 2 * 4 * parameters;
    EXPECT_EQ(adam.weight, train.weight);
    EXPECT_EQ(adam.held, train.held) << "the state is not held for the backward";
    EXPECT_EQ(*adam.forward_peak, state + *train.forward_peak);
    EXPECT_EQ(*adam.backward_peak, state + *train.backward_peak);
    EXPECT_EQ(adam.step_peak, 4 * (3 * parameters + 2 * updated) + 8 + 4);
    EXPECT_EQ(predict(Phase::kStepAdam, DType::kFloat64).step_peak,
              8 * (3 * parameters + 2 * updated) + 8);
  }
}

TEST(LinearCostTest, PhasesHaveTheirStages) {
  for (const auto& variant : LinearVariants()) {
    for (const Phase phase : kPhases) {
      const LinearProblem problem{TtShape::Cube(3, 4, 2), 7, phase, DType::kFloat32};
      if (!variant->WhySkipped(problem).empty()) continue;
      const MemoryFigures bytes = PredictLinearCost(*variant, problem).bytes;
      const bool train = phase != Phase::kInference;
      const bool step = phase == Phase::kStepSgd || phase == Phase::kStepAdam;
      EXPECT_TRUE(bytes.weight && bytes.forward_peak && bytes.peak);
      EXPECT_EQ(bytes.held.has_value(), train);
      EXPECT_EQ(bytes.backward_peak.has_value(), train);
      EXPECT_EQ(bytes.step_peak.has_value(), step);
      const int64_t base = *bytes.weight + 4 * 7 * 64;
      EXPECT_EQ(*bytes.peak, base + std::max({*bytes.forward_peak, bytes.backward_peak.value_or(0),
                                              bytes.step_peak.value_or(0)}));
    }
  }
}

TEST(LinearCostTest, NamesEveryByte) {
  std::vector<TtShape> shapes = UnequalShapes();
  shapes.insert(
      shapes.end(),
      {TtShape({2, 3, 5}, {3, 2, 4}, {1, 1}), TtShape({2, 3, 5, 1}, {1, 2, 4, 3}, {2, 1, 2}),
       TtShape({5, 4, 3}, {1, 1, 1}, {2, 2}), TtShape({1, 1}, {1, 1}, {1})});
  for (const auto& variant : LinearVariants()) {
    for (const TtShape& shape : shapes) {
      for (const Phase phase : kPhases) {
        for (const int64_t batch : {1, 7}) {
          const LinearProblem problem{shape, batch, phase, DType::kFloat32};
          if (!variant->WhySkipped(problem).empty()) continue;
          SCOPED_TRACE(variant->name() + " " + shape.modes_name() + " " + Name(phase));
          const LinearCost cost = PredictLinearCost(*variant, problem);
          EXPECT_EQ(Sum(cost.held_terms), cost.bytes.held.value_or(0));
          EXPECT_EQ(Sum(cost.peak_terms), cost.bytes.peak);
          int64_t allocated = 0;
          for (const cost::Ledger::Event& event : cost.events) {
            if (event.bytes > 0) allocated += event.bytes;
            EXPECT_NE(event.name, "");
          }
          EXPECT_EQ(cost.allocated_bytes, allocated);
        }
      }
    }
  }
}

TEST(LinearCostTest, ThrowsWhereACountPasses64Bits) {
  // 2^62 elements of W fit, their bytes do not.
  const int64_t half = int64_t{1} << 31;
  EXPECT_THROW(Predict("dense", TtShape({half, 1}, {half, 1}, {1}), 1), ShapeError);
  // 2^40 elements of W and 2^50 of x and y fit, 2 * 2^70 operations do not.
  const TtShape million({1024, 1024}, {1024, 1024}, {2});
  EXPECT_THROW(Predict("dense", million, 1 << 30), ShapeError);
  EXPECT_NO_THROW(Predict("dense", million, 1 << 20));
  EXPECT_THROW(Predict("sequential", million, int64_t{1} << 41), ShapeError);
}

}  // namespace
}  // namespace ttbench
