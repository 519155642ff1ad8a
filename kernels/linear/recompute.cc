// Variants that save x and the cores only, by a torch::autograd::Function around the contraction
// from the last core to the first (permute and mm, as in sequential.cc).
//
//   recompute  activation checkpointing: the backward contracts again, and holds all the permuted
//              copies that the contraction makes: 2 r B d^3 for three cubic cores, in the backward
//              alone.
//   projected  the backward forms the gradient of the dense matrix, dW = dy^T x, and projects it on
//              the cores, as t3nsor's "custom" mode does; x's gradient is the same contraction with
//              inputs and outputs trading places.
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "kernels/variant.h"

namespace ttbench {
namespace {

std::string CoreName(int64_t k) { return "G" + std::to_string(k + 1); }
std::string PartialName(int64_t k) { return "T" + std::to_string(k + 1); }

// Both libraries behind one name: each step below runs on at::Tensor, or on the cost model's tape.
// Names are those of the buffers that a step allocates.
struct RealOps {
  using Tensor = at::Tensor;
  Tensor View(const Tensor& a, const Modes& sizes) const { return a.view(sizes); }
  Tensor Reshape(const Tensor& a, const Modes& sizes, const std::string&) const {
    return a.reshape(sizes);
  }
  Tensor Contiguous(const Tensor& a, const std::string&) const { return a.contiguous(); }
  Tensor Permute(const Tensor& a, const Modes& order) const { return a.permute(order); }
  Tensor Transpose(const Tensor& a) const { return a.t(); }
  Tensor Mm(const Tensor& a, const Tensor& b, const std::string&) const { return at::mm(a, b); }
};

struct TracedOps {
  using Tensor = cost::Tensor;
  cost::Tape* tape;
  Tensor View(const Tensor& a, const Modes& sizes) const { return tape->Reshape(a, sizes, ""); }
  Tensor Reshape(const Tensor& a, const Modes& sizes, const std::string& name) const {
    return tape->Reshape(a, sizes, name);
  }
  Tensor Contiguous(const Tensor& a, const std::string& name) const {
    return tape->Contiguous(a, name);
  }
  Tensor Permute(const Tensor& a, const Modes& order) const { return tape->Permute(a, order); }
  Tensor Transpose(const Tensor& a) const { return tape->Transpose(a); }
  Tensor Mm(const Tensor& a, const Tensor& b, const std::string& name) const {
    return tape->Mm(a, b, name);
  }
};

// Core k as [n r, left m].
template <typename Ops>
typename Ops::Tensor CoreMatrix(const Ops& ops, const TtShape& shape,
                                const typename Ops::Tensor& core, int64_t k) {
  return ops.Reshape(ops.Permute(core, {1, 3, 0, 2}),
                     {shape.n(k) * shape.right_rank(k), shape.left_rank(k) * shape.m(k)},
                     CoreName(k) + ", permuted");
}

// y; or, with `factors`, only the factors [B n_1 .. n_{k-1} m_{k+1} .. m_K, n_k r_k] that the cores
// multiply, index k.
template <typename Ops>
typename Ops::Tensor Contract(const Ops& ops, const TtShape& shape, const typename Ops::Tensor& x,
                              const std::vector<typename Ops::Tensor>& cores,
                              std::vector<typename Ops::Tensor>* factors) {
  const int64_t batch = x.size(0);
  int64_t left = batch * shape.in_features();
  int64_t right = 1;
  typename Ops::Tensor partial = x;
  for (int64_t k = shape.cores() - 1; k >= 0; --k) {
    left /= shape.n(k);
    const int64_t n = shape.n(k), r = shape.right_rank(k);
    if (k < shape.cores() - 1) {
      partial = ops.View(partial, {left, n, right / shape.m(k + 1), r, shape.m(k + 1)});
      partial = ops.Permute(partial, {0, 4, 2, 1, 3});
    }
    partial = ops.Reshape(partial, {left * right, n * r}, PartialName(k + 1) + ", permuted");
    if (factors) {
      (*factors)[k] = partial;
      if (k == 0) return {};
    }
    partial = ops.Mm(partial, CoreMatrix(ops, shape, cores[k], k), PartialName(k));
    right *= shape.m(k);
  }
  partial = ops.View(partial, {batch, right / shape.m(0), shape.m(0)});
  return ops.Reshape(ops.Permute(partial, {0, 2, 1}), {batch, shape.out_features()}, "y");
}

// The gradients of x and of every core, by going back through Contract().
template <typename Ops>
std::vector<typename Ops::Tensor> BackThroughContraction(
    const Ops& ops, const TtShape& shape, const typename Ops::Tensor& dy,
    const typename Ops::Tensor& x, const std::vector<typename Ops::Tensor>& cores) {
  using Tensor = typename Ops::Tensor;
  const int64_t batch = x.size(0), count = shape.cores();
  std::vector<Tensor> factors(count), gradients(count + 1);
  Contract(ops, shape, x, cores, &factors);
  int64_t left = batch;
  int64_t right = shape.out_features() / shape.m(0);
  Tensor gradient = ops.Reshape(ops.Permute(ops.View(dy, {batch, shape.m(0), right}), {0, 2, 1}),
                                {batch * right, shape.m(0)}, "dy, permuted");
  for (int64_t k = 0; k < count; ++k) {
    const int64_t n = shape.n(k), r = shape.right_rank(k);
    const std::string name = "d(" + CoreName(k) + ")";
    Tensor dcore = ops.Mm(ops.Transpose(factors[k]), gradient, name + ", permuted");
    dcore = ops.View(dcore, {n, r, shape.left_rank(k), shape.m(k)});
    gradients[k + 1] = ops.Contiguous(ops.Permute(dcore, {2, 0, 3, 1}), name);
    dcore = Tensor();
    factors[k] = Tensor();
    gradient = ops.Mm(gradient, ops.Transpose(CoreMatrix(ops, shape, cores[k], k)),
                      "d(" + PartialName(k + 1) + ")");
    if (k + 1 < count) {
      const int64_t m = shape.m(k + 1);
      gradient = ops.View(gradient, {left, m, right / m, n, r});
      gradient = ops.Reshape(ops.Permute(gradient, {0, 3, 2, 4, 1}), {left * n * right / m, r * m},
                             "d(" + PartialName(k + 1) + "), permuted");
      left *= n;
      right /= m;
    }
  }
  gradients[0] = ops.View(gradient, {batch, shape.in_features()});
  return gradients;
}

// The layer W^T: inputs and outputs trade places.
TtShape TransposedShape(const TtShape& shape) {
  const Modes& ranks = shape.ranks();
  return TtShape(shape.out_modes(), shape.in_modes(), Modes(ranks.begin() + 1, ranks.end() - 1));
}

// The gradients of x and of every core, through dW.
template <typename Ops>
std::vector<typename Ops::Tensor> ProjectMatrixGradient(
    const Ops& ops, const TtShape& shape, const typename Ops::Tensor& dy,
    const typename Ops::Tensor& x, const std::vector<typename Ops::Tensor>& cores) {
  using Tensor = typename Ops::Tensor;
  const int64_t count = shape.cores();
  std::vector<Tensor> gradients(count + 1);
  {
    std::vector<Tensor> transposed;
    for (const Tensor& core : cores) transposed.push_back(ops.Permute(core, {0, 2, 1, 3}));
    gradients[0] = Contract(ops, TransposedShape(shape), dy, transposed, nullptr);
  }
  // lefts[k]: the product of the cores before k, [n_1 m_1 .. n_{k-1} m_{k-1}, r_{k-1}].
  std::vector<Tensor> lefts(count);
  int64_t rows = shape.n(0) * shape.m(0);
  lefts[1] = ops.View(cores[0], {rows, shape.right_rank(0)});
  for (int64_t k = 1; k + 1 < count; ++k) {
    const int64_t p = shape.n(k) * shape.m(k), r = shape.right_rank(k);
    lefts[k + 1] = ops.Mm(lefts[k], ops.View(cores[k], {shape.left_rank(k), p * r}),
                          "product of cores before " + CoreName(k + 1));
    rows *= p;
    lefts[k + 1] = ops.View(lefts[k + 1], {rows, r});
  }
  Modes sizes = shape.out_modes(), order;
  sizes.insert(sizes.end(), shape.in_modes().begin(), shape.in_modes().end());
  for (int64_t k = 0; k < count; ++k) order.insert(order.end(), {count + k, k});
  const int64_t last = count - 1;
  Tensor gradient = ops.Mm(ops.Transpose(dy), x, "dW");
  gradient = ops.Reshape(ops.Permute(ops.View(gradient, sizes), order),
                         {rows, shape.n(last) * shape.m(last)}, "dW, permuted");
  for (int64_t k = last; k >= 1; --k) {
    const int64_t p = shape.n(k) * shape.m(k), l = shape.left_rank(k), r = shape.right_rank(k);
    const std::string name = "d(" + CoreName(k) + ")";
    gradients[k + 1] =
        ops.View(ops.Mm(ops.Transpose(lefts[k]), gradient, name), shape.CoreSizes(k));
    lefts[k] = Tensor();
    gradient = ops.Mm(gradient, ops.Transpose(ops.View(cores[k], {l, p * r})),
                      "d(product of cores before " + CoreName(k) + ")");
    if (k > 1) {
      const int64_t before = shape.n(k - 1) * shape.m(k - 1);
      rows /= before;
      gradient = ops.View(gradient, {rows, before * l});
    }
  }
  gradients[1] = ops.View(gradient, shape.CoreSizes(0));
  return gradients;
}

enum class Form { kRecompute, kProjected };

template <typename Ops>
std::vector<typename Ops::Tensor> Gradients(Form form, const Ops& ops, const TtShape& shape,
                                            const typename Ops::Tensor& dy,
                                            const std::vector<typename Ops::Tensor>& saved) {
  const std::vector<typename Ops::Tensor> cores(saved.begin() + 1, saved.end());
  return form == Form::kRecompute ? BackThroughContraction(ops, shape, dy, saved[0], cores)
                                  : ProjectMatrixGradient(ops, shape, dy, saved[0], cores);
}

class SavesInputsOnly : public torch::autograd::Function<SavesInputsOnly> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, Form form,
                            const TtShape& shape, at::TensorList inputs) {
    context->save_for_backward(inputs.vec());
    context->saved_data["form"] = static_cast<int64_t>(form);
    context->saved_data["in_modes"] = shape.in_modes();
    context->saved_data["out_modes"] = shape.out_modes();
    context->saved_data["ranks"] = shape.ranks();
    return Contract(RealOps(), shape, inputs[0], inputs.slice(1).vec(), nullptr);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto form = static_cast<Form>(context->saved_data["form"].toInt());
    const TtShape shape(context->saved_data["in_modes"].toIntVector(),
                        context->saved_data["out_modes"].toIntVector(),
                        context->saved_data["ranks"].toIntVector());
    torch::autograd::variable_list result(2);  // Of the form and the shape.
    const auto gradients =
        Gradients(form, RealOps(), shape, grads[0].contiguous(), context->get_saved_variables());
    result.insert(result.end(), gradients.begin(), gradients.end());
    return result;
  }
};

class Checkpointed : public LinearVariant {
 public:
  explicit Checkpointed(Form form) : form_(form) {}
  std::string name() const override {
    return form_ == Form::kRecompute ? "recompute" : "projected";
  }
  std::string Algorithm(const LinearProblem&) const override {
    return form_ == Form::kRecompute
               ? "right to left, permute and mm; backward contracts again"
               : "right to left, permute and mm; backward projects dy^T x on the cores";
  }
  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    std::vector<at::Tensor> inputs = {x};
    inputs.insert(inputs.end(), cores.begin(), cores.end());
    return SavesInputsOnly::apply(form_, shape, at::TensorList(inputs));
  }
  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    std::vector<cost::Tensor> inputs = {x};
    inputs.insert(inputs.end(), cores.begin(), cores.end());
    return tape.Custom(
        inputs, inputs, [&] { return Contract(TracedOps{&tape}, shape, x, cores, nullptr); },
        [&tape, shape, form = form_](const cost::Tensor& dy,
                                     const std::vector<cost::Tensor>& saved) {
          return Gradients(form, TracedOps{&tape}, shape, dy, saved);
        });
  }

 private:
  Form form_;
};

const RegisterLinearVariant kRecompute(std::make_unique<Checkpointed>(Form::kRecompute));
const RegisterLinearVariant kProjected(std::make_unique<Checkpointed>(Form::kProjected));

}  // namespace
}  // namespace ttbench
