// Sizes of a Transformer-XL language model and the parameters that follow from them.
//
// The model is that of Dai et al., "Transformer-XL: Attentive Language Models beyond a Fixed-Length
// Context", 2019, in the form of its published code (post-layer-norm, biases of the attention
// shared by all layers, embedding tied to an adaptive softmax without projections: div_val 1).
// Either matrix of its position-wise layers may be in tensor-train format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/shape.h"

namespace ttbench {

struct TransformerXlOptions {
  int64_t layers = 1;
  int64_t d_model = 1;
  int64_t heads = 1;
  int64_t d_head = 1;
  int64_t d_inner = 1;     // Width of the position-wise layers.
  int64_t target_len = 1;  // Most tokens of a segment, T.
  int64_t memory_len = 0;  // Most tokens remembered of the segments before, M.
  int64_t vocabulary = 2;
  // The words below the first cutoff are the shortlist; those between two cutoffs, and those from
  // the last on, are a cluster each. Ascending, between 1 and the vocabulary; none: a plain
  // softmax.
  std::vector<int64_t> cutoffs;
  // "dense", or a variant of the linear family that takes cores; then both shapes are given.
  std::string feed_forward_variant = "dense";
  std::optional<TtShape> up, down;  // d_model -> d_inner and back.

  bool is_dense() const { return feed_forward_variant == "dense"; }
  int64_t clusters() const { return static_cast<int64_t>(cutoffs.size()); }
  // Where the shortlist (part 0) or cluster `part` begins and ends.
  int64_t PartBegin(int64_t part) const { return part == 0 ? 0 : cutoffs[part - 1]; }
  int64_t PartEnd(int64_t part) const { return part == clusters() ? vocabulary : cutoffs[part]; }
};

// The published base configuration for WikiText-103: 151,107,538 parameters.
TransformerXlOptions Wt103Base();

// The same with the position-wise matrices in TT format: uniform rank, the factors that t3nsor's
// auto_shape gives at this size, ascending: 2x5x41:10x14x15 and 10x14x15:2x5x41.
TransformerXlOptions CompressedWt103Base(const std::string& variant, int64_t rank);

// Throws std::invalid_argument (ShapeError) with a sentence for the user: sizes that are not
// positive, cutoffs out of order, an odd d_model, shapes that are missing or do not fit.
void CheckOptions(const TransformerXlOptions& options);

// A parameter of the model, by its name as a member of the module.
struct ParameterSizes {
  std::string name;
  std::vector<int64_t> sizes;
};
// All parameters, in the order in which the module has them.
std::vector<ParameterSizes> ParametersOf(const TransformerXlOptions& options);

struct ParameterCounts {
  int64_t embedding = 0;         // Also the weights of the softmax.
  int64_t layers = 0;            // All layers: what the paper calls non-embedding parameters.
  int64_t feed_forward = 0;      // Of these, the matrices or cores of the position-wise layers.
  int64_t attention_biases = 0;  // u and v of the attention.
  int64_t softmax = 0;           // Biases of the words; weights and biases of the clusters.

  explicit ParameterCounts(const TransformerXlOptions& options);
  int64_t total() const { return embedding + layers + attention_biases + softmax; }
};

}  // namespace ttbench
