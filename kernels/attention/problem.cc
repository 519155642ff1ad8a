#include "kernels/attention/problem.h"

#include <algorithm>
#include <cmath>

namespace ttbench {

std::string SizeName(const AttentionProblem& problem) {
  std::string name = "L" + std::to_string(problem.source_len) + "-T" +
                     std::to_string(problem.target_len) + "-H" + std::to_string(problem.hidden);
  if (problem.layers > 0) name += "-N" + std::to_string(problem.layers);
  return name;
}

double Tolerance(const AttentionProblem& problem) {
  const bool tf32 = problem.tf32 && problem.dtype == DType::kFloat32;
  const double roundoff = tf32 ? kTf32Roundoff : UnitRoundoff(problem.dtype);
  // Of TF32 two roundoffs for each of five products.
  const double chain = tf32 ? 10 * roundoff
                            : 1e-5 * roundoff / UnitRoundoff(DType::kFloat32) *
                                  (problem.dtype == DType::kFloat64 ? 2 : 1);
  const double terms = static_cast<double>(problem.batch * problem.source_len) *
                       static_cast<double>(problem.target_len);
  const double in_series =
      problem.layers > 0 ? std::sqrt(static_cast<double>(problem.target_len * (problem.layers + 1)))
                         : 1;
  return std::max(chain * in_series, 2 * roundoff * std::sqrt(terms));
}

}  // namespace ttbench
