#include "benchmarks/attention_run.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "benchmarks/fill.h"
#include "benchmarks/inputs.h"
#include "kernels/scalar_type.h"
#include "kernels/shape.h"

namespace ttbench {
namespace {

// Streams of inputs.h: x for the steps, dy, then what follows.
constexpr uint64_t kStreamContext = 2;
uint64_t StreamOfInitial(size_t i) { return 3 + i; }
uint64_t StreamOfParameter(size_t i) { return 1000 + i; }

// The scale that keeps the variance of what a parameter multiplies: about sqrt(3 / n), rounded down
// to a power of two.
double ParameterScale(const NamedSizes& parameter) {
  const double width = static_cast<double>(parameter.sizes.back());
  return std::exp2(std::floor(std::log2(std::sqrt(3 / width))));
}

// T tensors [B, n] hold what one tensor [B, T, n] does: element (b, t, i) is value ((b T) + t) n +
// i.
struct StepLayout {
  int64_t batch, target_len, width;
  int64_t ValueIndex(int64_t b, int64_t t, int64_t i) const {
    return (b * target_len + t) * width + i;
  }
};

StepLayout LayoutOf(const AttentionProblem& problem, int64_t width) {
  return {problem.batch, problem.target_len, width};
}

// Calls use(pointer to the `width` elements of row b in step t, b, t) for each of `rows`.
template <typename Use>
void ForEachStep(const PhaseRun::Tensors& tensors, const StepLayout& layout,
                 const std::vector<int64_t>& rows, const Use& use) {
  const bool apart =
      static_cast<int64_t>(tensors.size()) == layout.target_len && tensors.front().dim() == 2;
  for (int64_t t = 0; t < layout.target_len; ++t) {
    WithData(apart ? tensors[t] : tensors.front(), [&](auto* data) {
      for (int64_t b : rows) {
        use(data + (apart ? b : b * layout.target_len + t) * layout.width, b, t);
      }
    });
  }
}

std::vector<int64_t> AllRows(int64_t batch) {
  std::vector<int64_t> rows(batch);
  for (int64_t b = 0; b < batch; ++b) rows[b] = b;
  return rows;
}

void FillSteps(const UniformValues& values, const StepLayout& layout,
               const std::vector<int64_t>& rows, const PhaseRun::Tensors& tensors) {
  ForEachStep(tensors, layout, rows, [&](auto* row, int64_t b, int64_t t) {
    using Element = std::remove_pointer_t<decltype(row)>;
    for (int64_t i = 0; i < layout.width; ++i)
      row[i] = static_cast<Element>(values[layout.ValueIndex(b, t, i)]);
  });
}

int64_t StepWidth(const AttentionProblem& problem) {
  return problem.layers > 0 ? kWordVectorSize : problem.hidden;
}

}  // namespace

AttentionRun::AttentionRun(const AttentionVariant& variant, const AttentionProblem& problem,
                           uint64_t seed)
    : problem_(problem), seed_(seed) {
  const at::ScalarType dtype = ScalarTypeOf(problem.dtype);
  AttentionInputs<at::Tensor> inputs;
  const std::vector<NamedSizes> parameters = AttentionParameters(variant, problem);
  for (size_t i = 0; i < parameters.size(); ++i) {
    inputs.parameters.push_back(at::empty(parameters[i].sizes, dtype));
    Fill(UniformValues(seed, StreamOfParameter(i), ParameterScale(parameters[i])), 0,
         inputs.parameters[i].numel(), inputs.parameters[i]);
  }
  const AttentionInputSizes sizes = InputSizes(variant, problem);
  inputs.context = at::empty(sizes.context.sizes, dtype);
  Fill(UniformValues(seed, kStreamContext, 1), 0, inputs.context.numel(), inputs.context);
  for (const NamedSizes& step : sizes.steps) inputs.steps.push_back(at::empty(step.sizes, dtype));
  FillSteps(UniformValues(seed, kStreamX, 1), LayoutOf(problem, StepWidth(problem)),
            AllRows(problem.batch), inputs.steps);
  for (size_t i = 0; i < sizes.initial.size(); ++i) {
    inputs.initial.push_back(at::empty(sizes.initial[i].sizes, dtype));
    Fill(UniformValues(seed, StreamOfInitial(i), 1), 0, inputs.initial[i].numel(),
         inputs.initial[i]);
  }
  const at::Device device = TorchDevice(problem.device);
  inputs.context = inputs.context.to(device);
  for (auto* tensors : {&inputs.parameters, &inputs.steps, &inputs.initial})
    for (at::Tensor& tensor : *tensors) tensor = tensor.to(device);
  parameters_ = inputs.parameters;
  inputs_ = {inputs.context};
  inputs_.insert(inputs_.end(), inputs.steps.begin(), inputs.steps.end());
  inputs_.insert(inputs_.end(), inputs.initial.begin(), inputs.initial.end());
  Prepare(problem.phase);
  pass_ = variant.NewPass(problem, inputs);
}

PhaseRun::Tensors AttentionRun::Forward() {
  at::AutoGradMode grad(problem_.phase != Phase::kInference);
  return pass_->Forward();
}

PhaseRun::Tensors AttentionRun::MakeDy(const Reference* reference) const {
  // In the form of the steps: y of all steps has their number of tensors.
  const bool apart = inputs_[1].dim() == 2;
  Tensors dy;
  for (int64_t t = 0; t < (apart ? problem_.target_len : 1); ++t) {
    dy.push_back(at::empty(apart
                               ? cost::Sizes{problem_.batch, problem_.hidden}
                               : cost::Sizes{problem_.batch, problem_.target_len, problem_.hidden},
                           inputs_[0].scalar_type()));
    if (reference) dy.back().zero_();
  }
  FillSteps(UniformValues(seed_, kStreamDy, 1), LayoutOf(problem_, problem_.hidden),
            reference ? dynamic_cast<const AttentionReference&>(*reference).rows
                      : AllRows(problem_.batch),
            dy);
  for (at::Tensor& part : dy) part = part.to(inputs_[0].device());
  return dy;
}

ResultError AttentionRun::ErrorOf(const Tensors& y, const Reference& any_reference) const {
  const auto& reference = dynamic_cast<const AttentionReference&>(any_reference);
  const int64_t hidden = problem_.hidden;
  RelativeError error;
  ForEachStep(y, LayoutOf(problem_, hidden), reference.rows,
              [&](const auto* row, int64_t b, int64_t t) {
                const auto at = std::find(reference.rows.begin(), reference.rows.end(), b);
                const int64_t r = at - reference.rows.begin();
                for (int64_t i = 0; i < hidden; ++i)
                  error.Add(row[i], reference.oracle.y[(r * problem_.target_len + t) * hidden + i]);
              });
  return {error.value(), "y"};
}

ResultError AttentionRun::ErrorOfGradients(const Reference& any_reference) const {
  const auto& reference = dynamic_cast<const AttentionReference&>(any_reference);
  const AttentionOracleResult& oracle = reference.oracle;
  // The index among the reference's rows; -1 for rows whose gradients are zero.
  auto index_of = [&](int64_t b) -> int64_t {
    const auto at = std::find(reference.rows.begin(), reference.rows.end(), b);
    return at == reference.rows.end() ? -1 : at - reference.rows.begin();
  };
  std::vector<std::pair<RelativeError, std::string>> errors;
  auto check_rows = [&](const at::Tensor& gradient, const std::vector<double>& expected,
                        const std::string& of) {
    const int64_t width = gradient.numel() / problem_.batch;
    RelativeError& error = errors.emplace_back(RelativeError(), of).first;
    WithData(gradient, [&](const auto* data) {
      for (int64_t b = 0; b < problem_.batch; ++b) {
        const int64_t r = index_of(b);
        for (int64_t i = 0; i < width; ++i)
          error.Add(data[b * width + i], r < 0 ? 0.0 : expected[r * width + i]);
      }
    });
  };
  check_rows(inputs_[0].grad(), oracle.dcontext, "the context");

  const size_t steps = inputs_.size() - 1 - oracle.dinitial.size();
  Tensors gradients;
  for (size_t i = 1; i <= steps; ++i) gradients.push_back(inputs_[i].grad());
  const StepLayout layout = LayoutOf(problem_, StepWidth(problem_));
  RelativeError& step_error = errors.emplace_back(RelativeError(), "the steps").first;
  ForEachStep(gradients, layout, AllRows(problem_.batch),
              [&](const auto* row, int64_t b, int64_t t) {
                const int64_t r = index_of(b);
                for (int64_t i = 0; i < layout.width; ++i) {
                  step_error.Add(row[i], r < 0 ? 0.0 : oracle.dsteps[layout.ValueIndex(r, t, i)]);
                }
              });
  for (size_t i = 0; i < oracle.dinitial.size(); ++i)
    check_rows(inputs_[1 + steps + i].grad(), oracle.dinitial[i],
               "initial state " + std::to_string(i + 1));

  for (size_t i = 0; i < parameters_.size(); ++i) {
    RelativeError& error =
        errors.emplace_back(RelativeError(), "parameter " + std::to_string(i + 1)).first;
    WithData(parameters_[i].grad(), [&](const auto* data) {
      const std::vector<double>& expected = oracle.dparameters[i];
      for (size_t j = 0; j < expected.size(); ++j) error.Add(data[j], expected[j]);
    });
  }
  // With one source state the softmax is 1 whatever its score: gradients of what makes the score
  // are 0, and their rounding is measured by the other gradients.
  double scale = 0;
  for (const auto& [error, of] : errors) scale = std::max(scale, error.largest());
  ResultError worst;
  for (const auto& [error, of] : errors) worst.Raise({error.value(scale), "the gradient of " + of});
  return worst;
}

AttentionReference MakeAttentionReference(const AttentionVariant& variant,
                                          const AttentionProblem& problem, uint64_t seed) {
  AttentionReference reference;
  reference.rows = CheckedRows(problem.batch);
  auto rows_of = [&](uint64_t stream, int64_t width) {
    return ValuesOfRows(UniformValues(seed, stream, 1), reference.rows, width);
  };
  AttentionOracleInputs in;
  in.rows = static_cast<int64_t>(reference.rows.size());
  in.source_len = problem.source_len;
  in.target_len = problem.target_len;
  in.hidden = problem.hidden;
  in.layers = problem.layers;
  in.word_size = kWordVectorSize;
  in.additive = variant.is_additive();
  in.context = rows_of(kStreamContext, problem.source_len * problem.hidden);
  in.steps = rows_of(kStreamX, problem.target_len * StepWidth(problem));
  const AttentionInputSizes sizes = InputSizes(variant, problem);
  for (size_t i = 0; i < sizes.initial.size(); ++i)
    in.initial.push_back(rows_of(StreamOfInitial(i), problem.hidden));
  const std::vector<NamedSizes> parameters = AttentionParameters(variant, problem);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const UniformValues values(seed, StreamOfParameter(i), ParameterScale(parameters[i]));
    std::vector<double>& parameter = in.parameters.emplace_back(Product(parameters[i].sizes));
    for (size_t j = 0; j < parameter.size(); ++j) parameter[j] = values[static_cast<int64_t>(j)];
  }
  if (problem.phase != Phase::kInference)
    in.dy = rows_of(kStreamDy, problem.target_len * problem.hidden);
  reference.oracle = EvaluateAttentionOracle(in);
  return reference;
}

}  // namespace ttbench
