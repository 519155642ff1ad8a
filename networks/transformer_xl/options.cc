#include "networks/transformer_xl/options.h"

#include <utility>

namespace ttbench {
namespace {

void Require(bool holds, const std::string& what) {
  if (!holds) throw ShapeError("Transformer-XL: " + what);
}

void RequirePositive(const char* name, int64_t value) {
  Require(value > 0, std::string(name) + " is " + std::to_string(value) + "; it must be positive");
}

void RequireShape(const char* name, const std::optional<TtShape>& shape, int64_t in, int64_t out) {
  const std::string wanted = std::to_string(in) + " -> " + std::to_string(out);
  Require(shape.has_value(), std::string("a TT variant needs the shape ") + name + ", " + wanted);
  Require(shape->in_features() == in && shape->out_features() == out,
          std::string("the shape ") + name + " is " + shape->modes_name() + ", which is " +
              std::to_string(shape->in_features()) + " -> " +
              std::to_string(shape->out_features()) + "; the model takes " + wanted);
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

TransformerXlOptions Wt103Base() {
  TransformerXlOptions options;
  options.layers = 16;
  options.d_model = 410;
  options.heads = 10;
  options.d_head = 41;
  options.d_inner = 2100;
  options.target_len = 150;
  options.memory_len = 150;
  options.vocabulary = 267735;
  options.cutoffs = {20000, 40000, 200000};
  return options;
}

TransformerXlOptions CompressedWt103Base(const std::string& variant, int64_t rank) {
  TransformerXlOptions options = Wt103Base();
  options.feed_forward_variant = variant;
  options.up = TtShape::Parse("2x5x41:10x14x15", rank);
  options.down = TtShape::Parse("10x14x15:2x5x41", rank);
  return options;
}

void CheckOptions(const TransformerXlOptions& options) {
  RequirePositive("layers", options.layers);
  RequirePositive("d_model", options.d_model);
  RequirePositive("heads", options.heads);
  RequirePositive("d_head", options.d_head);
  RequirePositive("d_inner", options.d_inner);
  RequirePositive("target_len", options.target_len);
  Require(options.memory_len >= 0, "memory_len is negative");
  RequirePositive("vocabulary", options.vocabulary);
  Require(options.d_model % 2 == 0,
          "d_model is odd; positions are encoded by pairs of a sine and a cosine");
  int64_t before = 0;
  for (const int64_t cutoff : options.cutoffs) {
    Require(cutoff > before && cutoff < options.vocabulary,
            "the cutoff " + std::to_string(cutoff) +
                " is not between the one before and the vocabulary of " +
                std::to_string(options.vocabulary));
    before = cutoff;
  }
  if (options.is_dense()) return;
  RequireShape("up", options.up, options.d_model, options.d_inner);
  RequireShape("down", options.down, options.d_inner, options.d_model);
}

std::vector<ParameterSizes> ParametersOf(const TransformerXlOptions& options) {
  CheckOptions(options);
  const int64_t model = options.d_model, inner = options.d_inner;
  const int64_t heads = options.heads * options.d_head;
  std::vector<ParameterSizes> parameters{
      {"embedding", {options.vocabulary, model}},
      {"content_bias", {options.heads, options.d_head}},
      {"position_bias", {options.heads, options.d_head}},
  };
  if (options.clusters() > 0) {
    parameters.push_back({"cluster_weight", {options.clusters(), model}});
    parameters.push_back({"cluster_bias", {options.clusters()}});
  }
  parameters.push_back({"word_bias", {options.vocabulary}});
  auto add_position_wise = [&](const std::string& name, const std::optional<TtShape>& shape,
                               int64_t in, int64_t out) {
    if (options.is_dense()) {
      parameters.push_back({name + ".weight", {out, in}});
    } else {
      for (int64_t k = 0; k < shape->cores(); ++k) {
        parameters.push_back({name + ".core" + std::to_string(k + 1), shape->CoreSizes(k)});
      }
    }
    parameters.push_back({name + ".bias", {out}});
  };
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const std::string prefix = "layer" + std::to_string(layer + 1) + ".";
    parameters.push_back({prefix + "query", {heads, model}});
    parameters.push_back({prefix + "key", {heads, model}});
    parameters.push_back({prefix + "value", {heads, model}});
    parameters.push_back({prefix + "position", {heads, model}});
    parameters.push_back({prefix + "output", {model, heads}});
    parameters.push_back({prefix + "attention_norm_weight", {model}});
    parameters.push_back({prefix + "attention_norm_bias", {model}});
    parameters.push_back({prefix + "feed_forward_norm_weight", {model}});
    parameters.push_back({prefix + "feed_forward_norm_bias", {model}});
    add_position_wise(prefix + "up", options.up, model, inner);
    add_position_wise(prefix + "down", options.down, inner, model);
  }
  return parameters;
}

ParameterCounts::ParameterCounts(const TransformerXlOptions& options) {
  for (const ParameterSizes& parameter : ParametersOf(options)) {
    const int64_t count = Product(parameter.sizes);
    const std::string& name = parameter.name;
    if (name == "embedding") {
      embedding += count;
    } else if (name == "content_bias" || name == "position_bias") {
      attention_biases += count;
    } else if (name.rfind("layer", 0) == 0) {
      layers += count;
      const bool position_wise =
          name.find(".up.") != std::string::npos || name.find(".down.") != std::string::npos;
      if (position_wise && !EndsWith(name, ".bias")) feed_forward += count;
    } else {
      softmax += count;
    }
  }
}

}  // namespace ttbench
