#include "benchmarks/linear_run.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <sstream>
#include <utility>

#include "benchmarks/fill.h"
#include "benchmarks/inputs.h"
#include "benchmarks/reference.h"
#include "kernels/scalar_type.h"

namespace ttbench {
namespace {

std::vector<at::Tensor> MakeCores(const TtShape& shape, uint64_t seed, at::ScalarType dtype) {
  std::vector<at::Tensor> cores;
  for (int64_t k = 0; k < shape.cores(); ++k) {
    cores.push_back(at::empty(shape.CoreSizes(k), dtype));
    Fill(UniformValues(seed, StreamOfCore(k), CoreScale(shape, k)), 0, cores.back().numel(),
         cores.back());
  }
  return cores;
}

// [M, N], every row the same.
at::Tensor MakePattern(const TtShape& shape, uint64_t seed, at::ScalarType dtype) {
  at::Tensor weight = at::empty({shape.out_features(), shape.in_features()}, dtype);
  const int64_t columns = shape.in_features();
  Fill(UniformValues(seed, StreamOfCore(0), CoreScale(shape, 0)), 0, columns, weight);
  const size_t row_bytes = static_cast<size_t>(columns) * weight.element_size();
  char* data = static_cast<char*>(weight.mutable_data_ptr());
  for (int64_t row = 1; row < shape.out_features(); ++row) {
    std::memcpy(data + static_cast<size_t>(row) * row_bytes, data, row_bytes);
  }
  return weight;
}

// The product of the cores, [M, N].
at::Tensor MakeProduct(const TtShape& shape, uint64_t seed, at::ScalarType dtype) {
  const at::ScalarType wide = dtype == at::kBFloat16 ? at::kFloat : dtype;
  const std::vector<at::Tensor> cores = MakeCores(shape, seed, wide);
  at::Tensor joined = cores[0].view({-1, shape.right_rank(0)});
  std::vector<int64_t> sizes, order;
  for (int64_t k = 0; k < shape.cores(); ++k) {
    if (k > 0) joined = at::mm(joined, cores[k].view({shape.left_rank(k), -1}));
    if (k > 0) joined = joined.view({-1, shape.right_rank(k)});
    sizes.insert(sizes.end(), {shape.n(k), shape.m(k)});
  }
  for (int64_t k = 0; k < shape.cores(); ++k) order.push_back(2 * k + 1);
  for (int64_t k = 0; k < shape.cores(); ++k) order.push_back(2 * k);
  joined = joined.view(sizes).permute(order);
  at::Tensor weight = at::empty({shape.out_features(), shape.in_features()}, dtype);
  weight.view(joined.sizes()).copy_(joined);
  return weight;
}

}  // namespace

LinearRun::LinearRun(const LinearVariant& variant, const LinearProblem& problem, uint64_t seed,
                     DenseWeight dense_weight)
    : variant_(variant), problem_(problem), seed_(seed) {
  const at::ScalarType dtype = ScalarTypeOf(problem.dtype);
  if (variant.is_dense()) {
    parameters_ = {dense_weight == DenseWeight::kProduct ? MakeProduct(problem.shape, seed, dtype)
                                                         : MakePattern(problem.shape, seed, dtype)};
  } else {
    parameters_ = MakeCores(problem.shape, seed, dtype);
  }
  inputs_ = {at::empty({problem.batch, problem.shape.in_features()}, dtype)};
  Fill(UniformValues(seed, kStreamX, 1), 0, x().numel(), x());
  MoveTo(TorchDevice(problem.device));
  Prepare(problem.phase);
}

PhaseRun::Tensors LinearRun::Forward() {
  at::AutoGradMode grad(problem_.phase != Phase::kInference);
  return {variant_.Forward(problem_.shape, x(), parameters_)};
}

PhaseRun::Tensors LinearRun::MakeDy(const Reference* reference) const {
  const int64_t width = problem_.shape.out_features();
  const UniformValues values(seed_, kStreamDy, 1);
  const at::ScalarType type = x().scalar_type();
  if (!reference) {
    at::Tensor dy = at::empty({problem_.batch, width}, type);
    Fill(values, 0, dy.numel(), dy);
    return {dy.to(x().device())};
  }
  at::Tensor dy = at::zeros({problem_.batch, width}, type);
  for (int64_t row : dynamic_cast<const LinearReference&>(*reference).rows)
    Fill(values, row * width, width, dy);
  return {dy.to(x().device())};
}

void LinearRun::Backward(const Tensors& y, const Tensors& dy) { torch::autograd::backward(y, dy); }

void LinearRun::CheckResult(const Tensors& y) const {
  auto type_and_sizes = [](const auto& type, at::IntArrayRef sizes) {
    std::ostringstream text;
    text << type << " " << sizes;
    return text.str();
  };
  const std::string got = type_and_sizes(y.front().scalar_type(), y.front().sizes());
  const std::string want =
      type_and_sizes(x().scalar_type(), {problem_.batch, problem_.shape.out_features()});
  if (got != want) {
    throw BrokenContract("y is " + got + " where Forward() has to return " + want +
                         ", the type of x");
  }
  PhaseRun::CheckResult(y);
  if (problem_.phase != Phase::kInference && !y.front().requires_grad()) {
    throw BrokenContract(
        "y has no history, so nothing can be trained: compute it from x and the parameters by "
        "differentiable operators or a torch::autograd::Function");
  }
}

ResultError LinearRun::ErrorOf(const Tensors& y, const Reference& any_reference) const {
  const auto& reference = dynamic_cast<const LinearReference&>(any_reference);
  const int64_t width = problem_.shape.out_features();
  RelativeError error;
  WithData(y.front(), [&](const auto* data) {
    for (size_t i = 0; i < reference.rows.size(); ++i)
      for (int64_t j = 0; j < width; ++j)
        error.Add(data[reference.rows[i] * width + j], reference.oracle.y[i * width + j]);
  });
  return {error.value(), "y"};
}

ResultError LinearRun::ErrorOfGradients(const Reference& any_reference) const {
  const auto& reference = dynamic_cast<const LinearReference&>(any_reference);
  const int64_t in = problem_.shape.in_features(), out = problem_.shape.out_features();
  const int64_t rows = static_cast<int64_t>(reference.rows.size());
  auto gradient_of = [](const at::Tensor& tensor, const std::string& name) -> const at::Tensor& {
    if (!tensor.grad().defined()) {
      throw BrokenContract(name + " got no gradient: y has to depend on it, and a " +
                           "torch::autograd::Function has to return one for it");
    }
    return tensor.grad();
  };
  RelativeError dx_error;
  WithData(gradient_of(x(), "x"), [&](const auto* data) {
    int64_t next = 0;  // The next reference row; all others have no gradient.
    for (int64_t b = 0; b < problem_.batch; ++b) {
      const bool expected = next < rows && reference.rows[next] == b;
      for (int64_t i = 0; i < in; ++i)
        dx_error.Add(data[b * in + i], expected ? reference.oracle.dx[next * in + i] : 0.0);
      next += expected;
    }
  });
  ResultError worst{dx_error.value(), "the gradient of x"};
  for (size_t k = 0; k < parameters_.size(); ++k) {
    const std::string name = variant_.is_dense() ? "the weight" : "core " + std::to_string(k + 1);
    RelativeError error;
    WithData(gradient_of(parameters_[k], name), [&](const auto* data) {
      if (!variant_.is_dense()) {
        const std::vector<double>& expected = reference.oracle.dcores[k];
        for (size_t i = 0; i < expected.size(); ++i) error.Add(data[i], expected[i]);
        return;
      }
      // dW = dy^T x, at no more than kCheckedRows of its rows.
      constexpr int64_t kCheckedRows = 256;
      for (int64_t j = 0; j < out; j += std::max<int64_t>(1, out / kCheckedRows)) {
        for (int64_t i = 0; i < in; ++i) {
          double expected = 0;
          for (int64_t r = 0; r < rows; ++r)
            expected += reference.dy[r * out + j] * reference.x[r * in + i];
          error.Add(data[j * in + i], expected);
        }
      }
    });
    worst.Raise({error.value(), "the gradient of " + name});
  }
  return worst;
}

}  // namespace ttbench
