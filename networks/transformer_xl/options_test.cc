#include "networks/transformer_xl/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ttbench {
namespace {

// The published totals of the base configuration, part by part.
TEST(TransformerXlOptionsTest, Wt103BaseHasThePublishedParameters) {
  const ParameterCounts counts(Wt103Base());
  EXPECT_EQ(counts.total(), 151107538);
  EXPECT_EQ(counts.embedding, 109771350);
  EXPECT_EQ(counts.layers, 41066400);
  EXPECT_EQ(counts.feed_forward, 16 * 2 * 410 * 2100);
  // One pair for all layers: with a pair for each there would be 15 * 820 more.
  EXPECT_EQ(counts.attention_biases, 2 * 10 * 41);
  // A bias for each word; for each of three clusters a vector and a bias.
  EXPECT_EQ(counts.softmax, 267735 + 3 * 410 + 3);
}

TEST(TransformerXlOptionsTest, CompressedMatricesHaveTheParametersOfT3nsor) {
  for (const int64_t rank : {1, 2, 8, 16}) {
    const ParameterCounts counts(CompressedWt103Base("sequential", rank));
    // Clipping: the first rank is at most 2 * 10, the second at most 41 * 15.
    EXPECT_EQ(counts.feed_forward, 16 * 2 * (20 * rank + 70 * rank * rank + 615 * rank));
    EXPECT_EQ(counts.total(), 151107538 - 16 * 2 * 410 * 2100 + counts.feed_forward);
  }
}

// "151 M -> 124 M" bounds the rank: rounded to millions, 16 is the largest that gives 124.
TEST(TransformerXlOptionsTest, TheCompressedModelOf124MillionBoundsTheRank) {
  auto millions = [](int64_t rank) {
    return (ParameterCounts(CompressedWt103Base("sequential", rank)).total() + 500000) / 1000000;
  };
  EXPECT_EQ(millions(8), 124);
  EXPECT_EQ(millions(16), 124);
  EXPECT_EQ(millions(17), 125);
}

std::string Refusal(const TransformerXlOptions& options) {
  try {
    CheckOptions(options);
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "";
}

TEST(TransformerXlOptionsTest, RefusesWhatMakesNoModel) {
  EXPECT_EQ(Refusal(Wt103Base()), "");
  EXPECT_EQ(Refusal(CompressedWt103Base("fused", 8)), "");
  TransformerXlOptions options = Wt103Base();
  options.layers = 0;
  EXPECT_EQ(Refusal(options), "Transformer-XL: layers is 0; it must be positive");
  options = Wt103Base();
  options.cutoffs = {20000, 20000};
  EXPECT_EQ(Refusal(options),
            "Transformer-XL: the cutoff 20000 is not between the one before and the vocabulary of "
            "267735");
  options.cutoffs = {267735};
  EXPECT_NE(Refusal(options), "");
  options = Wt103Base();
  options.d_model = 411;
  EXPECT_NE(Refusal(options), "");
  options = CompressedWt103Base("fused", 8);
  options.down = options.up;
  EXPECT_EQ(Refusal(options),
            "Transformer-XL: the shape down is 2x5x41:10x14x15, which is 410 -> 2100; the model "
            "takes 2100 -> 410");
  options.down.reset();
  EXPECT_EQ(Refusal(options), "Transformer-XL: a TT variant needs the shape down, 2100 -> 410");
}

}  // namespace
}  // namespace ttbench
