// Whether a product could read or write a matrix where its elements lie, so that no copy has to put
// them in order first.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace ttbench {

// Dimensions of a tensor, in elements.
struct Layout {
  std::vector<int64_t> sizes, strides;
};

// Where a dimension of a tensor goes in a matrix.
enum class Side { kBatch, kRows, kColumns };

// For each dimension of a contiguous tensor of `sizes`: which dimension of the matrix (or batch of
// matrices), laid over the same memory, it belongs to; none if some dimension is of two.
std::optional<std::vector<Side>> SidesOf(const std::vector<int64_t>& sizes, const Layout& matrix);

// Products of small matrices that do one large one's work.
struct StridedProducts {
  int64_t count;          // How many calls.
  int64_t rows, columns;  // Of the operand in each.
};

// The fewest calls by which GEMM can address the matrix in place: it takes two strides, one of them
// 1 and the other at least the first's extent, so dimensions that do not merge into such a pair are
// looped over. Where no dimension has the stride 1, each call has one row or one column.
StridedProducts AddressInPlace(const Layout& elements, const std::vector<Side>& sides);

}  // namespace ttbench
