// The feed-forward matrices of a trained model as TT layers, by TT-SVD, at any rank.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tt_linear.h"
#include "networks/minilm/encoder.h"
#include "networks/minilm/factorization.h"

namespace ttbench {

// A layer of the model, one of its two matrices.
using MatrixId = std::pair<int64_t, FeedForward>;
std::vector<MatrixId> FeedForwardMatrices(const NamedTensors& weights);

// Some of the model's matrices as TT layers, the others dense: an encoder's feed-forward layers.
class TtFeedForward {
 public:
  explicit TtFeedForward(std::map<MatrixId, TtLinear> layers) : layers_(std::move(layers)) {}

  const std::map<MatrixId, TtLinear>& layers() const { return layers_; }
  int64_t Parameters() const;  // Of all cores.

  // Copies of the layers, computed by the variant.
  MakeLinear Computed(const std::string& variant) const;
  // Dense layers of the same W, rebuilt from the cores.
  MakeLinear Rebuilt() const;

 private:
  std::map<MatrixId, TtLinear> layers_;
};

// Decomposes matrices of the model once, for layers of any rank.
class FeedForwardSvd {
 public:
  FeedForwardSvd(const NamedTensors& weights, const Factorization& factorization,
                 const std::vector<MatrixId>& matrices);

  // All of them, or those asked for.
  TtFeedForward Truncate(int64_t rank);
  TtFeedForward Truncate(int64_t rank, const std::vector<MatrixId>& matrices);

 private:
  struct Decomposed {
    TtSvd svd;
    at::Tensor bias;
  };
  Factorization factorization_;
  std::vector<MatrixId> matrices_;
  std::map<MatrixId, Decomposed> decomposed_;
};

}  // namespace ttbench
