#include "networks/transformer_xl/transformer_xl.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
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
  // Without operators, which would allocate.
  const int64_t* data = words.const_data_ptr<int64_t>();
  const auto [first, last] = std::minmax_element(data, data + words.numel());
  const int64_t least = *first, most = *last;
  Require(least >= 0 && most < vocabulary,
          std::string(name) + " go from " + std::to_string(least) + " to " + std::to_string(most) +
              "; the vocabulary has " + std::to_string(vocabulary) + " words");
}

bool EndsWith(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

void Initialise(const std::string& name, at::Tensor parameter) {
  const at::NoGradGuard no_grad;
  const bool of_attention = name == "content_bias" || name == "position_bias";
  if (EndsWith(name, "bias") && !of_attention) {
    parameter.zero_();
  } else {
    parameter.normal_(EndsWith(name, "norm_weight") ? 1 : 0, kInitialDeviation);
  }
}

}  // namespace

// y = x W^T + bias
struct TransformerXlImpl::DenseModule : torch::nn::Module {
  at::Tensor weight, bias;

  DenseModule(int64_t in, int64_t out, at::ScalarType dtype) {
    weight = register_parameter("weight", at::empty({out, in}, dtype));
    bias = register_parameter("bias", at::empty({out}, dtype));
  }
};

struct TransformerXlImpl::LayerModule : torch::nn::Module {
  std::shared_ptr<DenseModule> dense_up, dense_down;
  TtLinear up = nullptr, down = nullptr;

  // Without the position-wise layers.
  LayerModule(const TransformerXlOptions& options, at::ScalarType dtype) {
    const int64_t model = options.d_model, heads = options.heads * options.d_head;
    auto make = [&](const char* name, at::IntArrayRef sizes) {
      register_parameter(name, at::empty(sizes, dtype));
    };
    make("query", {heads, model});
    make("key", {heads, model});
    make("value", {heads, model});
    make("position", {heads, model});
    make("output", {model, heads});
    make("attention_norm_weight", {model});
    make("attention_norm_bias", {model});
    make("feed_forward_norm_weight", {model});
    make("feed_forward_norm_bias", {model});
  }

  void AddPositionWise(const TransformerXlOptions& options, at::ScalarType dtype) {
    if (options.is_dense()) {
      auto make = [&](const char* name, int64_t in, int64_t out) {
        return register_module(name, std::make_shared<DenseModule>(in, out, dtype));
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

TransformerXlImpl::TransformerXlImpl(TransformerXlOptions options, at::ScalarType dtype,
                                     InitialValues initial_values)
    : options_(std::move(options)) {
  CheckOptions(options_);
  auto make = [&](const char* name, at::IntArrayRef sizes) {
    register_parameter(name, at::empty(sizes, dtype));
  };
  make("embedding", {options_.vocabulary, options_.d_model});
  make("content_bias", {options_.heads, options_.d_head});
  make("position_bias", {options_.heads, options_.d_head});
  if (options_.clusters() > 0) {
    make("cluster_weight", {options_.clusters(), options_.d_model});
    make("cluster_bias", {options_.clusters()});
  }
  make("word_bias", {options_.vocabulary});
  positions_ = register_buffer("positions", PositionCodes(options_, dtype));
  mask_ = register_buffer("mask", AttentionMask(options_, dtype));
  for (int64_t l = 0; l < options_.layers; ++l) {
    layers_.push_back(register_module("layer" + std::to_string(l + 1),
                                      std::make_shared<LayerModule>(options_, dtype)));
  }
  const bool initialise = initial_values == InitialValues::kPublished;
  if (initialise) {
    for (auto& parameter : named_parameters()) Initialise(parameter.key(), parameter.value());
  }
  for (const auto& layer : layers_) {
    layer->AddPositionWise(options_, dtype);
    if (!initialise || !options_.is_dense()) continue;
    for (const auto& module : {layer->dense_up, layer->dense_down}) {
      Initialise("weight", module->weight);
      Initialise("bias", module->bias);
    }
  }
}

TransformerXlWeights<at::Tensor> TransformerXlImpl::Weights() const {
  const auto by_name = named_parameters();
  auto layer = layers_.begin();
  return WeightsByName<at::Tensor>(
      options_, [&](const std::string& name) { return by_name[name]; },
      [&](const std::string& name, const auto&) -> std::function<at::Tensor(const at::Tensor&)> {
        const bool is_down = EndsWith(name, ".down");
        const LayerModule& module = is_down ? **layer++ : **layer;
        if (options_.is_dense()) {
          const auto& dense = is_down ? module.dense_down : module.dense_up;
          return [dense](const at::Tensor& x) { return at::linear(x, dense->weight, dense->bias); };
        }
        return [tt = is_down ? module.down : module.up](const at::Tensor& x) mutable {
          return tt->forward(x);
        };
      });
}

TtLinear TransformerXlImpl::up(int64_t layer) const { return layers_[layer]->up; }
TtLinear TransformerXlImpl::down(int64_t layer) const { return layers_[layer]->down; }

void TransformerXlImpl::CheckSizes(const at::Tensor& tokens, const at::Tensor& targets,
                                   const std::vector<at::Tensor>& memory) const {
  Require(tokens.dim() == 2 && tokens.size(0) <= options_.target_len,
          "tokens are " + Sizes(tokens) + "; they must be [T, B], T at most " +
              std::to_string(options_.target_len));
  Require(tokens.numel() > 0, "there are no tokens");
  Require(targets.sizes() == tokens.sizes(),
          "targets are " + Sizes(targets) + " where tokens are " + Sizes(tokens));
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
  CheckSizes(tokens, targets, memory);
  const at::Tensor flat_tokens = tokens.contiguous().view({-1});
  const at::Tensor flat_targets = targets.contiguous().view({-1});
  RequireWords("tokens", flat_tokens, options_.vocabulary);
  RequireWords("targets", flat_targets, options_.vocabulary);
  const int64_t length = tokens.size(0);
  const int64_t remembered = memory.empty() ? 0 : memory.front().size(0);
  // The buffers are for the longest segment and memory.
  const int64_t unused = options_.memory_len - remembered;
  const int64_t keys = remembered + length;
  TransformerXlInputs<at::Tensor> inputs;
  inputs.tokens = flat_tokens;
  inputs.targets = FindTargets(options_, flat_targets);
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
