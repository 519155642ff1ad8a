// The reference: a TT layer and its gradients in float64, in plain loops, independent of LibTorch
// and of every variant.
#pragma once

#include <vector>

#include "kernels/shape.h"

namespace ttbench {

// Row-major: x is [rows, N], y is [rows, M], core k is [r_{k-1}, n_k, m_k, r_k].
struct OracleResult {
  std::vector<double> y;
  std::vector<double> dx;                   // Empty without dy, like dcores.
  std::vector<std::vector<double>> dcores;  // Summed over the rows.
};

// y = x W^T and, if dy ([rows, M]) is not empty, the gradients of sum(y * dy). Contracts one core
// after another from the last, so that it is affordable at any size.
OracleResult EvaluateOracle(const TtShape& shape, const std::vector<std::vector<double>>& cores,
                            const std::vector<double>& x, const std::vector<double>& dy);

// W, [M, N], element by element from the definition in shape.h. For testing EvaluateOracle and
// everything else at small sizes.
std::vector<double> MatrixByDefinition(const TtShape& shape,
                                       const std::vector<std::vector<double>>& cores);

}  // namespace ttbench
