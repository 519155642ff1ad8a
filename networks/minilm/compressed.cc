#include "networks/minilm/compressed.h"

#include <memory>

#include "kernels/variant.h"

namespace ttbench {

std::vector<MatrixId> FeedForwardMatrices(const NamedTensors& weights) {
  std::vector<MatrixId> matrices;
  for (int64_t layer = 0; layer < LayersOf(weights); ++layer) {
    for (const FeedForward which : kFeedForwards) matrices.emplace_back(layer, which);
  }
  return matrices;
}

int64_t TtFeedForward::Parameters() const {
  int64_t parameters = 0;
  for (const auto& [matrix, layer] : layers_) parameters += layer->shape().parameters();
  return parameters;
}

MakeLinear TtFeedForward::Computed(const std::string& variant) const {
  return [layers = layers_, variant, dense = DenseFeedForward(kBaselineVariant)](
             int64_t layer, FeedForward which, const at::Tensor& weight,
             const at::Tensor& bias) -> Linear {
    const auto found = layers.find({layer, which});
    if (found == layers.end()) return dense(layer, which, weight, bias);
    TtLinear copy(std::dynamic_pointer_cast<TtLinearImpl>(found->second->clone()));
    copy->set_variant(variant);
    return [copy](const at::Tensor& x) mutable { return copy->forward(x); };
  };
}

MakeLinear TtFeedForward::Rebuilt() const {
  return [layers = layers_, dense = DenseFeedForward(kBaselineVariant)](
             int64_t layer, FeedForward which, const at::Tensor& weight,
             const at::Tensor& bias) -> Linear {
    const auto found = layers.find({layer, which});
    return dense(layer, which, found == layers.end() ? weight : found->second->to_dense(), bias);
  };
}

FeedForwardSvd::FeedForwardSvd(const NamedTensors& weights, const Factorization& factorization,
                               const std::vector<MatrixId>& matrices)
    : factorization_(factorization), matrices_(matrices) {
  for (const MatrixId& matrix : matrices) {
    const auto [weight, bias] = FeedForwardOf(weights, matrix.first, matrix.second);
    const TtShape modes = factorization.Shape(matrix.second, 1);
    decomposed_.emplace(matrix,
                        Decomposed{TtSvd(weight, modes.in_modes(), modes.out_modes()), bias});
  }
}

TtFeedForward FeedForwardSvd::Truncate(int64_t rank) { return Truncate(rank, matrices_); }

TtFeedForward FeedForwardSvd::Truncate(int64_t rank, const std::vector<MatrixId>& matrices) {
  std::map<MatrixId, TtLinear> layers;
  for (const MatrixId& matrix : matrices) {
    Decomposed& decomposed = decomposed_.at(matrix);
    const Modes ranks = factorization_.Shape(matrix.second, rank).ranks();
    layers.emplace(matrix, decomposed.svd.Truncate(ranks, decomposed.bias));
  }
  return TtFeedForward(std::move(layers));
}

}  // namespace ttbench
