#include "networks/minilm/factorization.h"

#include <gtest/gtest.h>

namespace ttbench {
namespace {

TEST(FactorizationTest, TensorTrainsOfBothMatrices) {
  const auto train = Factorization::TensorTrain(384, 1536, 3, FactorOrder::kAscending);
  EXPECT_EQ(train.name(), "6x8x8:8x12x16");
  EXPECT_EQ(train.Shape(FeedForward::kUp, 4), TtShape::Parse("6x8x8:8x12x16", 4));
  EXPECT_EQ(train.Shape(FeedForward::kDown, 4), TtShape::Parse("8x12x16:6x8x8", 4));
  // 48 r + 96 r^2 + 128 r, twice.
  EXPECT_EQ(train.Parameters(4), 2 * (48 * 4 + 96 * 16 + 128 * 4));
  // The unfoldings are 48 x 12288 and 4608 x 128.
  EXPECT_EQ(train.FullRank(), 128);
  EXPECT_EQ(train.Shape(FeedForward::kUp, 128).ranks(), (Modes{1, 48, 128, 1}));
}

TEST(FactorizationTest, SvdIsALayerOfTwoFactors) {
  const auto svd = Factorization::Svd(384, 1536);
  EXPECT_EQ(svd.name(), "svd");
  EXPECT_EQ(svd.Parameters(10), 2 * 10 * (384 + 1536));
  EXPECT_EQ(svd.FullRank(), 384);
  const TtShape up = svd.Shape(FeedForward::kUp, 10);
  EXPECT_EQ(up.CoreSizes(0), (Modes{1, 1, 1536, 10}));
  EXPECT_EQ(up.CoreSizes(1), (Modes{10, 384, 1, 1}));
}

TEST(FactorizationTest, RankWithinAShareOfTheElements) {
  const auto svd = Factorization::Svd(384, 1536);
  // 384 * 1536 / 2 / 1920 = 153.6
  EXPECT_EQ(svd.RankWithin(0.5), 153);
  EXPECT_EQ(svd.RankWithin(1e-6), 0);
  EXPECT_EQ(svd.RankWithin(100), 384);
  const auto train = Factorization::TensorTrain(384, 1536, 2, FactorOrder::kAscending);
  // Cores of 512 r and 1152 r elements: 384 * 1536 / 1664 = 354.4
  EXPECT_EQ(train.RankWithin(1), 354);
}

}  // namespace
}  // namespace ttbench
