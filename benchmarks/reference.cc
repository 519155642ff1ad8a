#include "benchmarks/reference.h"

#include "benchmarks/inputs.h"

namespace ttbench {

LinearReference MakeReference(const LinearProblem& problem, uint64_t seed) {
  const TtShape& shape = problem.shape;
  LinearReference reference;
  reference.rows = CheckedRows(problem.batch);
  auto rows_of = [&](uint64_t stream, int64_t width) {
    return ValuesOfRows(UniformValues(seed, stream, 1), reference.rows, width);
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
