#include "networks/minilm/quality.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ttbench {
namespace {

TEST(SpearmanTest, IsOneForAnyRisingFunctionAndMinusOneForAFallingOne) {
  EXPECT_DOUBLE_EQ(SpearmanCorrelation({1, 2, 3, 4}, {0.1, 0.2, 5, 1000}), 1);
  EXPECT_DOUBLE_EQ(SpearmanCorrelation({1, 2, 3, 4}, {4, 3, 2, -9}), -1);
}

// Without ties it is 1 - 6 sum d^2 / (n (n^2 - 1)), d the differences of ranks.
TEST(SpearmanTest, IsTheTextbooksFormula) {
  // Ranks 1 2 3 4 5 and 2 1 4 3 5: d^2 = 1 + 1 + 1 + 1.
  EXPECT_DOUBLE_EQ(SpearmanCorrelation({10, 20, 30, 40, 50}, {2, 1, 4, 3, 5}),
                   1 - 6.0 * 4 / (5 * 24));
}

// Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: Pearson's correlation of those is 4.5 / sqrt(4.5 * 5).
TEST(SpearmanTest, EqualValuesShareTheirMeanRank) {
  EXPECT_DOUBLE_EQ(SpearmanCorrelation({7, 8, 8, 9}, {1, 2, 3, 4}), 4.5 / std::sqrt(4.5 * 5));
  EXPECT_EQ(SpearmanCorrelation({3, 3, 3}, {1, 2, 3}), 0);
}

TEST(QualityTest, OfEqualDirectionsIsOne) {
  const at::Tensor rows = at::tensor({1.0, 0.0, 0.6, 0.8, 0.0, 1.0}).view({3, 2});
  const EmbeddingQuality quality = CompareEmbeddings(rows, rows * 3);
  EXPECT_DOUBLE_EQ(quality.mean_cosine, 1);
  EXPECT_DOUBLE_EQ(quality.worst_cosine, 1);
  EXPECT_DOUBLE_EQ(quality.spearman, 1);
}

// The third sentence turns by a right angle. Pairs (0,1), (0,2), (1,2): cosines 0.6, 0, 0.8 before,
// ranks 2 1 3; 0.6, 1, 0.6 after, ranks 1.5 3 1.5: correlation -1.5 / sqrt(2 * 1.5).
TEST(QualityTest, OfATurnedSentence) {
  const at::Tensor before = at::tensor({1.0, 0.0, 0.6, 0.8, 0.0, 1.0}).view({3, 2});
  const at::Tensor after = at::tensor({1.0, 0.0, 0.6, 0.8, 1.0, 0.0}).view({3, 2});
  const EmbeddingQuality quality = CompareEmbeddings(before, after);
  EXPECT_DOUBLE_EQ(quality.mean_cosine, 2.0 / 3);
  EXPECT_DOUBLE_EQ(quality.worst_cosine, 0);
  EXPECT_DOUBLE_EQ(quality.spearman, -1.5 / std::sqrt(3.0));
}

}  // namespace
}  // namespace ttbench
