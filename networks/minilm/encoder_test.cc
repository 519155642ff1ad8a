// The encoder with the trained weights: against the model written in NumPy, against figures that
// others published, and with its feed-forward layers as tensor trains.
#include "networks/minilm/encoder.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "networks/minilm/compressed.h"
#include "networks/minilm/factorization.h"
#include "networks/minilm/quality.h"
#include "networks/minilm/safetensors.h"

namespace ttbench {
namespace {

const NamedTensors& Weights() {
  static const auto* weights = new NamedTensors(ReadSafetensors(std::getenv("MINILM_WEIGHTS")));
  return *weights;
}

struct Sentences {
  at::Tensor ids, lengths, embeddings;
};

// The first `count` sentences, which NumPy embedded.
Sentences Read(const char* variable, int64_t count) {
  const NamedTensors tensors = ReadSafetensors(std::getenv(variable));
  return {tensors.at("ids").narrow(0, 0, count), tensors.at("lengths").narrow(0, 0, count),
          tensors.at("embeddings").narrow(0, 0, count)};
}
Sentences Verses(int64_t count) { return Read("MINILM_VERSES", count); }

double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

class MiniLmTest : public testing::Test {
 protected:
  MiniLmTest() { at::set_num_threads(1); }
};

TEST_F(MiniLmTest, IsTheModelInNumPyInFloat64) {
  const Sentences verses = Verses(12);
  const MiniLm model(Weights(), DenseFeedForward("dense"), at::kDouble);
  EXPECT_EQ(model.layers(), 6);
  EXPECT_LE(Difference(model.Embed(verses.ids, verses.lengths), verses.embeddings), 1e-12);
}

TEST_F(MiniLmTest, IsTheModelInFloat32) {
  const Sentences verses = Verses(12);
  for (const char* variant : {"dense", "dense-onednn"}) {
    const MiniLm model(Weights(), DenseFeedForward(variant));
    const at::Tensor embeddings = model.Embed(verses.ids, verses.lengths);
    EXPECT_EQ(embeddings.scalar_type(), at::kFloat);
    EXPECT_LE(Difference(embeddings, verses.embeddings), 2e-6) << variant;
  }
}

// What follows a sentence in its row is never looked at.
TEST_F(MiniLmTest, PaddingDoesNotMatter) {
  const Sentences verses = Verses(3);
  const MiniLm model(Weights(), DenseFeedForward("dense"), at::kDouble);
  at::Tensor other = verses.ids.clone();
  const int64_t length = verses.lengths[0].item<int64_t>();
  ASSERT_LT(length, other.size(1));
  other[0].slice(0, length).fill_(2003);
  EXPECT_LE(Difference(model.Embed(other, verses.lengths), verses.embeddings), 1e-12);
}

// The first example of the sentence-transformers documentation ("Quickstart"): the similarities of
// three sentences, to four decimals.
TEST_F(MiniLmTest, GivesThePublishedSimilarities) {
  const Sentences published = Read("MINILM_PUBLISHED", 3);
  const MiniLm model(Weights(), DenseFeedForward("dense"));
  const at::Tensor embeddings = model.Embed(published.ids, published.lengths);
  const at::Tensor similarities = at::mm(embeddings, embeddings.t());
  EXPECT_NEAR(similarities[0][1].item<double>(), 0.6660, 5e-5);
  EXPECT_NEAR(similarities[0][2].item<double>(), 0.1046, 5e-5);
  EXPECT_NEAR(similarities[1][2].item<double>(), 0.1411, 5e-5);
}

const std::vector<MatrixId> kSome = {
    {0, FeedForward::kUp}, {0, FeedForward::kDown}, {3, FeedForward::kUp}, {5, FeedForward::kDown}};

std::vector<Factorization> Factorizations() {
  return {Factorization::TensorTrain(384, 1536, 3, FactorOrder::kAscending),
          Factorization::TensorTrain(384, 1536, 4, FactorOrder::kDescending),
          Factorization::Svd(384, 1536)};
}

TEST_F(MiniLmTest, FullRankTensorTrainsAreTheModel) {
  const Sentences verses = Verses(4);
  for (const Factorization& factorization : Factorizations()) {
    FeedForwardSvd svd(Weights(), factorization, kSome);
    const TtFeedForward full = svd.Truncate(factorization.FullRank());
    const MiniLm model(Weights(), full.Computed("naive"));
    EXPECT_LE(Difference(model.Embed(verses.ids, verses.lengths), verses.embeddings), 5e-6)
        << factorization.name();
  }
}

TEST_F(MiniLmTest, VariantsComputeTheSameTruncatedModel) {
  const Sentences verses = Verses(4);
  for (const Factorization& factorization : Factorizations()) {
    FeedForwardSvd svd(Weights(), factorization, kSome);
    const TtFeedForward truncated = svd.Truncate(8);
    const at::Tensor expected =
        MiniLm(Weights(), truncated.Rebuilt()).Embed(verses.ids, verses.lengths);
    EXPECT_LT(CompareEmbeddings(verses.embeddings, expected).mean_cosine, 0.9);
    for (const char* variant : {"naive", "sequential", "fused", "fused-panel", "auto"}) {
      const MiniLm model(Weights(), truncated.Computed(variant));
      EXPECT_LE(Difference(model.Embed(verses.ids, verses.lengths), expected), 5e-6)
          << variant << " " << factorization.name();
    }
  }
}

// The other matrices stay as they are.
TEST_F(MiniLmTest, OneMatrixAloneChangesTheModelLess) {
  const Sentences verses = Verses(4);
  FeedForwardSvd svd(Weights(), Factorizations()[0], kSome);
  auto cosine = [&](const std::vector<MatrixId>& matrices) {
    const MiniLm model(Weights(), svd.Truncate(16, matrices).Rebuilt());
    return CompareEmbeddings(verses.embeddings, model.Embed(verses.ids, verses.lengths))
        .mean_cosine;
  };
  const double none = cosine({}), one = cosine({kSome[2]}), all = cosine(kSome);
  EXPECT_NEAR(none, 1, 1e-9);
  EXPECT_LT(one, 1 - 1e-5);
  EXPECT_LT(all, one);
}

TEST_F(MiniLmTest, SaysWhichWeightIsMissing) {
  NamedTensors weights = Weights();
  weights.erase("encoder.layer.3.output.LayerNorm.bias");
  try {
    MiniLm(weights, DenseFeedForward("dense"));
    FAIL() << "no exception";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the model has no weight 'encoder.layer.3.output.LayerNorm.bias'");
  }
  EXPECT_THROW(DenseFeedForward("naive"), std::invalid_argument);
}

}  // namespace
}  // namespace ttbench
