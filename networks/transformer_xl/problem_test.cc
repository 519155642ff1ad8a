#include "networks/transformer_xl/problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace ttbench {
namespace {

TEST(TransformerXlProblemTest, NamesSaySizesAndLayers) {
  TransformerXlProblem problem;
  problem.network = Wt103Base();
  EXPECT_EQ(SizeName(problem), "L16-D410-I2100-T150-M150");
  problem.network = CompressedWt103Base("fused", 8);
  EXPECT_EQ(SizeName(problem), "L16-D410-I2100-T150-M150/2x5x41:10x14x15/r8");
  problem.network.up = TtShape::Parse("41x5x2:10x14x15", 8);
  problem.network.down = TtShape::Parse("15x14x10:2x5x41", 8);
  problem.network.vocabulary = 20000;
  problem.network.heads = 5;
  EXPECT_EQ(SizeName(problem),
            "L16-D410-I2100-T150-M150-H5-V20000/41x5x2:10x14x15+15x14x10:2x5x41/r8");
}

TEST(TransformerXlProblemTest, TheMirroredLayerHasTheRanksInReverse) {
  const TtShape mirrored = Mirrored(TtShape({2, 5, 41}, {10, 14, 15}, {3, 4}));
  EXPECT_EQ(mirrored.modes_name(), "10x14x15:2x5x41");
  EXPECT_EQ(mirrored.ranks(), (Modes{1, 3, 4, 1}));
}

TEST(TransformerXlProblemTest, TargetsAreTheWordsThatFollow) {
  TransformerXlProblem problem;
  problem.network.target_len = 5;
  problem.network.vocabulary = 1000;
  problem.batch = 3;
  const std::vector<int64_t> tokens = TokensOf(problem), targets = TargetsOf(problem);
  ASSERT_EQ(tokens.size(), 15u);
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t t = 0; t + 1 < 5; ++t) EXPECT_EQ(targets[t * 3 + b], tokens[(t + 1) * 3 + b]);
}

// Of 20 rows of 150 at the published size, as many in each part as Zipf's law gives, within 1%.
TEST(TransformerXlProblemTest, WordsFollowZipfsLaw) {
  TransformerXlProblem problem;
  problem.network = Wt103Base();
  problem.batch = 20;
  const std::vector<int64_t> targets = TargetsOf(problem);
  const double all = std::log(267736.0);
  for (int64_t part = 0; part <= 3; ++part) {
    const int64_t begin = problem.network.PartBegin(part), end = problem.network.PartEnd(part);
    const auto count = std::count_if(targets.begin(), targets.end(),
                                     [&](int64_t word) { return word >= begin && word < end; });
    const double share = std::log(static_cast<double>(end + 1) / static_cast<double>(begin + 1));
    EXPECT_NEAR(static_cast<double>(count), 3000 * share / all, 30) << part;
    EXPECT_GT(count, 0);
  }
  EXPECT_EQ(*std::min_element(targets.begin(), targets.end()), 0);
  EXPECT_LT(*std::max_element(targets.begin(), targets.end()), 267735);
}

}  // namespace
}  // namespace ttbench
