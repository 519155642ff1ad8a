// The sentence encoder all-MiniLM-L6-v2 (Wang et al., "MiniLM", 2020; Reimers and Gurevych,
// "Sentence-BERT", 2019): a BERT of 6 layers, hidden size 384, 12 heads and 1536 units in each
// position-wise feed-forward layer, whose output is averaged over the tokens and scaled to
// length 1.
//
// For inference. How a feed-forward matrix is multiplied by is the caller's to say: densely, or by
// a TtLinear made from it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "networks/minilm/safetensors.h"

namespace ttbench {

// A layer's two feed-forward matrices: 384 -> 1536 and 1536 -> 384.
enum class FeedForward { kUp, kDown };
inline constexpr FeedForward kFeedForwards[] = {FeedForward::kUp, FeedForward::kDown};
const char* Name(FeedForward which);  // "up", "down"

// y = x W^T + b, for x of [rows, N]; y is the caller's to change.
using Linear = std::function<at::Tensor(const at::Tensor& x)>;
// Makes a linear layer of a trained one: weight [M, N], bias [M].
using MakeLinear = std::function<Linear(int64_t layer, FeedForward which, const at::Tensor& weight,
                                        const at::Tensor& bias)>;

// Multiplies by a copy of the weight as a dense variant of the registry does ("dense",
// "dense-onednn").
MakeLinear DenseFeedForward(const std::string& variant);

class MiniLm {
 public:
  // `weights` as the model's file names them, of which copies are kept in the dtype: of all but the
  // feed-forward matrices and their biases, which `make` gets. Throws std::runtime_error for one
  // that is missing.
  MiniLm(const NamedTensors& weights, const MakeLinear& make, at::ScalarType dtype = at::kFloat);

  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }

  // ids [sentences, tokens]; each sentence's tokens come first, `lengths` [sentences] of them, and
  // the others do not matter. Returns [sentences, 384], each row of length 1.
  at::Tensor Embed(const at::Tensor& ids, const at::Tensor& lengths) const;

 private:
  struct Affine {
    at::Tensor weight, bias;
  };
  struct Layer {
    Affine query, key, value, attention_output, attention_norm, output_norm;
    Linear up, down;
  };

  at::Tensor Attend(const Layer& layer, const at::Tensor& x, const at::Tensor& mask) const;

  at::Tensor words_, positions_, type_;
  Affine embedding_norm_;
  std::vector<Layer> layers_;
};

// The number of layers in a model's file, and one's feed-forward matrix [M, N] and bias [M].
int64_t LayersOf(const NamedTensors& weights);
std::pair<at::Tensor, at::Tensor> FeedForwardOf(const NamedTensors& weights, int64_t layer,
                                                FeedForward which);

}  // namespace ttbench
