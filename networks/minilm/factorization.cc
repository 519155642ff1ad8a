#include "networks/minilm/factorization.h"

#include <algorithm>
#include <utility>

namespace ttbench {

Factorization::Factorization(bool svd, Modes hidden, Modes inner)
    : svd_(svd), hidden_(std::move(hidden)), inner_(std::move(inner)) {}

Factorization Factorization::TensorTrain(int64_t hidden, int64_t inner, int64_t cores,
                                         FactorOrder order) {
  return Factorization(false, Factorize(hidden, cores, order), Factorize(inner, cores, order));
}

Factorization Factorization::Svd(int64_t hidden, int64_t inner) {
  return Factorization(true, {hidden}, {inner});
}

TtShape Factorization::Shape(FeedForward which, int64_t rank) const {
  const Modes& in = which == FeedForward::kUp ? hidden_ : inner_;
  const Modes& out = which == FeedForward::kUp ? inner_ : hidden_;
  return svd_ ? TtShape::Uniform({1, in[0]}, {out[0], 1}, rank) : TtShape::Uniform(in, out, rank);
}

int64_t Factorization::FullRank() const {
  const TtShape full = Shape(FeedForward::kUp, CheckedMul(Product(hidden_), Product(inner_)));
  return *std::max_element(full.ranks().begin(), full.ranks().end());
}

int64_t Factorization::Parameters(int64_t rank) const {
  return Shape(FeedForward::kUp, rank).parameters() + Shape(FeedForward::kDown, rank).parameters();
}

int64_t Factorization::RankWithin(double share) const {
  const double dense = 2 * static_cast<double>(Product(hidden_) * Product(inner_));
  int64_t rank = 0;
  while (rank < FullRank() && static_cast<double>(Parameters(rank + 1)) <= share * dense) ++rank;
  return rank;
}

std::string Factorization::name() const {
  return svd_ ? "svd" : FormatModes(hidden_) + ":" + FormatModes(inner_);
}

}  // namespace ttbench
