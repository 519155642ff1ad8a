// One contraction for each core, under autograd. The arithmetic is the same in every form up to the
// order; what each form copies on the way differs, and with it the memory.
//
//   sequential      last core to first. Before each product the running tensor is permuted (one
//                   copy) so that the contracted modes are innermost; the copy, not the product's
//                   output, is held. With three cubic cores: exactly 2 r B d^3 beyond x.
//   sequential-l2r  first core to last by at::tensordot, as t3nsor does: a permuted copy of x as
//                   well.
//   sequential-bmm  last core to first by batched products, the core expanded over the batch: no
//                   copy forward, but the expanded core's gradient is materialised per sample.
//
// Every form holds the permuted copies of its cores.
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/tensordot.h>

#include "kernels/variant.h"

namespace ttbench {
namespace {

std::string CoreName(int64_t k) { return "G" + std::to_string(k + 1); }

// What the contraction with core k, counted from the last, leaves.
std::string PartialName(int64_t k) { return "T" + std::to_string(k + 1); }

class Sequential : public LinearVariant {
 public:
  std::string name() const override { return "sequential"; }
  std::string Algorithm(const LinearProblem&) const override {
    return "right to left, permute and mm";
  }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    const int64_t batch = x.size(0);
    int64_t left = batch * shape.in_features();  // B n_1 .. n_{k-1}
    int64_t right = 1;                           // m_{k+1} .. m_K
    // Rows [left, right], columns [n_k, r_k].
    at::Tensor partial = x;
    for (int64_t k = shape.cores() - 1; k >= 0; --k) {
      left /= shape.n(k);
      const int64_t n = shape.n(k), r = shape.right_rank(k);
      if (k < shape.cores() - 1) {
        partial = partial.view({left, n, right / shape.m(k + 1), r, shape.m(k + 1)})
                      .permute({0, 4, 2, 1, 3});
      }
      partial = partial.reshape({left * right, n * r});
      const at::Tensor core =
          cores[k].permute({1, 3, 0, 2}).reshape({n * r, shape.left_rank(k) * shape.m(k)});
      partial = at::mm(partial, core);
      right *= shape.m(k);
    }
    return partial.view({batch, right / shape.m(0), shape.m(0)})
        .transpose(1, 2)
        .reshape({batch, shape.out_features()});
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    const int64_t batch = x.size(0);
    int64_t left = batch * shape.in_features();
    int64_t right = 1;
    cost::Tensor partial = x;
    for (int64_t k = shape.cores() - 1; k >= 0; --k) {
      left /= shape.n(k);
      const int64_t n = shape.n(k), r = shape.right_rank(k);
      std::string copy_name;
      if (k < shape.cores() - 1) {
        copy_name = partial.name() + ", permuted";
        partial = tape.Reshape(partial, {left, n, right / shape.m(k + 1), r, shape.m(k + 1)}, "");
        partial = tape.Permute(partial, {0, 4, 2, 1, 3});
      }
      partial = tape.Reshape(partial, {left * right, n * r}, copy_name);
      const cost::Tensor core =
          tape.Reshape(tape.Permute(cores[k], {1, 3, 0, 2}),
                       {n * r, shape.left_rank(k) * shape.m(k)}, CoreName(k) + ", permuted");
      partial = tape.Mm(partial, core, PartialName(k));
      right *= shape.m(k);
    }
    partial = tape.Reshape(partial, {batch, right / shape.m(0), shape.m(0)}, "");
    return tape.Reshape(tape.Permute(partial, {0, 2, 1}), {batch, shape.out_features()}, "y");
  }
};

class SequentialLeftToRight : public LinearVariant {
 public:
  std::string name() const override { return "sequential-l2r"; }
  std::string Algorithm(const LinearProblem&) const override { return "left to right, tensordot"; }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    // [B, n_k .. n_K, m_1 .. m_{k-1}, r_{k-1}]
    std::vector<int64_t> sizes = shape.in_modes();
    sizes.insert(sizes.begin(), x.size(0));
    at::Tensor partial = x.view(sizes);
    const int64_t last = shape.cores() - 1;
    partial = at::tensordot(partial, cores[0].view({shape.n(0), shape.m(0), shape.right_rank(0)}),
                            {1}, {0});
    for (int64_t k = 1; k < last; ++k) {
      partial = at::tensordot(partial, cores[k], {1, partial.dim() - 1}, {1, 0});
    }
    partial = at::tensordot(partial,
                            cores[last].view({shape.left_rank(last), shape.n(last), shape.m(last)}),
                            {1, partial.dim() - 1}, {1, 0});
    return partial.reshape({x.size(0), shape.out_features()});
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    cost::Sizes sizes = shape.in_modes();
    sizes.insert(sizes.begin(), x.size(0));
    cost::Tensor partial = tape.Reshape(x, sizes, "");
    const int64_t last = shape.cores() - 1;
    partial = tape.Tensordot(
        partial, tape.Reshape(cores[0], {shape.n(0), shape.m(0), shape.right_rank(0)}, ""), {1},
        {0}, PartialName(0));
    for (int64_t k = 1; k < last; ++k) {
      partial = tape.Tensordot(partial, cores[k], {1, partial.dim() - 1}, {1, 0}, PartialName(k));
    }
    partial = tape.Tensordot(
        partial,
        tape.Reshape(cores[last], {shape.left_rank(last), shape.n(last), shape.m(last)}, ""),
        {1, partial.dim() - 1}, {1, 0}, "y");
    return tape.Reshape(partial, {x.size(0), shape.out_features()}, "y, permuted");
  }
};

class SequentialBmm : public LinearVariant {
 public:
  std::string name() const override { return "sequential-bmm"; }
  std::string Algorithm(const LinearProblem&) const override {
    return "right to left, bmm over expanded cores";
  }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    const int64_t last = shape.cores() - 1;
    int64_t left = x.size(0) * shape.in_features() / shape.n(last);  // B n_1 .. n_{k-1}
    int64_t right = shape.m(last);                                   // m_{k+1} .. m_K
    at::Tensor core = cores[last].view({shape.left_rank(last), shape.n(last), shape.m(last)});
    core = core.transpose(0, 1).reshape({shape.n(last), shape.left_rank(last) * shape.m(last)});
    // [left, r_k, right]
    at::Tensor partial = at::mm(x.view({left, shape.n(last)}), core);
    for (int64_t k = last - 1; k >= 0; --k) {
      left /= shape.n(k);
      const int64_t rows = shape.left_rank(k) * shape.m(k),
                    inner = shape.n(k) * shape.right_rank(k);
      core = cores[k].transpose(1, 2).reshape({rows, inner});
      partial = at::bmm(core.unsqueeze(0).expand({left, rows, inner}),
                        partial.view({left, inner, right}));
      right *= shape.m(k);
    }
    return partial.view({x.size(0), shape.out_features()});
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    const int64_t last = shape.cores() - 1;
    int64_t left = x.size(0) * shape.in_features() / shape.n(last);
    int64_t right = shape.m(last);
    cost::Tensor core =
        tape.Reshape(cores[last], {shape.left_rank(last), shape.n(last), shape.m(last)}, "");
    core = tape.Reshape(tape.Permute(core, {1, 0, 2}),
                        {shape.n(last), shape.left_rank(last) * shape.m(last)},
                        CoreName(last) + ", permuted");
    cost::Tensor partial =
        tape.Mm(tape.Reshape(x, {left, shape.n(last)}, ""), core, PartialName(last));
    for (int64_t k = last - 1; k >= 0; --k) {
      left /= shape.n(k);
      const int64_t rows = shape.left_rank(k) * shape.m(k),
                    inner = shape.n(k) * shape.right_rank(k);
      core = tape.Reshape(tape.Permute(cores[k], {0, 2, 1, 3}), {rows, inner},
                          CoreName(k) + ", permuted");
      const cost::Tensor expanded =
          tape.Expand(tape.Reshape(core, {1, rows, inner}, ""), {left, rows, inner});
      partial = tape.Bmm(expanded, tape.Reshape(partial, {left, inner, right}, ""),
                         k == 0 ? "y" : PartialName(k));
      right *= shape.m(k);
    }
    return tape.Reshape(partial, {x.size(0), shape.out_features()}, "");
  }
};

const RegisterLinearVariant kSequential(std::make_unique<Sequential>());
const RegisterLinearVariant kSequentialLeftToRight(std::make_unique<SequentialLeftToRight>());
const RegisterLinearVariant kSequentialBmm(std::make_unique<SequentialBmm>());

}  // namespace
}  // namespace ttbench
