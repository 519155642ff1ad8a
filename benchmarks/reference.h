// What a cell's results must be: the oracle on a few rows of the very inputs the cell runs on.
//
// The gradient of y is zero outside those rows, so the oracle's gradients of the cores, summed over
// the few rows, are the whole batch's: the check costs little at any batch and still runs the very
// configuration that is timed.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarks/workload.h"
#include "kernels/oracle.h"
#include "kernels/problem.h"

namespace ttbench {

struct LinearReference : Reference {
  std::vector<int64_t> rows;  // Of x, sorted: the first, the last, and one between.
  std::vector<double> x, dy;  // Those rows.
  OracleResult oracle;        // For those rows; gradients unless the phase is inference.
};

// The same inputs as LinearRun makes from this seed.
LinearReference MakeReference(const LinearProblem& problem, uint64_t seed);

}  // namespace ttbench
