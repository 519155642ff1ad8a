#include "benchmarks/inputs.h"

#include <cmath>

namespace ttbench {

UniformValues::UniformValues(uint64_t seed, uint64_t stream, double scale)
    : key_((seed * 0xd1342543de82ef95u + stream + 1) * 0xaf251af3b0f025b5u), step_(scale / 128) {}

double CoreScale(const TtShape& shape, int64_t k) {
  const double terms = static_cast<double>(shape.n(k) * shape.right_rank(k));
  return std::exp2(std::round(0.5 * std::log2(3 / terms)));
}

}  // namespace ttbench
