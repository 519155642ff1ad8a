// plain-loop: one product for each core, the last first, as one would write it down.
#include <ATen/ops/mm.h>

#include "kernels/variant.h"

namespace ttbench {
namespace {

class PlainLoop : public LinearVariant {
 public:
  std::string name() const override { return "plain-loop"; }
  std::string Algorithm(const LinearProblem&) const override {
    return "last core to first, permute and mm";
  }

  at::Tensor Forward(const TtShape& s, const at::Tensor& x, at::TensorList cores) const override {
    int64_t left = x.numel(), right = 1;  // B n_1 .. n_{k-1} and m_{k+1} .. m_K
    at::Tensor t = x;
    for (int64_t k = s.cores() - 1; k >= 0; --k) {
      const int64_t n = s.n(k), m = s.m(k), l = s.left_rank(k), r = s.right_rank(k);
      left /= n;
      t = t.reshape({left, n, r, right}).permute({0, 3, 1, 2}).reshape({left * right, n * r});
      t = at::mm(t, cores[k].permute({1, 3, 0, 2}).reshape({n * r, l * m}));
      t = t.view({left, right, l, m}).permute({0, 2, 3, 1});
      right *= m;
    }
    return t.reshape({x.size(0), s.out_features()});
  }

  // Line for line, so that what is alive together there is alive together here.
  cost::Tensor Trace(cost::Tape& tape, const TtShape& s, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    int64_t left = x.numel(), right = 1;
    cost::Tensor t = x;
    for (int64_t k = s.cores() - 1; k >= 0; --k) {
      const int64_t n = s.n(k), m = s.m(k), l = s.left_rank(k), r = s.right_rank(k);
      const std::string of = std::to_string(k + 1);
      left /= n;
      t = tape.Reshape(
          tape.Permute(tape.Reshape(t, {left, n, r, right}, "input of " + of), {0, 3, 1, 2}),
          {left * right, n * r}, "input of " + of + ", permuted");
      t = tape.Mm(t,
                  tape.Reshape(tape.Permute(cores[k], {1, 3, 0, 2}), {n * r, l * m},
                               "G" + of + ", permuted"),
                  "T" + of);
      t = tape.Permute(tape.Reshape(t, {left, right, l, m}, ""), {0, 2, 3, 1});
      right *= m;
    }
    return tape.Reshape(t, {x.size(0), s.out_features()}, "y");
  }
};

const RegisterLinearVariant kPlainLoop(std::make_unique<PlainLoop>());

}  // namespace
}  // namespace ttbench
