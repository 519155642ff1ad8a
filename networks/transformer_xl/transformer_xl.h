// Transformer-XL as a module: a language model with relative positions and a memory of the segments
// before, whose position-wise layers are dense or TtLinear (kernels/tt_linear.h).
//
//   TransformerXl model(CompressedWt103Base("fused", 8));
//   std::vector<at::Tensor> memory;
//   for (..) {
//     auto output = model->forward(tokens, targets, memory);
//     output.loss.mean().backward();
//     memory = output.memory;
//   }
//
// Without dropout. On the CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/tt_linear.h"
#include "networks/transformer_xl/options.h"
#include "networks/transformer_xl/program.h"

namespace ttbench {

class TransformerXlImpl : public torch::nn::Module {
 public:
  struct Output {
    at::Tensor loss;                 // [T, B]: negative log likelihood of each target, in nats.
    std::vector<at::Tensor> memory;  // For each layer [at most memory_len, B, d_model], detached.
  };

  enum class InitialValues {
    kPublished,
    kUnset,  // For whoever fills the parameters.
  };

  // Registers the parameters of ParametersOf(options), and "positions" and "mask" as buffers.
  // Initial values are as in the published code: weights from a normal distribution of deviation
  // 0.02, biases 0, the norms' weights from one of mean 1. All but the position-wise matrices are
  // drawn first, so that with the same seed they are the same whatever the variant; the cores,
  // which TtLinear draws, come last and are the same for all TT variants.
  //
  // Throws std::invalid_argument as CheckOptions() and TtLinear do.
  explicit TransformerXlImpl(TransformerXlOptions options, at::ScalarType dtype = at::kFloat,
                             InitialValues initial_values = InitialValues::kPublished);

  // tokens and targets are [T, B] int64, T at most target_len; memory is empty, or what the segment
  // before returned. Throws std::invalid_argument for other sizes and for words that are not of the
  // vocabulary.
  Output forward(const at::Tensor& tokens, const at::Tensor& targets,
                 const std::vector<at::Tensor>& memory = {});

  const TransformerXlOptions& options() const { return options_; }
  // Of memory_len + target_len places, and of target_len tokens (PositionCodes(), AttentionMask()).
  const at::Tensor& positions() const { return positions_; }
  const at::Tensor& mask() const { return mask_; }
  // Of each layer, counted from 0; null where the position-wise layers are dense.
  TtLinear up(int64_t layer) const;
  TtLinear down(int64_t layer) const;

 private:
  struct DenseModule;
  struct LayerModule;

  void CheckSizes(const at::Tensor& tokens, const at::Tensor& targets,
                  const std::vector<at::Tensor>& memory) const;
  // Handles to the parameters, and the position-wise layers as functions.
  TransformerXlWeights<at::Tensor> Weights() const;

  TransformerXlOptions options_;
  at::Tensor positions_, mask_;
  std::vector<std::shared_ptr<LayerModule>> layers_;
};

class TransformerXl : public torch::nn::ModuleHolder<TransformerXlImpl> {
 public:
  using torch::nn::ModuleHolder<TransformerXlImpl>::ModuleHolder;
  using Impl = TransformerXlImpl;
};

// [memory_len + target_len, d_model]: the codes of the distances from the largest down to 0, sines
// before cosines.
at::Tensor PositionCodes(const TransformerXlOptions& options, at::ScalarType dtype);
// [target_len, memory_len + target_len]: 0 where token i sees place j, else -inf.
at::Tensor AttentionMask(const TransformerXlOptions& options, at::ScalarType dtype);
// Of targets [N] int64, contiguous.
SoftmaxTargets<at::Tensor> FindTargets(const TransformerXlOptions& options,
                                       const at::Tensor& targets);

}  // namespace ttbench
