// The cost of a cell of the linear family.
#pragma once

#include "kernels/cost/cell_cost.h"
#include "kernels/problem.h"
#include "kernels/variant.h"

namespace ttbench {

using LinearCost = CellCost;

// Where the variant's peaks are not modelled, the peaks leave out the library's scratch.
// Throws ShapeError if a count passes 64 bits, and std::logic_error, naming the variant, if its
// Trace() makes no program. The variant must support the problem.
LinearCost PredictLinearCost(const LinearVariant& variant, const LinearProblem& problem);

}  // namespace ttbench
