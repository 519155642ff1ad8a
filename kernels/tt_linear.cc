#include "kernels/tt_linear.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "kernels/scalar_type.h"

namespace ttbench {
namespace {

std::string VariantsOfCores() {
  std::string names;
  for (const auto& variant : LinearVariants()) {
    if (!variant->is_dense()) names += (names.empty() ? "" : ", ") + variant->name();
  }
  return names;
}

std::string CoreName(int64_t k) { return "core" + std::to_string(k + 1); }

std::string FormatSizes(at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

// W has all output modes before all input modes; the cores have them as n_1 m_1 n_2 m_2 ..
std::vector<int64_t> WeightSizes(const TtShape& shape) {
  std::vector<int64_t> sizes = shape.out_modes();
  sizes.insert(sizes.end(), shape.in_modes().begin(), shape.in_modes().end());
  return sizes;
}

std::vector<int64_t> InterleavedSizes(const TtShape& shape) {
  std::vector<int64_t> sizes;
  for (int64_t k = 0; k < shape.cores(); ++k) {
    sizes.insert(sizes.end(), {shape.n(k), shape.m(k)});
  }
  return sizes;
}

std::vector<int64_t> WeightToCoreOrder(int64_t cores) {
  std::vector<int64_t> order;
  for (int64_t k = 0; k < cores; ++k) order.insert(order.end(), {cores + k, k});
  return order;
}

std::vector<int64_t> CoreToWeightOrder(int64_t cores) {
  std::vector<int64_t> order;
  for (int64_t k = 0; k < cores; ++k) order.push_back(2 * k + 1);
  for (int64_t k = 0; k < cores; ++k) order.push_back(2 * k);
  return order;
}

void RequireSizes(const std::string& what, const at::Tensor& tensor, at::IntArrayRef sizes,
                  const std::string& shape) {
  if (tensor.sizes() == sizes) return;
  throw ShapeError(what + " is " + FormatSizes(tensor.sizes()) + "; " + shape + " take " +
                   FormatSizes(sizes));
}

// The modes with the least ranks, after checking that the weight has their sizes.
TtShape ModesOf(const at::Tensor& weight, const Modes& in_modes, const Modes& out_modes) {
  TtShape shape = TtShape::Uniform(in_modes, out_modes, 1);
  RequireSizes("weight", weight, {shape.out_features(), shape.in_features()},
               "modes " + shape.modes_name());
  return shape;
}

}  // namespace

TtLinearImpl::TtLinearImpl(TtShape shape, TtLinearOptions options)
    : shape_(std::move(shape)), options_(std::move(options)) {
  DTypeOf(options_.dtype());
  set_variant(options_.variant());
  reset();
}

void TtLinearImpl::reset() {
  double ranks = 1;
  for (const int64_t rank : shape_.ranks()) ranks *= static_cast<double>(rank);
  const double variance =
      2 / (static_cast<double>(shape_.in_features()) + static_cast<double>(shape_.out_features()));
  const double sigma = std::pow(variance / ranks, 0.5 / static_cast<double>(shape_.cores()));
  const at::NoGradGuard no_grad;
  cores_.clear();
  for (int64_t k = 0; k < shape_.cores(); ++k) {
    at::Tensor core = at::empty(shape_.CoreSizes(k), options_.dtype()).normal_(0, sigma);
    cores_.push_back(register_parameter(CoreName(k), std::move(core)));
  }
  if (options_.bias()) {
    bias_ = register_parameter("bias", at::zeros({shape_.out_features()}, options_.dtype()));
  }
}

at::Tensor TtLinearImpl::forward(const at::Tensor& x) {
  const at::Tensor& core = cores_.front();
  if (x.dim() == 0 || x.size(-1) != shape_.in_features()) {
    throw ShapeError("x is " + FormatSizes(x.sizes()) + "; a TT layer of " + shape_.modes_name() +
                     " takes [..., " + std::to_string(shape_.in_features()) + "]");
  }
  if (x.scalar_type() != core.scalar_type()) {
    throw std::invalid_argument(std::string("x is ") + c10::toString(x.scalar_type()) +
                                " but the cores are " + c10::toString(core.scalar_type()) +
                                "; convert one with to()");
  }
  const int64_t rows = x.numel() / shape_.in_features();
  const Phase phase = at::GradMode::is_enabled() ? Phase::kTrain : Phase::kInference;
  const std::string reason = variant_->WhyUnsupported(
      {shape_, rows, phase, DTypeOf(core.scalar_type()), at::get_num_threads()});
  if (!reason.empty()) {
    throw std::invalid_argument("variant '" + variant_->name() +
                                "' cannot run this layer: " + reason);
  }
  at::Tensor y =
      variant_->Forward(shape_, x.reshape({rows, shape_.in_features()}).contiguous(), cores_);
  // y is this layer's own: without history there is no need of a second one.
  if (bias_.defined()) y = y.requires_grad() ? y.add(bias_) : y.add_(bias_);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = shape_.out_features();
  return y.view(sizes);
}

at::Tensor TtLinearImpl::to_dense() const {
  const at::NoGradGuard no_grad;
  at::Tensor joined = cores_[0].reshape({-1, shape_.right_rank(0)});
  for (int64_t k = 1; k < shape_.cores(); ++k) {
    joined = at::mm(joined, cores_[k].reshape({shape_.left_rank(k), -1}))
                 .view({-1, shape_.right_rank(k)});
  }
  return joined.view(InterleavedSizes(shape_))
      .permute(CoreToWeightOrder(shape_.cores()))
      .reshape({shape_.out_features(), shape_.in_features()});
}

void TtLinearImpl::set_variant(const std::string& name) {
  const LinearVariant* variant = FindLinearVariant(name);
  if (!variant || variant->is_dense()) {
    throw std::invalid_argument(
        (variant ? "variant '" + name + "' multiplies by a dense weight, and a TT layer has cores"
                 : "there is no variant '" + name + "'") +
        "; use one of " + VariantsOfCores());
  }
  variant_ = variant;
}

void TtLinearImpl::load(torch::serialize::InputArchive& archive) {
  for (const auto& parameter : named_parameters(/*recurse=*/false)) {
    at::Tensor saved;
    archive.read(parameter.key(), saved);
    RequireSizes("saved " + parameter.key(), saved, parameter->sizes(),
                 "modes " + shape_.modes_name() + ", ranks " + shape_.ranks_name());
  }
  Module::load(archive);
}

void TtLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "ttbench::TtLinear(" << shape_.modes_name() << ", ranks=" << shape_.ranks_name()
         << ", variant=" << variant_->name() << ", bias=" << std::boolalpha << bias_.defined()
         << ")";
}

TtLinear TtLinear::from_dense(const at::Tensor& weight, const Modes& in_modes,
                              const Modes& out_modes, const Modes& ranks,
                              const std::optional<at::Tensor>& bias) {
  return TtSvd(weight, in_modes, out_modes).Truncate(ranks, bias);
}

TtLinear TtLinear::from_dense(const at::Tensor& weight, const Modes& in_modes,
                              const Modes& out_modes, double relative_error,
                              const std::optional<at::Tensor>& bias) {
  return TtSvd(weight, in_modes, out_modes).TruncateToError(relative_error, bias);
}

TtSvd::TtSvd(const at::Tensor& weight, const Modes& in_modes, const Modes& out_modes)
    : modes_(ModesOf(weight, in_modes, out_modes)), options_(weight.options()) {
  const at::NoGradGuard no_grad;
  steps_[{}] = at::linalg_svd(weight.to(at::kCPU, at::kDouble)
                                  .reshape(WeightSizes(modes_))
                                  .permute(WeightToCoreOrder(modes_.cores()))
                                  .reshape({modes_.n(0) * modes_.m(0), -1}),
                              /*full_matrices=*/false);
}

TtLinear TtSvd::Cut(const ChooseRank& choose_rank, const std::optional<at::Tensor>& bias) {
  if (bias) {
    RequireSizes("bias", *bias, {modes_.out_features()}, "modes " + modes_.modes_name());
  }
  const at::NoGradGuard no_grad;
  const int64_t last = modes_.cores() - 1;
  std::vector<at::Tensor> cores;
  Modes ranks;
  int64_t left_rank = 1;
  at::Tensor rest;
  for (int64_t k = 0; k < last; ++k) {
    auto step = steps_.find(ranks);
    if (step == steps_.end()) {
      const at::Tensor unfolding = rest.reshape({left_rank * modes_.n(k) * modes_.m(k), -1});
      step = steps_.emplace(ranks, at::linalg_svd(unfolding, /*full_matrices=*/false)).first;
    }
    const auto& [u, s, vh] = step->second;
    const int64_t rank = choose_rank(k, s);
    cores.push_back(u.narrow(1, 0, rank).reshape({left_rank, modes_.n(k), modes_.m(k), rank}));
    rest = s.narrow(0, 0, rank).unsqueeze(1) * vh.narrow(0, 0, rank);
    ranks.push_back(left_rank = rank);
  }
  cores.push_back(rest.reshape({left_rank, modes_.n(last), modes_.m(last), 1}));

  TtLinear layer(
      TtShape(modes_.in_modes(), modes_.out_modes(), ranks),
      TtLinearOptions().bias(bias.has_value()).dtype(c10::typeMetaToScalarType(options_.dtype())));
  layer->to(options_.device());
  for (size_t k = 0; k < cores.size(); ++k) layer->cores()[k].copy_(cores[k]);
  if (bias) layer->bias().copy_(*bias);
  return layer;
}

TtLinear TtSvd::Truncate(const Modes& ranks, const std::optional<at::Tensor>& bias) {
  const TtShape asked(modes_.in_modes(), modes_.out_modes(), ranks);
  return Cut(
      [&](int64_t k, const at::Tensor& singular_values) {
        return std::min(asked.right_rank(k), singular_values.size(0));
      },
      bias);
}

TtLinear TtSvd::TruncateToError(double relative_error, const std::optional<at::Tensor>& bias) {
  if (!(relative_error >= 0 && relative_error < 1)) {
    throw std::invalid_argument("relative error " + std::to_string(relative_error) +
                                " is not in [0, 1); give ranks as Modes{..}");
  }
  // The norm is that of the singular values.
  const double norm = std::get<1>(steps_.at({})).norm().item<double>();
  const double allowed = relative_error * norm / std::sqrt(static_cast<double>(modes_.cores() - 1));
  return Cut(
      [&](int64_t, const at::Tensor& singular_values) {
        const double* s = singular_values.const_data_ptr<double>();
        int64_t rank = singular_values.size(0);
        for (double dropped = 0; rank > 1; --rank) {
          dropped += s[rank - 1] * s[rank - 1];
          if (std::sqrt(dropped) > allowed) break;
        }
        return rank;
      },
      bias);
}

}  // namespace ttbench
