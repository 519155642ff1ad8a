// How the feed-forward matrices of a transformer are written as trains of cores.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/shape.h"
#include "networks/minilm/encoder.h"

namespace ttbench {

class Factorization {
 public:
  // Both sizes split into `cores` factors (Factorize); matrix `up` takes hidden to inner, `down`
  // inner to hidden. Throws ShapeError as Factorize and TtShape do.
  static Factorization TensorTrain(int64_t hidden, int64_t inner, int64_t cores, FactorOrder order);
  // The two factors of a truncated singular value decomposition: two cores, the first of all
  // outputs and the second of all inputs, so that W = G_1 G_2 is any matrix of that rank.
  static Factorization Svd(int64_t hidden, int64_t inner);

  // The matrix's layer with all inner ranks `rank`, clipped to what the modes admit.
  TtShape Shape(FeedForward which, int64_t rank) const;
  // The largest rank that is not clipped everywhere: from it on layers are exact.
  int64_t FullRank() const;
  // Elements of both matrices' cores.
  int64_t Parameters(int64_t rank) const;
  // The largest rank, up to the full one, whose layers have at most `share` of the dense matrices'
  // elements; 0 if rank 1 has more.
  int64_t RankWithin(double share) const;

  bool is_svd() const { return svd_; }
  // Of the hidden and of the inner size; {384} and {1536} for the SVD.
  const Modes& hidden() const { return hidden_; }
  const Modes& inner() const { return inner_; }
  // "svd", or "16x24:32x48"
  std::string name() const;

 private:
  Factorization(bool svd, Modes hidden, Modes inner);

  bool svd_;
  Modes hidden_, inner_;
};

}  // namespace ttbench
