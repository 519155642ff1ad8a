#include "benchmarks/transformer_xl_run.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "benchmarks/fill.h"
#include "benchmarks/inputs.h"
#include "kernels/scalar_type.h"
#include "kernels/shape.h"

namespace ttbench {
namespace {

// Streams of inputs.h: dy, then what follows.
uint64_t StreamOfMemory(int64_t layer) { return 2 + static_cast<uint64_t>(layer); }
uint64_t StreamOfParameter(size_t i) { return 100000 + i; }

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Fills the i-th parameter of ParametersOf(). Weights keep the variance of what they multiply,
// norms are near 1, biases small; but those before the relus are +8 or -8, many deviations of the
// sums that they are added to: rounding decides about no relu.
void FillParameter(const TransformerXlOptions& network, const std::string& name, size_t i,
                   uint64_t seed, const at::Tensor& parameter) {
  const at::IntArrayRef sizes = parameter.sizes();
  const uint64_t stream = StreamOfParameter(i);
  if (Contains(name, ".core")) {
    const TtShape& shape = Contains(name, ".up.") ? *network.up : *network.down;
    const int64_t k = name.back() - '1';
    Fill(UniformValues(seed, stream, CoreScale(shape, k)), 0, parameter.numel(), parameter);
  } else if (sizes.size() == 2 && !Contains(name, "_bias")) {
    const double scale =
        std::exp2(std::round(0.5 * std::log2(3.0 / static_cast<double>(sizes[1]))));
    Fill(UniformValues(seed, stream, scale), 0, parameter.numel(), parameter);
  } else {
    constexpr double kSmall = 0.25;
    const UniformValues values(seed, stream, kSmall);
    WithData(parameter, [&](auto* data) {
      using Element = std::remove_pointer_t<decltype(data)>;
      for (int64_t j = 0; j < parameter.numel(); ++j) {
        double value = values[j];
        if (Contains(name, "norm_weight")) value += 1;
        if (Contains(name, ".up.bias")) value = value < 0 ? -8 : 8;
        data[j] = static_cast<Element>(value);
      }
    });
  }
}

// Of the embedding's gradient, the most frequent words and every so many of the others.
at::Tensor CheckedWords(const at::Tensor& gradient) {
  constexpr int64_t kFrequent = 64, kOthers = 512;
  const int64_t words = gradient.size(0);
  std::vector<at::Tensor> rows;
  const int64_t step = std::max<int64_t>(1, words / kOthers);
  for (int64_t w = 0; w < words; w += w < kFrequent ? 1 : step) rows.push_back(gradient[w]);
  return at::stack(rows);
}

// [T, B] for the sequences asked for.
at::Tensor WordsOf(const std::vector<int64_t>& words, const TransformerXlProblem& problem,
                   const std::vector<int64_t>& rows) {
  const int64_t length = problem.network.target_len, count = static_cast<int64_t>(rows.size());
  at::Tensor tensor = at::empty({length, count}, at::kLong);
  int64_t* data = tensor.mutable_data_ptr<int64_t>();
  for (int64_t t = 0; t < length; ++t)
    for (int64_t r = 0; r < count; ++r) data[t * count + r] = words[t * problem.batch + rows[r]];
  return tensor;
}

// Values of [places, B, width] for the sequences asked for.
at::Tensor ColumnsOf(const UniformValues& values, int64_t places, int64_t batch, int64_t width,
                     const std::vector<int64_t>& rows, at::ScalarType dtype) {
  const int64_t count = static_cast<int64_t>(rows.size());
  at::Tensor tensor = at::empty({places, count, width}, dtype);
  WithData(tensor, [&](auto* data) {
    using Element = std::remove_pointer_t<decltype(data)>;
    for (int64_t t = 0; t < places; ++t)
      for (int64_t r = 0; r < count; ++r)
        for (int64_t i = 0; i < width; ++i)
          data[(t * count + r) * width + i] =
              static_cast<Element>(values[(t * batch + rows[r]) * width + i]);
  });
  return tensor;
}

std::vector<at::Tensor> MemoryOf(const TransformerXlProblem& problem, uint64_t seed,
                                 const std::vector<int64_t>& rows, at::ScalarType dtype) {
  std::vector<at::Tensor> memory;
  const TransformerXlOptions& network = problem.network;
  for (int64_t l = 0; l < network.layers && network.memory_len > 0; ++l) {
    memory.push_back(ColumnsOf(UniformValues(seed, StreamOfMemory(l), 1), network.memory_len,
                               problem.batch, network.d_model, rows, dtype));
  }
  return memory;
}

std::vector<int64_t> AllRows(int64_t batch) {
  std::vector<int64_t> rows(batch);
  for (int64_t b = 0; b < batch; ++b) rows[b] = b;
  return rows;
}

// The gradients of the losses of those sequences, [T, rows].
at::Tensor LossGradients(const TransformerXlProblem& problem, uint64_t seed,
                         const std::vector<int64_t>& rows, at::ScalarType dtype) {
  return ColumnsOf(UniformValues(seed, kStreamDy, 1), problem.network.target_len, problem.batch, 1,
                   rows, dtype)
      .squeeze(2);
}

// W, [M, N], by products of the cores; differentiable.
at::Tensor MatrixOf(const TtShape& shape, const std::vector<at::Tensor>& cores) {
  at::Tensor joined = cores[0].reshape({-1, shape.right_rank(0)});
  std::vector<int64_t> sizes, order;
  for (int64_t k = 0; k < shape.cores(); ++k) {
    if (k > 0) {
      joined = at::mm(joined, cores[k].reshape({shape.left_rank(k), -1}))
                   .reshape({-1, shape.right_rank(k)});
    }
    sizes.insert(sizes.end(), {shape.n(k), shape.m(k)});
  }
  for (int64_t k = 0; k < shape.cores(); ++k) order.push_back(2 * k + 1);
  for (int64_t k = 0; k < shape.cores(); ++k) order.push_back(2 * k);
  return joined.view(sizes).permute(order).reshape({shape.out_features(), shape.in_features()});
}

}  // namespace

TransformerXlRun::TransformerXlRun(const TransformerXlProblem& problem, uint64_t seed)
    : problem_(problem),
      seed_(seed),
      model_(problem.network, ScalarTypeOf(problem.dtype),
             TransformerXlImpl::InitialValues::kUnset) {
  const at::NoGradGuard no_grad;
  const std::vector<int64_t> rows = AllRows(problem.batch);
  size_t i = 0;
  for (const auto& parameter : model_->named_parameters()) {
    parameter.value().set_requires_grad(problem.phase != Phase::kInference);
    parameters_.push_back(parameter.value());
    FillParameter(problem.network, parameter.key(), i++, seed, parameter.value());
  }
  // Words and memory ask for no gradient.
  Prepare(problem.phase);
  tokens_ = WordsOf(TokensOf(problem), problem, rows);
  targets_ = WordsOf(TargetsOf(problem), problem, rows);
  given_memory_ = MemoryOf(problem, seed, rows, ScalarTypeOf(problem.dtype));
  inputs_ = {model_->positions(), model_->mask(), tokens_, targets_};
  inputs_.insert(inputs_.end(), given_memory_.begin(), given_memory_.end());
}

PhaseRun::Tensors TransformerXlRun::Forward() {
  at::AutoGradMode grad(problem_.phase != Phase::kInference);
  TransformerXlImpl::Output output = model_->forward(tokens_, targets_, given_memory_);
  memory_ = std::move(output.memory);
  return {std::move(output.loss)};
}

PhaseRun::Tensors TransformerXlRun::MakeDy(const Reference* reference) const {
  const at::ScalarType dtype = ScalarTypeOf(problem_.dtype);
  at::Tensor dy = at::empty({problem_.network.target_len, problem_.batch}, dtype);
  const UniformValues values(seed_, kStreamDy, 1);
  if (!reference) {
    Fill(values, 0, dy.numel(), dy);
    return {dy};
  }
  dy.zero_();
  for (int64_t t = 0; t < problem_.network.target_len; ++t)
    for (int64_t b : dynamic_cast<const TransformerXlReference&>(*reference).rows)
      Fill(values, t * problem_.batch + b, 1, dy);
  return {dy};
}

void TransformerXlRun::Backward(const Tensors& y, const Tensors& dy) {
  torch::autograd::backward(y, dy);
}

ResultError TransformerXlRun::ErrorOf(const Tensors& y, const Reference& any_reference) const {
  const auto& reference = dynamic_cast<const TransformerXlReference&>(any_reference);
  const double* expected = reference.loss.const_data_ptr<double>();
  RelativeError error;
  WithData(y.front(), [&](const auto* data) {
    for (int64_t t = 0; t < problem_.network.target_len; ++t)
      for (int64_t b : reference.rows) error.Add(data[t * problem_.batch + b], *expected++);
  });
  return {error.value(), "y"};
}

ResultError TransformerXlRun::ErrorOfGradients(const Reference& any_reference) const {
  const auto& reference = dynamic_cast<const TransformerXlReference&>(any_reference);
  const std::vector<ParameterSizes> names = ParametersOf(problem_.network);
  std::vector<RelativeError> errors(parameters_.size());
  double scale = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor gradient = parameters_[i].grad();
    if (names[i].name == "embedding") gradient = CheckedWords(gradient);
    const double* expected = reference.gradients[i].const_data_ptr<double>();
    WithData(gradient, [&](const auto* data) {
      for (int64_t j = 0; j < gradient.numel(); ++j) errors[i].Add(data[j], expected[j]);
    });
    scale = std::max(scale, errors[i].largest());
  }
  ResultError worst;
  for (size_t i = 0; i < parameters_.size(); ++i)
    worst.Raise({errors[i].value(scale), "the gradient of " + names[i].name});
  return worst;
}

TransformerXlReference MakeTransformerXlReference(const TransformerXlProblem& problem,
                                                  uint64_t seed) {
  // The caller may fork children that compute: no threads of LibTorch's may be left behind.
  at::set_num_threads(1);
  const bool train = problem.phase != Phase::kInference;
  const at::AutoGradMode grad(train);
  const TransformerXlOptions& network = problem.network;
  TransformerXlReference reference;
  const std::set<int64_t> ends{0, problem.batch - 1};
  reference.rows.assign(ends.begin(), ends.end());

  std::vector<at::Tensor> parameters;
  std::map<std::string, at::Tensor> by_name;
  for (const ParameterSizes& parameter : ParametersOf(network)) {
    at::Tensor values = at::empty(parameter.sizes, at::kDouble);
    FillParameter(network, parameter.name, parameters.size(), seed, values);
    by_name[parameter.name] = values.set_requires_grad(train);
    parameters.push_back(values);
  }
  const auto weights = WeightsByName<at::Tensor>(
      network, [&](const std::string& name) { return by_name.at(name); },
      [&](const std::string& name, const std::optional<TtShape>& shape) {
        at::Tensor matrix;
        if (network.is_dense()) {
          matrix = by_name.at(name + ".weight");
        } else {
          std::vector<at::Tensor> cores;
          for (int64_t k = 1; k <= shape->cores(); ++k)
            cores.push_back(by_name.at(name + ".core" + std::to_string(k)));
          matrix = MatrixOf(*shape, cores);
        }
        return [matrix, bias = by_name.at(name + ".bias")](const at::Tensor& x) {
          return at::linear(x, matrix, bias);
        };
      });
  TransformerXlInputs<at::Tensor> inputs;
  inputs.batch = static_cast<int64_t>(reference.rows.size());
  inputs.tokens = WordsOf(TokensOf(problem), problem, reference.rows).view({-1});
  inputs.targets =
      FindTargets(network, WordsOf(TargetsOf(problem), problem, reference.rows).view({-1}));
  inputs.memory = MemoryOf(problem, seed, reference.rows, at::kDouble);
  inputs.positions = PositionCodes(network, ScalarTypeOf(problem.dtype)).to(at::kDouble);
  inputs.mask = AttentionMask(network, at::kDouble);
  const at::Tensor loss = TransformerXlProgram<RealOps>(RealOps{}, network, weights)
                              .Forward(inputs)
                              .loss.view({network.target_len, inputs.batch});
  reference.loss = loss.detach().contiguous();
  if (!train) return reference;
  torch::autograd::backward({loss}, {LossGradients(problem, seed, reference.rows, at::kDouble)});
  for (const at::Tensor& parameter : parameters) {
    const bool is_embedding = parameter.is_same(by_name.at("embedding"));
    reference.gradients.push_back(is_embedding ? CheckedWords(parameter.grad())
                                               : parameter.grad().contiguous());
  }
  return reference;
}

}  // namespace ttbench
