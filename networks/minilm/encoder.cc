#include "networks/minilm/encoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <stdexcept>

#include "kernels/shape.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

constexpr int64_t kHeads = 12;
constexpr double kNormEpsilon = 1e-12;

const at::Tensor& Get(const NamedTensors& weights, const std::string& name) {
  const auto found = weights.find(name);
  if (found == weights.end()) throw std::runtime_error("the model has no weight '" + name + "'");
  return found->second;
}

std::string LayerName(int64_t layer) { return "encoder.layer." + std::to_string(layer) + "."; }

std::string FeedForwardName(int64_t layer, FeedForward which) {
  return LayerName(layer) + (which == FeedForward::kUp ? "intermediate" : "output") + ".dense.";
}

at::Tensor Norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, kNormEpsilon);
}

}  // namespace

const char* Name(FeedForward which) { return which == FeedForward::kUp ? "up" : "down"; }

MakeLinear DenseFeedForward(const std::string& name) {
  const LinearVariant* variant = FindLinearVariant(name);
  if (!variant || !variant->is_dense()) {
    throw std::invalid_argument("there is no dense variant '" + name + "'");
  }
  return
      [variant](int64_t, FeedForward, const at::Tensor& weight, const at::Tensor& bias) -> Linear {
        // A dense variant looks at the weight alone; a shape has two cores or more.
        const TtShape shape({weight.size(1), 1}, {weight.size(0), 1}, {1});
        return [variant, shape, weight = weight.clone(), bias = bias.clone()](const at::Tensor& x) {
          return variant->Forward(shape, x, {weight}).add_(bias);
        };
      };
}

int64_t LayersOf(const NamedTensors& weights) {
  int64_t layers = 0;
  while (weights.count(FeedForwardName(layers, FeedForward::kUp) + "weight")) ++layers;
  return layers;
}

std::pair<at::Tensor, at::Tensor> FeedForwardOf(const NamedTensors& weights, int64_t layer,
                                                FeedForward which) {
  const std::string name = FeedForwardName(layer, which);
  return {Get(weights, name + "weight"), Get(weights, name + "bias")};
}

MiniLm::MiniLm(const NamedTensors& weights, const MakeLinear& make, at::ScalarType dtype) {
  auto copy = [&](const std::string& name) {
    return Get(weights, name).to(dtype, /*non_blocking=*/false, /*copy=*/true);
  };
  auto affine = [&](const std::string& name) {
    return Affine{copy(name + ".weight"), copy(name + ".bias")};
  };
  words_ = copy("embeddings.word_embeddings.weight");
  positions_ = copy("embeddings.position_embeddings.weight");
  // There is one kind of sentence here, the first.
  type_ = Get(weights, "embeddings.token_type_embeddings.weight")
              .select(0, 0)
              .to(dtype, /*non_blocking=*/false, /*copy=*/true);
  embedding_norm_ = affine("embeddings.LayerNorm");
  for (int64_t i = 0; i < LayersOf(weights); ++i) {
    const std::string name = LayerName(i);
    auto linear = [&](FeedForward which) {
      const auto [weight, bias] = FeedForwardOf(weights, i, which);
      return make(i, which, weight.to(dtype), bias.to(dtype));
    };
    layers_.push_back(
        {affine(name + "attention.self.query"), affine(name + "attention.self.key"),
         affine(name + "attention.self.value"), affine(name + "attention.output.dense"),
         affine(name + "attention.output.LayerNorm"), affine(name + "output.LayerNorm"),
         linear(FeedForward::kUp), linear(FeedForward::kDown)});
  }
}

at::Tensor MiniLm::Attend(const Layer& layer, const at::Tensor& x, const at::Tensor& mask) const {
  const int64_t sentences = x.size(0), tokens = x.size(1), hidden = x.size(2);
  auto heads = [&](const Affine& part) {
    return at::linear(x, part.weight, part.bias)
        .view({sentences, tokens, kHeads, hidden / kHeads})
        .transpose(1, 2);
  };
  const at::Tensor context = at::scaled_dot_product_attention(heads(layer.query), heads(layer.key),
                                                              heads(layer.value), mask);
  return at::linear(context.transpose(1, 2).reshape(x.sizes()), layer.attention_output.weight,
                    layer.attention_output.bias);
}

at::Tensor MiniLm::Embed(const at::Tensor& ids, const at::Tensor& lengths) const {
  const at::NoGradGuard no_grad;
  const int64_t sentences = ids.size(0), tokens = ids.size(1), hidden = words_.size(1);
  // [sentences, tokens]: where there is a token.
  const at::Tensor mask = at::arange(tokens, lengths.options()) < lengths.unsqueeze(1);
  const at::Tensor keys = mask.view({sentences, 1, 1, tokens});
  at::Tensor x = Norm(at::embedding(words_, ids) + positions_.narrow(0, 0, tokens) + type_,
                      embedding_norm_.weight, embedding_norm_.bias);
  for (const Layer& layer : layers_) {
    x = Norm(x + Attend(layer, x, keys), layer.attention_norm.weight, layer.attention_norm.bias);
    const at::Tensor inner = at::gelu(layer.up(x.view({sentences * tokens, hidden})));
    x = Norm(x + layer.down(inner).view(x.sizes()), layer.output_norm.weight,
             layer.output_norm.bias);
  }
  const at::Tensor sum = (x * mask.unsqueeze(2)).sum(1);
  // The mean over the tokens has the sum's direction.
  return sum / sum.norm(2, 1, /*keepdim=*/true);
}

}  // namespace ttbench
