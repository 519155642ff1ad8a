// The cost of a cell of the attention family.
#pragma once

#include "kernels/attention/variant.h"
#include "kernels/cost/cell_cost.h"

namespace ttbench {

// Of a problem that the variant does not support: of its inputs and parameters alone. Throws
// ShapeError if a count passes 64 bits.
CellCost PredictAttentionCost(const AttentionVariant& variant, const AttentionProblem& problem);

}  // namespace ttbench
