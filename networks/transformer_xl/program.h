// The forward pass of Transformer-XL, on any Ops (kernels/ops.h): what the module computes, and its
// cost model.
//
// Sizes: B sequences of T tokens, N = T B rows, of which row t B + b is token t of sequence b; m
// tokens of memory; K = m + T; n heads of width d; D = d_model.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "networks/transformer_xl/options.h"

namespace ttbench {

template <typename Tensor>
struct TransformerXlWeights {
  struct Layer {
    Tensor query, key, value, position;  // [n d, D]
    Tensor output;                       // [D, n d]
    Tensor attention_norm_weight, attention_norm_bias;
    Tensor feed_forward_norm_weight, feed_forward_norm_bias;  // [D]
    std::function<Tensor(const Tensor&x)> up, down;  // [rows, D] -> [rows, d_inner] and back.
  };
  Tensor embedding;                     // [vocabulary, D]
  Tensor content_bias, position_bias;   // [n, d]: u and v of the paper.
  Tensor cluster_weight, cluster_bias;  // [clusters, D] and [clusters]; undefined without clusters.
  Tensor word_bias;                     // [vocabulary]
  std::vector<Layer> layers;
};

// The weights of a network whose parameters `find(name)` gives by their names in ParametersOf(),
// and whose position-wise layers position_wise(name, shape) makes from "layer1.up" and such.
template <typename Tensor, typename Find, typename PositionWise>
TransformerXlWeights<Tensor> WeightsByName(const TransformerXlOptions& options, const Find& find,
                                           const PositionWise& position_wise) {
  TransformerXlWeights<Tensor> weights;
  weights.embedding = find("embedding");
  weights.content_bias = find("content_bias");
  weights.position_bias = find("position_bias");
  if (options.clusters() > 0) {
    weights.cluster_weight = find("cluster_weight");
    weights.cluster_bias = find("cluster_bias");
  }
  weights.word_bias = find("word_bias");
  for (int64_t l = 0; l < options.layers; ++l) {
    const std::string prefix = "layer" + std::to_string(l + 1) + ".";
    typename TransformerXlWeights<Tensor>::Layer& layer = weights.layers.emplace_back();
    layer.query = find(prefix + "query");
    layer.key = find(prefix + "key");
    layer.value = find(prefix + "value");
    layer.position = find(prefix + "position");
    layer.output = find(prefix + "output");
    layer.attention_norm_weight = find(prefix + "attention_norm_weight");
    layer.attention_norm_bias = find(prefix + "attention_norm_bias");
    layer.feed_forward_norm_weight = find(prefix + "feed_forward_norm_weight");
    layer.feed_forward_norm_bias = find(prefix + "feed_forward_norm_bias");
    layer.up = position_wise(prefix + "up", options.up);
    layer.down = position_wise(prefix + "down", options.down);
  }
  return weights;
}

// Where the adaptive softmax finds the targets.
template <typename Tensor>
struct SoftmaxTargets {
  struct Cluster {
    Tensor rows;   // [c]: those whose targets are in the cluster. Undefined if there are none.
    Tensor words;  // [c, 1]: the targets, counted from the cluster's first word.
  };
  Tensor head;  // [N, 1]: a word of the shortlist, or the cluster's place after it.
  std::vector<Cluster> clusters;
};

template <typename Tensor>
struct TransformerXlInputs {
  Tensor tokens;                   // [N]
  SoftmaxTargets<Tensor> targets;  //
  std::vector<Tensor> memory;      // For each layer [m, B, D]; none if m = 0.
  Tensor positions;                // [K, D]: the codes of the distances K - 1, .., 0.
  Tensor mask;                     // [T, K]: 0, or -inf where token i must not see place j > i + m.
  int64_t batch = 1;
};

template <typename Tensor>
struct TransformerXlResult {
  Tensor loss;                 // [N]: negative log likelihood of each target.
  std::vector<Tensor> memory;  // For each layer [at most memory_len, B, D], without history.
};

template <typename Ops>
class TransformerXlProgram {
 public:
  using Tensor = typename Ops::Tensor;
  using Weights = TransformerXlWeights<Tensor>;
  using Layer = typename Weights::Layer;
  using Inputs = TransformerXlInputs<Tensor>;

  TransformerXlProgram(Ops ops, const TransformerXlOptions& options, const Weights& weights)
      : ops_(ops), options_(options), weights_(weights) {}

  TransformerXlResult<Tensor> Forward(const Inputs& inputs) const {
    TransformerXlResult<Tensor> result;
    Tensor hidden =
        ops_.ScaleInPlace(ops_.Embedding(weights_.embedding, inputs.tokens, "embedded tokens"),
                          std::sqrt(static_cast<double>(options_.d_model)));
    for (int64_t l = 0; l < options_.layers; ++l) {
      const Layer& layer = weights_.layers[l];
      const Tensor* memory = inputs.memory.empty() ? nullptr : &inputs.memory[l];
      if (options_.memory_len > 0)
        result.memory.push_back(NextMemory(memory, hidden, inputs.batch));
      hidden = ops_.LayerNorm(
          ops_.Add(hidden, Attend(layer, memory, hidden, inputs), "hidden + attention"),
          layer.attention_norm_weight, layer.attention_norm_bias, "attention, normed");
      hidden = ops_.LayerNorm(ops_.Add(hidden, FeedForward(layer, hidden), "hidden + feed-forward"),
                              layer.feed_forward_norm_weight, layer.feed_forward_norm_bias,
                              "feed-forward, normed");
    }
    result.loss = Loss(hidden, inputs.targets);
    return result;
  }

 private:
  // The last memory_len of the memory and this segment's hidden states, [N, D].
  Tensor NextMemory(const Tensor* memory, const Tensor& hidden, int64_t batch) const {
    Tensor next = ops_.View(ops_.Detach(hidden), {hidden.size(0) / batch, batch, options_.d_model});
    if (memory && next.size(0) < options_.memory_len) {
      next = ops_.CatRows(*memory, next, "memory and hidden states");
    }
    return next.size(0) <= options_.memory_len
               ? next
               : ops_.From(next, 0, next.size(0) - options_.memory_len);
  }

  // x W^T
  Tensor Project(const Tensor& x, const Tensor& weight, const char* name) const {
    return ops_.Mm(x, ops_.Permute(weight, {1, 0}), name);
  }

  // [K B, n d] as [B n, K, d]
  Tensor ByHead(const Tensor& x, int64_t batch) const {
    return ops_.Permute(ops_.View(x, {x.size(0) / batch, batch * options_.heads, options_.d_head}),
                        {1, 0, 2});
  }

  // Relative attention (eq. 4 of the paper) over the memory and the segment; hidden [N, D]:
  //   score(i, j) = ((q_i + u) . k_j + (q_i + v) . r_{i + m - j}) / sqrt(d)
  Tensor Attend(const Layer& layer, const Tensor* memory, const Tensor& hidden,
                const Inputs& inputs) const {
    const int64_t batch = inputs.batch, rows = hidden.size(0);
    Tensor key, value;
    {
      Tensor context = hidden;
      if (memory) {
        context = ops_.CatRows(ops_.View(*memory, {memory->size(0) * batch, options_.d_model}),
                               hidden, "memory and hidden states");
      }
      key = ByHead(Project(context, layer.key, "keys"), batch);
      value = ByHead(Project(context, layer.value, "values"), batch);
    }
    Tensor weights = ops_.Softmax(Scores(layer, hidden, key, inputs), "attention weights");
    key = Tensor();
    const Tensor attended = ops_.Bmm(weights, value, "attended values");
    weights = Tensor();
    const Tensor joined =
        ops_.Reshape(ops_.Permute(attended, {1, 0, 2}), {rows, options_.heads * options_.d_head},
                     "attended values, heads joined");
    return Project(joined, layer.output, "attention");
  }

  // [B n, T, K]; key [B n, K, d].
  Tensor Scores(const Layer& layer, const Tensor& hidden, const Tensor& key,
                const Inputs& inputs) const {
    const int64_t heads = options_.heads, width = options_.d_head, rows = hidden.size(0);
    Tensor query = ops_.View(Project(hidden, layer.query, "queries"), {rows, heads, width});
    const Tensor by_content = ops_.Bmm(
        ByHead(
            ops_.View(ops_.Add(query, weights_.content_bias, "queries + u"), {rows, heads * width}),
            inputs.batch),
        ops_.Permute(key, {0, 2, 1}), "scores");
    const Tensor by_position = ByPosition(layer, std::move(query), inputs);
    return ops_.AddInPlace(ops_.ScaleInPlace(ops_.AddInPlace(by_content, by_position),
                                             1 / std::sqrt(static_cast<double>(width))),
                           inputs.mask);
  }

  // (q_i + v) . r_{i + m - j}, [B n, T, K]; query [N, n, d]. Of each query the products with all K
  // distances are made; row i is then shifted left by T - 1 - i. As the published code does, a
  // column is put before them and the whole is read from the second line of length T on: what comes
  // into places j > i + m is of no meaning, and masked.
  Tensor ByPosition(const Layer& layer, Tensor query, const Inputs& inputs) const {
    const int64_t heads = options_.heads, batch = inputs.batch;
    const int64_t keys = inputs.positions.size(0), length = query.size(0) / batch;
    const Tensor relative =
        ops_.View(Project(inputs.positions, layer.position, "relative positions"),
                  {keys, heads, options_.d_head});
    query = ops_.Permute(ops_.Add(query, weights_.position_bias, "queries + v"), {1, 0, 2});
    Tensor scores = ops_.Bmm(query, ops_.Permute(relative, {1, 2, 0}), "scores by distance");
    scores =
        ops_.PadFront(ops_.Permute(ops_.View(scores, {heads, length, batch, keys}), {2, 0, 1, 3}),
                      "scores by distance, padded");
    scores = ops_.From(ops_.View(scores, {batch * heads, keys + 1, length}), 1, 1);
    return ops_.View(scores, {batch * heads, length, keys});
  }

  Tensor FeedForward(const Layer& layer, const Tensor& hidden) const {
    return layer.down(ops_.Relu(layer.up(hidden), "relu"));
  }

  // Adaptive softmax (Grave et al., "Efficient softmax approximation for GPUs", 2017): a word of
  // the shortlist is one of the head's classes, any other is its cluster's class and a class within
  // the cluster.
  Tensor Loss(const Tensor& hidden, const SoftmaxTargets<Tensor>& targets) const {
    cost::Sizes sizes;
    for (int64_t part = 0; part <= options_.clusters(); ++part)
      sizes.push_back(options_.PartEnd(part) - options_.PartBegin(part));
    const std::vector<Tensor> words = ops_.SplitRows(weights_.embedding, sizes);
    const std::vector<Tensor> biases = ops_.SplitRows(weights_.word_bias, sizes);
    Tensor likelihood;
    if (options_.clusters() == 0) {
      likelihood = LogLikelihood(hidden, words[0], biases[0], targets.head);
    } else {
      likelihood = LogLikelihood(
          hidden, ops_.CatRows(words[0], weights_.cluster_weight, "head's weights"),
          ops_.CatRows(biases[0], weights_.cluster_bias, "head's biases"), targets.head);
    }
    for (int64_t c = 0; c < options_.clusters(); ++c) {
      const typename SoftmaxTargets<Tensor>::Cluster& cluster = targets.clusters[c];
      if (!cluster.rows.defined()) continue;
      likelihood = ops_.AddToRows(
          likelihood, cluster.rows,
          LogLikelihood(ops_.SelectRows(hidden, cluster.rows, "hidden states of a cluster"),
                        words[c + 1], biases[c + 1], cluster.words),
          "log likelihoods");
    }
    return ops_.Negate(likelihood, "loss");
  }

  // Of one word for each row: [rows].
  Tensor LogLikelihood(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                       const Tensor& words) const {
    const Tensor logs =
        ops_.LogSoftmax(ops_.Linear(hidden, weight, bias, "logits"), "log probabilities");
    return ops_.View(ops_.Gather(logs, words, "log likelihoods"), {words.size(0)});
  }

  Ops ops_;
  const TransformerXlOptions& options_;
  const Weights& weights_;
};

}  // namespace ttbench
