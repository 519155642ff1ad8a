#include "benchmarks/reference.h"

#include <set>

#include "benchmarks/inputs.h"

namespace ttbench {

LinearReference MakeReference(const LinearProblem& problem, uint64_t seed) {
  const TtShape& shape = problem.shape;
  LinearReference reference;
  if (problem.batch > 0) {
    const std::set<int64_t> rows{0, problem.batch / 2, problem.batch - 1};
    reference.rows.assign(rows.begin(), rows.end());
  }
  auto rows_of = [&](uint64_t stream, int64_t width) {
    const UniformValues values(seed, stream, 1);
    std::vector<double> rows;
    rows.reserve(reference.rows.size() * width);
    for (int64_t row : reference.rows)
      for (int64_t i = 0; i < width; ++i) rows.push_back(values[row * width + i]);
    return rows;
  };
  std::vector<std::vector<double>> cores;
  for (int64_t k = 0; k < shape.cores(); ++k) {
    const UniformValues values(seed, StreamOfCore(k), CoreScale(shape, k));
    std::vector<double>& core = cores.emplace_back(Product(shape.CoreSizes(k)));
    for (size_t i = 0; i < core.size(); ++i) core[i] = values[static_cast<int64_t>(i)];
  }
  reference.x = rows_of(kStreamX, shape.in_features());
  if (problem.phase != Phase::kInference) reference.dy = rows_of(kStreamDy, shape.out_features());
  reference.oracle = EvaluateOracle(shape, cores, reference.x, reference.dy);
  return reference;
}

}  // namespace ttbench
