#include "networks/transformer_xl/transformer_xl_cost.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/ops.h"
#include "kernels/variant.h"
#include "networks/transformer_xl/program.h"

namespace ttbench {
namespace {

using cost::Tape;
using cost::Tensor;

constexpr int64_t kIndexBytes = 8;

// As FindTargets() makes them (transformer_xl.h).
SoftmaxTargets<Tensor> TraceTargets(Tape& tape, const TransformerXlProblem& problem) {
  const TransformerXlOptions& network = problem.network;
  SoftmaxTargets<Tensor> found;
  found.head = tape.Empty("classes of the head", {problem.rows(), 1}, kIndexBytes);
  const std::vector<int64_t> targets = TargetsOf(problem);
  for (int64_t part = 1; part <= network.clusters(); ++part) {
    int64_t count = 0;
    for (const int64_t word : targets)
      count += word >= network.PartBegin(part) && word < network.PartEnd(part);
    auto& cluster = found.clusters.emplace_back();
    if (count == 0) continue;
    cluster.rows = tape.Empty("rows of a cluster", {count}, kIndexBytes);
    cluster.words = tape.Empty("words of a cluster", {count, 1}, kIndexBytes);
  }
  return found;
}

// A position-wise layer, dense or as TtLinear (kernels/tt_linear.h) computes it.
std::function<Tensor(const Tensor&)> TracePositionWise(Tape& tape, const LinearVariant* variant,
                                                       const std::optional<TtShape>& shape,
                                                       std::vector<Tensor> weights,
                                                       const Tensor& bias) {
  return [&tape, variant, shape, weights = std::move(weights), bias](const Tensor& x) {
    const Tape::Part part(&tape, "feed-forward");
    if (!variant) return tape.Addmm(bias, x, tape.Transpose(weights[0]), "y");
    Tensor y = variant->Trace(tape, *shape, tape.Reshape(x, x.sizes(), ""), weights);
    y = tape.recording() ? tape.Add(y, bias, "y + bias") : tape.AddInPlace(y, bias);
    return tape.Reshape(y, y.sizes(), "");
  };
}

TransformerXlWeights<Tensor> TraceWeights(Tape& tape, const TransformerXlOptions& network,
                                          std::vector<Tensor>* parameters) {
  std::map<std::string, Tensor> by_name;
  for (const ParameterSizes& parameter : ParametersOf(network)) {
    // The same term in all layers: "layer.query".
    std::string term = parameter.name;
    if (term.rfind("layer", 0) == 0) term = "layer" + term.substr(term.find('.'));
    parameters->push_back(tape.Leaf(term, parameter.sizes));
    by_name[parameter.name] = parameters->back();
  }
  const LinearVariant* variant =
      network.is_dense() ? nullptr : FindLinearVariant(network.feed_forward_variant);
  return WeightsByName<Tensor>(
      network, [&](const std::string& name) { return by_name.at(name); },
      [&](const std::string& name, const std::optional<TtShape>& shape) {
        std::vector<Tensor> matrices;
        if (!variant) {
          matrices.push_back(by_name.at(name + ".weight"));
        } else {
          for (int64_t k = 1; k <= shape->cores(); ++k)
            matrices.push_back(by_name.at(name + ".core" + std::to_string(k)));
        }
        return TracePositionWise(tape, variant, shape, std::move(matrices),
                                 by_name.at(name + ".bias"));
      });
}

}  // namespace

CellCost PredictTransformerXlCost(const TransformerXlProblem& problem) {
  const TransformerXlOptions& network = problem.network;
  return PredictCellCost(problem.phase, problem.dtype, problem.threads, [&](Tape& tape) {
    TracedCell cell;
    const int64_t length = network.target_len, batch = problem.batch;
    const int64_t keys = network.memory_len + length;
    const auto weights = std::make_shared<const TransformerXlWeights<Tensor>>(
        TraceWeights(tape, network, &cell.parameters));
    TransformerXlInputs<Tensor> inputs;
    inputs.batch = batch;
    inputs.positions = tape.Empty("position codes", {keys, network.d_model});
    inputs.mask = tape.Empty("mask", {length, keys});
    inputs.tokens = tape.Empty("tokens", {length * batch}, kIndexBytes);
    const Tensor targets = tape.Empty("targets", {length * batch}, kIndexBytes);
    for (int64_t l = 0; l < network.layers && network.memory_len > 0; ++l) {
      inputs.memory.push_back(tape.Empty("memory", {network.memory_len, batch, network.d_model}));
    }
    cell.inputs = {inputs.positions, inputs.mask, inputs.tokens, targets};
    cell.inputs.insert(cell.inputs.end(), inputs.memory.begin(), inputs.memory.end());
    const auto memory = std::make_shared<std::vector<Tensor>>();
    cell.forward = [&tape, &problem, weights, inputs, memory] {
      TransformerXlInputs<Tensor> all = inputs;
      all.targets = TraceTargets(tape, problem);
      TransformerXlResult<Tensor> result =
          TransformerXlProgram<TracedOps>(TracedOps{&tape}, problem.network, *weights).Forward(all);
      *memory = std::move(result.memory);
      return std::vector<Tensor>{
          tape.Reshape(result.loss, {problem.network.target_len, problem.batch}, "")};
    };
    cell.release = [memory] { memory->clear(); };
    return cell;
  });
}

}  // namespace ttbench
