#include "kernels/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace ttbench {
namespace {

using Cores = std::vector<std::vector<double>>;

const std::vector<TtShape>& Shapes() {
  static const auto* shapes = new std::vector<TtShape>{
      TtShape::Cube(3, 3, 2),
      TtShape({5, 3}, {4, 7}, {6}),
      TtShape({2, 3, 5}, {3, 2, 4}, {2, 4}),
      TtShape({3, 2, 2, 4}, {2, 3, 4, 1}, {5, 3, 2}),
      TtShape({2, 3, 2, 3, 2}, {3, 2, 2, 2, 3}, {3, 6, 2, 5}),
      TtShape({2, 3, 2, 2, 3, 2}, {2, 2, 3, 2, 1, 3}, {2, 3, 4, 3, 2}),
      TtShape({2, 3, 5}, {3, 2, 4}, {1, 1}),
      TtShape({1, 3, 5}, {3, 1, 4}, {2, 3}),
      TtShape({4, 3, 1, 1}, {1, 2, 4, 3}, {2, 3, 2}),
      TtShape({5, 4, 3}, {1, 1, 1}, {4, 2}),
      TtShape({1, 1}, {1, 1}, {1}),
  };
  return *shapes;
}

// A layer with elements in [-1, 1], its matrix from the definition, and its results.
struct Case {
  Case(const TtShape& shape, int64_t rows) : shape(shape), rows(rows) {
    for (int64_t k = 0; k < shape.cores(); ++k) cores.push_back(Draw(Product(shape.CoreSizes(k))));
    x = Draw(rows * shape.in_features());
    dy = Draw(rows * shape.out_features());
    matrix = MatrixByDefinition(shape, cores);
    result = EvaluateOracle(shape, cores, x, dy);
  }

  std::vector<double> Draw(int64_t count) {
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<double> values(count);
    for (double& value : values) value = uniform(random);
    return values;
  }
  double W(int64_t j, int64_t i) const { return matrix[j * shape.in_features() + i]; }

  std::mt19937_64 random{9};
  TtShape shape;
  int64_t rows;
  Cores cores;
  std::vector<double> x, dy, matrix;
  OracleResult result;
};

void ExpectNear(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (const double value : want) largest = std::max(largest, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-13 * largest) << i;
}

// n = m = (2, 1) and (1, 2): W[j2, i1] = sum_a G1[i1, a] G2[a, j2].
TEST(MatrixByDefinitionTest, IsAMatrixProductWhereModesAreOnOneSide) {
  const TtShape shape({2, 1}, {1, 2}, {2});
  const std::vector<double> matrix = MatrixByDefinition(shape, {{1, 2, 3, 4}, {5, 6, 7, 8}});
  // [1 2; 3 4] [5 6; 7 8] = [19 22; 43 50], transposed.
  EXPECT_EQ(matrix, (std::vector<double>{19, 43, 22, 50}));
}

// Rank 1: the Kronecker product of the cores, each of which lies as [n, m], transposed.
TEST(MatrixByDefinitionTest, IsAKroneckerProductAtRankOne) {
  const TtShape shape({2, 2}, {2, 2}, {1});
  const std::vector<double> matrix = MatrixByDefinition(shape, {{1, 2, 3, 4}, {5, 6, 7, 8}});
  EXPECT_EQ(matrix, (std::vector<double>{5, 7, 15, 21,    // 1 * [5 7; 6 8], 3 * [5 7; 6 8]
                                         6, 8, 18, 24,    //
                                         10, 14, 20, 28,  // 2 * .., 4 * ..
                                         12, 16, 24, 32}));
}

// One element at each of three cores: W has a one where their modes say, and nowhere else.
TEST(MatrixByDefinitionTest, PutsEachElementWhereItsModesSay) {
  const TtShape shape({2, 3, 4}, {3, 2, 2}, {2, 3});
  Cores cores{std::vector<double>(2 * 3 * 2), std::vector<double>(2 * 3 * 2 * 3),
              std::vector<double>(3 * 4 * 2)};
  const int64_t i1 = 1, j1 = 2, a = 1, i2 = 2, j2 = 0, b = 2, i3 = 3, j3 = 1;
  cores[0][(i1 * 3 + j1) * 2 + a] = 2;
  cores[1][((a * 3 + i2) * 2 + j2) * 3 + b] = 3;
  cores[2][(b * 4 + i3) * 2 + j3] = 5;
  std::vector<double> want(12 * 24);
  want[((j1 * 2 + j2) * 2 + j3) * 24 + (i1 * 3 + i2) * 4 + i3] = 30;
  EXPECT_EQ(MatrixByDefinition(shape, cores), want);
}

TEST(EvaluateOracleTest, IsTheDenseProductByHand) {
  // W = [19 43; 22 50] as above; x = (1, 10), dy = (1, -1).
  const TtShape shape({2, 1}, {1, 2}, {2});
  const OracleResult result = EvaluateOracle(shape, {{1, 2, 3, 4}, {5, 6, 7, 8}}, {1, 10}, {1, -1});
  EXPECT_EQ(result.y, (std::vector<double>{449, 522}));
  EXPECT_EQ(result.dx, (std::vector<double>{-3, -7}));
  // dW[j, i] = dy_j x_i; dG1[i, a] = sum_j dW[j, i] G2[a, j]; dG2[a, j] = sum_i dW[j, i] G1[i, a].
  EXPECT_EQ(result.dcores, (Cores{{-1, -1, -10, -10}, {31, -31, 42, -42}}));
}

TEST(EvaluateOracleTest, ForwardIsTheDefinition) {
  for (const TtShape& shape : Shapes()) {
    for (const int64_t rows : {1, 3}) {
      SCOPED_TRACE(shape.modes_name() + " ranks " + shape.ranks_name());
      const Case c(shape, rows);
      std::vector<double> want;
      for (int64_t b = 0; b < rows; ++b)
        for (int64_t j = 0; j < shape.out_features(); ++j) {
          double sum = 0;
          for (int64_t i = 0; i < shape.in_features(); ++i)
            sum += c.W(j, i) * c.x[b * shape.in_features() + i];
          want.push_back(sum);
        }
      ExpectNear(c.result.y, want);
    }
  }
}

TEST(EvaluateOracleTest, InputGradientIsDyTimesW) {
  for (const TtShape& shape : Shapes()) {
    SCOPED_TRACE(shape.modes_name() + " ranks " + shape.ranks_name());
    const Case c(shape, 3);
    std::vector<double> want;
    for (int64_t b = 0; b < c.rows; ++b)
      for (int64_t i = 0; i < shape.in_features(); ++i) {
        double sum = 0;
        for (int64_t j = 0; j < shape.out_features(); ++j)
          sum += c.dy[b * shape.out_features() + j] * c.W(j, i);
        want.push_back(sum);
      }
    ExpectNear(c.result.dx, want);
  }
}

// W is linear in each element of a core: the derivative by it is W with the core replaced by that
// element's unit, and the gradient its inner product with dW = dy^T x.
TEST(EvaluateOracleTest, CoreGradientsProjectTheDenseGradient) {
  for (const TtShape& shape : Shapes()) {
    SCOPED_TRACE(shape.modes_name() + " ranks " + shape.ranks_name());
    Case c(shape, 3);
    std::vector<double> dw(c.matrix.size());
    for (int64_t b = 0; b < c.rows; ++b)
      for (int64_t j = 0; j < shape.out_features(); ++j)
        for (int64_t i = 0; i < shape.in_features(); ++i)
          dw[j * shape.in_features() + i] +=
              c.dy[b * shape.out_features() + j] * c.x[b * shape.in_features() + i];
    ASSERT_EQ(c.result.dcores.size(), c.cores.size());
    for (size_t k = 0; k < c.cores.size(); ++k) {
      const std::vector<double> core = c.cores[k];
      ASSERT_EQ(c.result.dcores[k].size(), core.size());
      double largest = 0;
      for (const double value : c.result.dcores[k]) largest = std::max(largest, std::abs(value));
      for (int draw = 0; draw < 10; ++draw) {
        const size_t element = c.random() % core.size();
        c.cores[k].assign(core.size(), 0);
        c.cores[k][element] = 1;
        const std::vector<double> derivative = MatrixByDefinition(shape, c.cores);
        double want = 0;
        for (size_t i = 0; i < dw.size(); ++i) want += dw[i] * derivative[i];
        EXPECT_NEAR(c.result.dcores[k][element], want, 1e-12 * largest) << k << ", " << element;
      }
      c.cores[k] = core;
    }
  }
}

// sum(y * dy) is linear in every single element, so that a central difference carries no error but
// rounding, at any step.
TEST(EvaluateOracleTest, GradientsAreCentralDifferences) {
  for (const TtShape& shape : Shapes()) {
    SCOPED_TRACE(shape.modes_name() + " ranks " + shape.ranks_name());
    Case c(shape, 2);
    auto expect_difference = [&](std::vector<double>* values, const std::vector<double>& gradient) {
      ASSERT_EQ(values->size(), gradient.size());
      auto loss = [&] {
        const std::vector<double> y = EvaluateOracle(shape, c.cores, c.x, {}).y;
        double sum = 0;
        for (size_t i = 0; i < y.size(); ++i) sum += y[i] * c.dy[i];
        return sum;
      };
      double largest = 0;
      for (const double value : gradient) largest = std::max(largest, std::abs(value));
      for (int draw = 0; draw < 10; ++draw) {
        const size_t element = c.random() % values->size();
        const double value = (*values)[element];
        (*values)[element] = value + 0.5;
        const double above = loss();
        (*values)[element] = value - 0.5;
        const double below = loss();
        (*values)[element] = value;
        EXPECT_NEAR(gradient[element], above - below, 1e-11 * (1 + largest)) << element;
      }
    };
    expect_difference(&c.x, c.result.dx);
    for (size_t k = 0; k < c.cores.size(); ++k) {
      SCOPED_TRACE("core " + std::to_string(k + 1));
      expect_difference(&c.cores[k], c.result.dcores[k]);
    }
  }
}

TEST(EvaluateOracleTest, GivesNoGradientsWithoutDy) {
  const Case c(TtShape({2, 3, 5}, {3, 2, 4}, {2, 4}), 3);
  const OracleResult forward = EvaluateOracle(c.shape, c.cores, c.x, {});
  EXPECT_EQ(forward.y, c.result.y);
  EXPECT_TRUE(forward.dx.empty());
  EXPECT_TRUE(forward.dcores.empty());
}

TEST(EvaluateOracleTest, TakesNoRows) {
  const Case c(TtShape({2, 3, 5}, {3, 2, 4}, {2, 4}), 1);
  EXPECT_TRUE(EvaluateOracle(c.shape, c.cores, {}, {}).y.empty());
}

}  // namespace
}  // namespace ttbench
