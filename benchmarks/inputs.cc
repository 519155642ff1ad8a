#include "benchmarks/inputs.h"

#include <cmath>
#include <set>

namespace ttbench {

UniformValues::UniformValues(uint64_t seed, uint64_t stream, double scale)
    : key_((seed * 0xd1342543de82ef95u + stream + 1) * 0xaf251af3b0f025b5u), step_(scale / 128) {}

std::vector<int64_t> CheckedRows(int64_t batch) {
  if (batch == 0) return {};
  const std::set<int64_t> rows{0, batch / 2, batch - 1};
  return {rows.begin(), rows.end()};
}

std::vector<double> ValuesOfRows(const UniformValues& values, const std::vector<int64_t>& rows,
                                 int64_t width) {
  std::vector<double> result;
  result.reserve(rows.size() * width);
  for (int64_t row : rows)
    for (int64_t i = 0; i < width; ++i) result.push_back(values[row * width + i]);
  return result;
}

double CoreScale(const TtShape& shape, int64_t k) {
  const double terms = static_cast<double>(shape.n(k) * shape.right_rank(k));
  return std::exp2(std::round(0.5 * std::log2(3 / terms)));
}

}  // namespace ttbench
