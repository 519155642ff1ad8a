#include "networks/transformer_xl/transformer_xl.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace ttbench {
namespace {

constexpr double kInitialDeviation = 0.02;

void Require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument("Transformer-XL: " + what);
}

std::string Sizes(const at::Tensor& tensor) {
  std::string text;
  for (const int64_t size : tensor.sizes())
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

void RequireWords(const char* name, const at::Tensor& words, int64_t vocabulary) {
  Require(words.scalar_type() == at::kLong, std::string(name) + " are not int64");
  if (words.numel() == 0) return;
  const int64_t least = words.min().item<int64_t>(), most = words.max().item<int64_t>();
  Require(least >= 0 && most < vocabulary,
          std::string(name) + " go from " + std::to_string(least) + " to " + std::to_string(most) +
              "; the vocabulary has " + std::to_string(vocabulary) + " words");
}

}  // namespace

struct TransformerXlImpl::LayerModule : torch::nn::Module {
  at::Tensor query, key, value, position, output;
  at::Tensor attention_norm_weight, attention_norm_bias;
  at::Tensor feed_forward_norm_weight, feed_forward_norm_bias;
  torch::nn::Linear dense_up = nullptr, dense_down = nullptr;
  TtLinear up = nullptr, down = nullptr;

  at::Tensor Normal(const char* name, at::IntArrayRef sizes, at::ScalarType dtype, double mean) {
    return register_parameter(name, at::empty(sizes, dtype).normal_(mean, kInitialDeviation));
  }

  LayerModule(const TransformerXlOptions& options, at::ScalarType dtype) {
    const int64_t model = options.d_model, heads = options.heads * options.d_head;
    query = Normal("query", {heads, model}, dtype, 0);
    key = Normal("key", {heads, model}, dtype, 0);
    value = Normal("value", {heads, model}, dtype, 0);
    position = Normal("position", {heads, model}, dtype, 0);
    output = Normal("output", {model, heads}, dtype, 0);
    attention_norm_weight = Normal("attention_norm_weight", {model}, dtype, 1);
    attention_norm_bias = register_parameter("attention_norm_bias", at::zeros({model}, dtype));
    feed_forward_norm_weight = Normal("feed_forward_norm_weight", {model}, dtype, 1);
    feed_forward_norm_bias =
        register_parameter("feed_forward_norm_bias", at::zeros({model}, dtype));
  }

  void AddPositionWise(const TransformerXlOptions& options, at::ScalarType dtype) {
    if (options.is_dense()) {
      auto make = [&](const char* name, int64_t in, int64_t out) {
        torch::nn::Linear layer(in, out);
        layer->to(dtype);
        layer->weight.normal_(0, kInitialDeviation);
        layer->bias.zero_();
        return register_module(name, layer);
      };
      dense_up = make("up", options.d_model, options.d_inner);
      dense_down = make("down", options.d_inner, options.d_model);
    } else {
      const auto tt_options =
          TtLinearOptions().variant(options.feed_forward_variant).bias(true).dtype(dtype);
      up = register_module("up", TtLinear(*options.up, tt_options));
      down = register_module("down", TtLinear(*options.down, tt_options));
    }
  }
};

TransformerXlImpl::TransformerXlImpl(TransformerXlOptions options, at::ScalarType dtype)
    : options_(std::move(options)) {
  CheckOptions(options_);
  const at::NoGradGuard no_grad;
  auto normal = [&](const char* name, at::IntArrayRef sizes) {
    return register_parameter(name, at::empty(sizes, dtype).normal_(0, kInitialDeviation));
  };
  embedding_ = normal("embedding", {options_.vocabulary, options_.d_model});
  content_bias_ = normal("content_bias", {options_.heads, options_.d_head});
  position_bias_ = normal("position_bias", {options_.heads, options_.d_head});
  if (options_.clusters() > 0) {
    cluster_weight_ = normal("cluster_weight", {options_.clusters(), options_.d_model});
    cluster_bias_ = register_parameter("cluster_bias", at::zeros({options_.clusters()}, dtype));
  }
  word_bias_ = register_parameter("word_bias", at::zeros({options_.vocabulary}, dtype));
  positions_ = register_buffer("positions", PositionCodes(options_, dtype));
  mask_ = register_buffer("mask", AttentionMask(options_, dtype));
  for (int64_t l = 0; l < options_.layers; ++l) {
    layers_.push_back(register_module("layer" + std::to_string(l + 1),
                                      std::make_shared<LayerModule>(options_, dtype)));
  }
  for (const auto& layer : layers_) layer->AddPositionWise(options_, dtype);
}

TransformerXlWeights<at::Tensor> TransformerXlImpl::Weights() const {
  TransformerXlWeights<at::Tensor> weights;
  weights.embedding = embedding_;
  weights.content_bias = content_bias_;
  weights.position_bias = position_bias_;
  weights.cluster_weight = cluster_weight_;
  weights.cluster_bias = cluster_bias_;
  weights.word_bias = word_bias_;
  for (const auto& layer : layers_) {
    LayerModule* module = layer.get();
    auto& out = weights.layers.emplace_back();
    out.query = module->query;
    out.key = module->key;
    out.value = module->value;
    out.position = module->position;
    out.output = module->output;
    out.attention_norm_weight = module->attention_norm_weight;
    out.attention_norm_bias = module->attention_norm_bias;
    out.feed_forward_norm_weight = module->feed_forward_norm_weight;
    out.feed_forward_norm_bias = module->feed_forward_norm_bias;
    if (options_.is_dense()) {
      out.up = [module](const at::Tensor& x) { return module->dense_up->forward(x); };
      out.down = [module](const at::Tensor& x) { return module->dense_down->forward(x); };
    } else {
      out.up = [module](const at::Tensor& x) { return module->up->forward(x); };
      out.down = [module](const at::Tensor& x) { return module->down->forward(x); };
    }
  }
  return weights;
}

TtLinear TransformerXlImpl::up(int64_t layer) const { return layers_[layer]->up; }
TtLinear TransformerXlImpl::down(int64_t layer) const { return layers_[layer]->down; }

void TransformerXlImpl::CheckInputs(const at::Tensor& tokens, const at::Tensor& targets,
                                    const std::vector<at::Tensor>& memory) const {
  Require(tokens.dim() == 2 && tokens.size(0) <= options_.target_len,
          "tokens are " + Sizes(tokens) + "; they must be [T, B], T at most " +
              std::to_string(options_.target_len));
  Require(tokens.numel() > 0, "there are no tokens");
  Require(targets.sizes() == tokens.sizes(),
          "targets are " + Sizes(targets) + " where tokens are " + Sizes(tokens));
  RequireWords("tokens", tokens, options_.vocabulary);
  RequireWords("targets", targets, options_.vocabulary);
  if (memory.empty()) return;
  Require(static_cast<int64_t>(memory.size()) == options_.layers,
          std::to_string(memory.size()) + " tensors of memory for " +
              std::to_string(options_.layers) + " layers");
  for (const at::Tensor& part : memory) {
    Require(part.dim() == 3 && part.size(0) == memory.front().size(0) && part.size(0) > 0 &&
                part.size(0) <= options_.memory_len && part.size(1) == tokens.size(1) &&
                part.size(2) == options_.d_model,
            "memory is " + Sizes(part) + "; it must be [at most " +
                std::to_string(options_.memory_len) + ", " + std::to_string(tokens.size(1)) + ", " +
                std::to_string(options_.d_model) + "], of the same length for all layers");
  }
}

TransformerXlImpl::Output TransformerXlImpl::forward(const at::Tensor& tokens,
                                                     const at::Tensor& targets,
                                                     const std::vector<at::Tensor>& memory) {
  CheckInputs(tokens, targets, memory);
  const int64_t length = tokens.size(0);
  const int64_t remembered = memory.empty() ? 0 : memory.front().size(0);
  // The buffers are for the longest segment and memory.
  const int64_t unused = options_.memory_len - remembered;
  const int64_t keys = remembered + length;
  TransformerXlInputs<at::Tensor> inputs;
  inputs.tokens = tokens.reshape({-1});
  inputs.targets = FindTargets(options_, targets.contiguous().view({-1}));
  inputs.memory = memory;
  inputs.positions = positions_.narrow(0, positions_.size(0) - keys, keys);
  inputs.mask = mask_.narrow(0, 0, length).narrow(1, unused, keys);
  inputs.batch = tokens.size(1);
  const TransformerXlWeights<at::Tensor> weights = Weights();
  TransformerXlResult<at::Tensor> result =
      TransformerXlProgram<RealOps>(RealOps{}, options_, weights).Forward(inputs);
  return {result.loss.view(tokens.sizes()), std::move(result.memory)};
}

at::Tensor PositionCodes(const TransformerXlOptions& options, at::ScalarType dtype) {
  const int64_t keys = options.memory_len + options.target_len, half = options.d_model / 2;
  at::Tensor codes = at::empty({keys, options.d_model}, at::kDouble);
  auto code = codes.accessor<double, 2>();
  for (int64_t row = 0; row < keys; ++row) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(keys - 1 - row) *
                           std::pow(10000.0, -static_cast<double>(2 * i) / (2.0 * half));
      code[row][i] = std::sin(angle);
      code[row][half + i] = std::cos(angle);
    }
  }
  return codes.to(dtype);
}

at::Tensor AttentionMask(const TransformerXlOptions& options, at::ScalarType dtype) {
  const int64_t keys = options.memory_len + options.target_len;
  at::Tensor mask = at::zeros({options.target_len, keys}, at::kDouble);
  auto at_place = mask.accessor<double, 2>();
  for (int64_t i = 0; i < options.target_len; ++i)
    for (int64_t j = i + options.memory_len + 1; j < keys; ++j)
      at_place[i][j] = -std::numeric_limits<double>::infinity();
  return mask.to(dtype);
}

SoftmaxTargets<at::Tensor> FindTargets(const TransformerXlOptions& options,
                                       const at::Tensor& targets) {
  const int64_t count = targets.numel(), clusters = options.clusters();
  const int64_t* words = targets.const_data_ptr<int64_t>();
  const int64_t shortlist = options.PartEnd(0);
  // The part of the vocabulary that a word is in.
  auto part_of = [&](int64_t word) {
    return std::upper_bound(options.cutoffs.begin(), options.cutoffs.end(), word) -
           options.cutoffs.begin();
  };
  std::vector<int64_t> sizes(clusters + 1, 0);
  for (int64_t i = 0; i < count; ++i) ++sizes[part_of(words[i])];

  SoftmaxTargets<at::Tensor> found;
  found.head = at::empty({count, 1}, at::kLong);
  int64_t* head = found.head.mutable_data_ptr<int64_t>();
  found.clusters.resize(clusters);
  std::vector<int64_t> next(clusters, 0);
  for (int64_t c = 0; c < clusters; ++c) {
    if (sizes[c + 1] == 0) continue;
    found.clusters[c].rows = at::empty({sizes[c + 1]}, at::kLong);
    found.clusters[c].words = at::empty({sizes[c + 1], 1}, at::kLong);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t part = part_of(words[i]);
    // As in the published code, the first cluster's class is the last of the head.
    head[i] = part == 0 ? words[i] : shortlist + clusters - part;
    if (part == 0) continue;
    const int64_t place = next[part - 1]++;
    found.clusters[part - 1].rows.mutable_data_ptr<int64_t>()[place] = i;
    found.clusters[part - 1].words.mutable_data_ptr<int64_t>()[place] =
        words[i] - options.PartBegin(part);
  }
  return found;
}

}  // namespace ttbench
