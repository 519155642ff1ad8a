// A linear layer in tensor-train format as a module: its cores are registered parameters, so that
// to(), parameters(), clone(), torch::save() and data-parallel replicas treat them as any weight.
// What computes it is a variant of the registry, picked by name.
//
//   TtLinear layer(TtShape::Parse("2x5x41:10x14x15", 8), TtLinearOptions().bias(true));
//   layer->set_variant("recompute");
//   at::Tensor y = layer->forward(x);  // x [..., 410], y [..., 2100]
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/shape.h"
#include "kernels/variant.h"

namespace ttbench {

struct TtLinearOptions {
  // How the layer is computed: a variant of cores.
  TORCH_ARG(std::string, variant) = "sequential";
  // Whether y = x W^T + bias, with a bias of zeros at first.
  TORCH_ARG(bool, bias) = false;
  TORCH_ARG(at::ScalarType, dtype) = at::kFloat;
};

class TtLinearImpl : public torch::nn::Cloneable<TtLinearImpl> {
 public:
  // Registers the parameters "core1".."coreK", core k of [r_{k-1}, n_k, m_k, r_k], and with a bias
  // "bias" of [M]. Throws std::invalid_argument as set_variant() does.
  explicit TtLinearImpl(TtShape shape, TtLinearOptions options = {});

  // Makes the parameters, anew: cores drawn from a normal distribution such that W has the variance
  // of a dense layer's Glorot initialisation, 2 / (N + M).
  //
  // An element of W is a sum of r_1 * .. * r_{K-1} products of K elements, one of each core.
  // Elements are independent and of mean zero, so each product has the variance
  // sigma_1^2 * .. * sigma_K^2, and two products, which differ in at least one element, are
  // uncorrelated: Var(W) = prod sigma_k^2 * prod r_k. All cores get the same sigma.
  void reset() override;

  // x of [..., N], with any number of leading dimensions and any strides; returns [..., M],
  // contiguous. Throws std::invalid_argument if x has another last dimension or another dtype than
  // the cores, or if the variant cannot run the problem.
  at::Tensor forward(const at::Tensor& x);

  // W, [M, N], without history.
  at::Tensor to_dense() const;

  // Throws std::invalid_argument, naming the variants there are, for an unknown name and for a
  // variant that multiplies by a dense weight.
  void set_variant(const std::string& name);
  const LinearVariant& variant() const { return *variant_; }

  const TtShape& shape() const { return shape_; }
  const std::vector<at::Tensor>& cores() const { return cores_; }
  // Undefined in a layer without bias.
  const at::Tensor& bias() const { return bias_; }

  // Throws std::invalid_argument, and changes nothing, if a saved parameter has another shape.
  void load(torch::serialize::InputArchive& archive) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  TtShape shape_;
  TtLinearOptions options_;
  const LinearVariant* variant_ = nullptr;
  std::vector<at::Tensor> cores_;
  at::Tensor bias_;
};

class TtLinear : public torch::nn::ModuleHolder<TtLinearImpl> {
 public:
  using torch::nn::ModuleHolder<TtLinearImpl>::ModuleHolder;
  using Impl = TtLinearImpl;

  // The layer whose W is close to `weight`, [M, N]: TtSvd(weight, in_modes, out_modes) truncated.
  static TtLinear from_dense(const at::Tensor& weight, const Modes& in_modes,
                             const Modes& out_modes, const Modes& ranks,
                             const std::optional<at::Tensor>& bias = std::nullopt);
  static TtLinear from_dense(const at::Tensor& weight, const Modes& in_modes,
                             const Modes& out_modes, double relative_error,
                             const std::optional<at::Tensor>& bias = std::nullopt);
};

// Layers whose W is close to `weight`, [M, N], by TT-SVD in float64 (Oseledets 2011, "Tensor-Train
// Decomposition", algorithm 1), in the dtype of `weight`. The singular value decompositions are
// kept: layers share those before which their ranks are the same, the first at least, which is that
// of the whole weight.
class TtSvd {
 public:
  // Throws std::invalid_argument (ShapeError) for sizes that do not fit the modes.
  TtSvd(const at::Tensor& weight, const Modes& in_modes, const Modes& out_modes);

  // Truncated to the ranks (as in TtShape), and to what the unfoldings have. W is then off by at
  // most sqrt(K-1) times the error of the best layer of these ranks, in the Frobenius norm. `bias`
  // is [M], if given.
  TtLinear Truncate(const Modes& ranks, const std::optional<at::Tensor>& bias = std::nullopt);
  // The least ranks for which each of the K-1 truncations drops at most
  // relative_error / sqrt(K-1) * ||weight||_F, so that ||weight - W||_F <= relative_error *
  // ||weight||_F, up to the rounding of the cores; relative_error in [0, 1).
  TtLinear TruncateToError(double relative_error,
                           const std::optional<at::Tensor>& bias = std::nullopt);

 private:
  // Given the singular values of the unfolding before core k+1, largest first, the rank to keep.
  using ChooseRank = std::function<int64_t(int64_t k, const at::Tensor& singular_values)>;
  TtLinear Cut(const ChooseRank& choose_rank, const std::optional<at::Tensor>& bias);

  TtShape modes_;  // With the least ranks.
  at::TensorOptions options_;
  // By the ranks before it, what is decomposed after cutting to them: U, the singular values, V^T.
  std::map<Modes, std::tuple<at::Tensor, at::Tensor, at::Tensor>> steps_;
};

}  // namespace ttbench
