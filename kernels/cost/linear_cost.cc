#include "kernels/cost/linear_cost.h"

#include <stdexcept>
#include <string>
#include <vector>

namespace ttbench {

LinearCost PredictLinearCost(const LinearVariant& variant, const LinearProblem& problem) {
  const TtShape& shape = problem.shape;
  auto trace = [&](cost::Tape& tape, const cost::Tensor& x,
                   const std::vector<cost::Tensor>& parameters) {
    try {
      return variant.Trace(tape, shape, x, parameters);
    } catch (const ShapeError&) {
      throw;
    } catch (const std::logic_error& error) {
      throw std::logic_error("the cost model of '" + variant.name() + "' fails on " +
                             shape.modes_name() + " with ranks " + shape.ranks_name() + ": " +
                             error.what() + "; correct its Trace()");
    }
  };
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
    cell.forward = [&trace, &tape, x = cell.inputs.front(), parameters = cell.parameters] {
      return std::vector<cost::Tensor>{trace(tape, x, parameters)};
    };
    return cell;
  });
}

}  // namespace ttbench
