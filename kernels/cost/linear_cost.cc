#include "kernels/cost/linear_cost.h"

#include <string>

namespace ttbench {

LinearCost PredictLinearCost(const LinearVariant& variant, const LinearProblem& problem) {
  const TtShape& shape = problem.shape;
  return PredictCellCost(problem.phase, problem.dtype, problem.threads, [&](cost::Tape& tape) {
    TracedCell cell;
    if (variant.is_dense()) {
      cell.parameters.push_back(tape.Leaf("weight", {shape.out_features(), shape.in_features()}));
    } else {
      for (int64_t k = 0; k < shape.cores(); ++k) {
        cell.parameters.push_back(tape.Leaf("G" + std::to_string(k + 1), shape.CoreSizes(k)));
      }
    }
    cell.inputs = {tape.Leaf("x", {problem.batch, shape.in_features()})};
    cell.forward = [&variant, &tape, &shape, x = cell.inputs.front(),
                    parameters = cell.parameters] {
      return std::vector<cost::Tensor>{variant.Trace(tape, shape, x, parameters)};
    };
    return cell;
  });
}

}  // namespace ttbench
