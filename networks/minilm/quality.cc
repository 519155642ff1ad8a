#include "networks/minilm/quality.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ttbench {
namespace {

std::vector<double> Ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t i, size_t j) { return values[i] < values[j]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i) {
      ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
    }
  }
  return ranks;
}

at::Tensor UnitRows(const at::Tensor& rows) {
  const at::Tensor wide = rows.to(at::kDouble);
  return wide / wide.norm(2, 1, /*keepdim=*/true);
}

// The cosines of all pairs of rows.
std::vector<double> PairCosines(const at::Tensor& unit_rows) {
  const at::Tensor all = at::mm(unit_rows, unit_rows.t());
  const double* cosines = all.const_data_ptr<double>();
  const int64_t rows = unit_rows.size(0);
  std::vector<double> pairs;
  for (int64_t i = 0; i < rows; ++i) {
    pairs.insert(pairs.end(), cosines + i * rows + i + 1, cosines + (i + 1) * rows);
  }
  return pairs;
}

}  // namespace

double SpearmanCorrelation(const std::vector<double>& a, const std::vector<double>& b) {
  const std::vector<double> x = Ranks(a), y = Ranks(b);
  const double mean = static_cast<double>(x.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx == 0 || yy == 0 ? 0 : xy / std::sqrt(xx * yy);
}

EmbeddingQuality CompareEmbeddings(const at::Tensor& original, const at::Tensor& changed) {
  const at::Tensor before = UnitRows(original), after = UnitRows(changed);
  const at::Tensor cosines = (before * after).sum(1);
  return {cosines.mean().item<double>(), cosines.min().item<double>(),
          SpearmanCorrelation(PairCosines(before), PairCosines(after))};
}

}  // namespace ttbench
