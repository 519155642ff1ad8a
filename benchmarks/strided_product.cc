#include "benchmarks/strided_product.h"

#include <algorithm>

namespace ttbench {
namespace {

struct Run {
  int64_t size, stride;
};

// The dimensions of a side as few runs of one stride each: neighbours that lie end to end merge.
std::vector<Run> RunsOf(const Layout& elements, const std::vector<Side>& sides, Side side) {
  std::vector<Run> runs;
  for (size_t dim = 0; dim < sides.size(); ++dim) {
    const Run next{elements.sizes[dim], elements.strides[dim]};
    if (sides[dim] != side || next.size == 1) continue;
    if (!runs.empty() && runs.back().stride == next.size * next.stride) {
      runs.back() = {runs.back().size * next.size, next.stride};
    } else {
      runs.push_back(next);
    }
  }
  return runs;
}

bool Addresses(const Run& inner, const Run& outer) {
  return inner.stride == 1 && (outer.size == 1 || outer.stride >= inner.size);
}

}  // namespace

std::optional<std::vector<Side>> SidesOf(const std::vector<int64_t>& sizes, const Layout& matrix) {
  const size_t dims = matrix.sizes.size();
  std::vector<Side> sides(sizes.size(), Side::kBatch);
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    const int64_t extent = stride * sizes[i];
    for (size_t dim = 0; sizes[i] > 1; ++dim) {
      if (dim == dims) return std::nullopt;
      const int64_t begin = matrix.strides[dim], end = begin * matrix.sizes[dim];
      if (matrix.sizes[dim] == 1 || begin > stride || end < extent) continue;
      sides[i] = dim + 1 == dims ? Side::kColumns : dim + 2 == dims ? Side::kRows : Side::kBatch;
      break;
    }
    stride = extent;
  }
  return sides;
}

StridedProducts AddressInPlace(const Layout& elements, const std::vector<Side>& sides) {
  int64_t numel = 1;
  for (const int64_t size : elements.sizes) numel *= size;
  // A side may be looped over whole: then each call has one row, or one column.
  std::vector<Run> rows = RunsOf(elements, sides, Side::kRows);
  std::vector<Run> columns = RunsOf(elements, sides, Side::kColumns);
  rows.push_back({1, 1});
  columns.push_back({1, 1});
  StridedProducts best{numel, 1, 1};
  for (const Run& row : rows) {
    for (const Run& column : columns) {
      if (!Addresses(row, column) && !Addresses(column, row)) continue;
      const int64_t count = numel / (row.size * column.size);
      if (count < best.count) best = {count, row.size, column.size};
    }
  }
  return best;
}

}  // namespace ttbench
