#include "kernels/attention/attention_cost.h"

#include <memory>
#include <vector>

namespace ttbench {

CellCost PredictAttentionCost(const AttentionVariant& variant, const AttentionProblem& problem) {
  return PredictCellCost(problem.phase, problem.dtype, problem.threads, [&](cost::Tape& tape) {
    TracedCell cell;
    AttentionInputs<cost::Tensor> inputs;
    for (const NamedSizes& parameter : AttentionParameters(variant, problem))
      inputs.parameters.push_back(tape.Leaf(parameter.name, parameter.sizes));
    const AttentionInputSizes sizes = InputSizes(variant, problem);
    inputs.context = tape.Leaf(sizes.context.name, sizes.context.sizes);
    for (const NamedSizes& s : sizes.steps) inputs.steps.push_back(tape.Leaf(s.name, s.sizes));
    for (const NamedSizes& s : sizes.initial) inputs.initial.push_back(tape.Leaf(s.name, s.sizes));
    cell.parameters = inputs.parameters;
    cell.inputs = {inputs.context};
    cell.inputs.insert(cell.inputs.end(), inputs.steps.begin(), inputs.steps.end());
    cell.inputs.insert(cell.inputs.end(), inputs.initial.begin(), inputs.initial.end());
    if (!variant.WhySkipped(problem).empty()) {
      cell.forward = [] { return std::vector<cost::Tensor>(); };
      return cell;
    }
    const std::shared_ptr<AttentionPass<cost::Tensor>> pass =
        variant.NewTracedPass(tape, problem, inputs);
    cell.forward = [pass] { return pass->Forward(); };
    cell.backward = [pass](const std::vector<cost::Tensor>& y,
                           const std::vector<cost::Tensor>& dy) { pass->Backward(y, dy); };
    cell.release = [pass] { pass->Release(); };
    return cell;
  });
}

}  // namespace ttbench
