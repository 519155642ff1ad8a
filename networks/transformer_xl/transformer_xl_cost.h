// The cost of a cell of the Transformer-XL family: the network's own program on the tape, with each
// variant's cost model for the position-wise layers.
#pragma once

#include "kernels/cost/cell_cost.h"
#include "networks/transformer_xl/problem.h"

namespace ttbench {

// Throws ShapeError if a count passes 64 bits. The variant must support the problem.
CellCost PredictTransformerXlCost(const TransformerXlProblem& problem);

}  // namespace ttbench
