#include "kernels/oracle.h"

#include <cstddef>

namespace ttbench {
namespace {

// The running tensor before core k is contracted is [left, n_k, r_k, right] with
// left = rows n_1..n_{k-1} and right = m_{k+1}..m_K; after it, [left, r_{k-1}, m_k, right].
struct Contraction {
  int64_t left, n, r, a, m, right;  // a = r_{k-1}

  int64_t Core(int64_t ia, int64_t in, int64_t im, int64_t ir) const {
    return ((ia * n + in) * m + im) * r + ir;
  }
  int64_t Before(int64_t l, int64_t in, int64_t ir) const {
    return ((l * n + in) * r + ir) * right;
  }
  int64_t After(int64_t l, int64_t ia, int64_t im) const { return ((l * a + ia) * m + im) * right; }
  int64_t before_size() const { return left * n * r * right; }
  int64_t after_size() const { return left * a * m * right; }

  // Calls visit(core index, offset before, offset after) for every product of a core's element with
  // a run of `right` elements.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (int64_t l = 0; l < left; ++l)
      for (int64_t ia = 0; ia < a; ++ia)
        for (int64_t im = 0; im < m; ++im)
          for (int64_t in = 0; in < n; ++in)
            for (int64_t ir = 0; ir < r; ++ir)
              visit(Core(ia, in, im, ir), Before(l, in, ir), After(l, ia, im));
  }
};

std::vector<Contraction> Contractions(const TtShape& shape, int64_t rows) {
  std::vector<Contraction> steps(shape.cores());
  int64_t left = rows * shape.in_features(), right = 1;
  for (int64_t k = shape.cores() - 1; k >= 0; --k) {
    left /= shape.n(k);
    steps[k] = {left, shape.n(k), shape.right_rank(k), shape.left_rank(k), shape.m(k), right};
    right *= shape.m(k);
  }
  return steps;
}

}  // namespace

OracleResult EvaluateOracle(const TtShape& shape, const std::vector<std::vector<double>>& cores,
                            const std::vector<double>& x, const std::vector<double>& dy) {
  const int64_t rows = static_cast<int64_t>(x.size()) / shape.in_features();
  const std::vector<Contraction> steps = Contractions(shape, rows);
  // partial[k] is what core k contracts; partial[k-1] what it leaves.
  std::vector<std::vector<double>> partial(shape.cores());
  OracleResult result;
  partial.back() = x;
  for (int64_t k = shape.cores() - 1; k >= 0; --k) {
    const Contraction& step = steps[k];
    std::vector<double>& after = k > 0 ? partial[k - 1] : result.y;
    after.assign(step.after_size(), 0.0);
    step.ForEach([&](int64_t core, int64_t from, int64_t to) {
      const double g = cores[k][core];
      const double* in = &partial[k][from];
      double* out = &after[to];
      for (int64_t q = 0; q < step.right; ++q) out[q] += g * in[q];
    });
  }
  if (dy.empty()) return result;

  std::vector<double> d_after = dy;
  result.dcores.resize(shape.cores());
  for (int64_t k = 0; k < shape.cores(); ++k) {
    const Contraction& step = steps[k];
    std::vector<double> d_before(step.before_size(), 0.0);
    result.dcores[k].assign(cores[k].size(), 0.0);
    step.ForEach([&](int64_t core, int64_t from, int64_t to) {
      const double g = cores[k][core];
      const double* in = &partial[k][from];
      const double* d_out = &d_after[to];
      double* d_in = &d_before[from];
      double dg = 0;
      for (int64_t q = 0; q < step.right; ++q) {
        d_in[q] += g * d_out[q];
        dg += in[q] * d_out[q];
      }
      result.dcores[k][core] += dg;
    });
    d_after = std::move(d_before);
  }
  result.dx = std::move(d_after);
  return result;
}

std::vector<double> MatrixByDefinition(const TtShape& shape,
                                       const std::vector<std::vector<double>>& cores) {
  const int64_t rows = shape.out_features(), columns = shape.in_features();
  std::vector<double> matrix(rows * columns);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      // The row vector G_1[i_1, j_1] G_2[i_2, j_2] .., grown one core at a time.
      std::vector<double> product{1.0};
      int64_t i = column, j = row;
      int64_t i_stride = columns, j_stride = rows;
      for (int64_t k = 0; k < shape.cores(); ++k) {
        i_stride /= shape.n(k);
        j_stride /= shape.m(k);
        const int64_t ik = i / i_stride, jk = j / j_stride;
        i %= i_stride;
        j %= j_stride;
        std::vector<double> next(shape.right_rank(k), 0.0);
        for (int64_t a = 0; a < shape.left_rank(k); ++a)
          for (int64_t b = 0; b < shape.right_rank(k); ++b)
            next[b] +=
                product[a] *
                cores[k][((a * shape.n(k) + ik) * shape.m(k) + jk) * shape.right_rank(k) + b];
        product = next;
      }
      matrix[row * columns + column] = product[0];
    }
  }
  return matrix;
}

}  // namespace ttbench
