// Additive attention by the suite's own kernel (fused_additive_kernel.h): nothing of the context's
// size for any step; the backward computes the tanh again.
//
//   fused-additive          step by step
//   fused-additive-batched  all steps at once, so that the gradients of keys and context are one
//                           tensor each
//
// v's gradient is a part for each row of the batch, summed in order: results are the same bits with
// any number of threads.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/attention/autograd_variant.h"
#include "kernels/attention/fused_additive_kernel.h"

namespace ttbench {
namespace {

FusedAdditiveShape ShapeOf(const at::Tensor& keys, const at::Tensor& q) {
  return {keys.size(1), q.size(1), keys.size(2)};
}

template <typename Real>
FusedAdditiveRow<Real> RowOf(int64_t b, const at::Tensor& keys, const at::Tensor& context,
                             const at::Tensor& q, const at::Tensor& v, const at::Tensor& c,
                             const at::Tensor& statistics) {
  auto at_row = [b](const at::Tensor& t) {
    return static_cast<const Real*>(t.const_data_ptr()) + b * t.stride(0);
  };
  return {at_row(keys),
          at_row(context),
          at_row(q),
          static_cast<const Real*>(v.const_data_ptr()),
          const_cast<Real*>(at_row(c)),
          const_cast<Real*>(at_row(statistics))};
}

template <typename F>
void WithReal(at::ScalarType dtype, const F& f) {
  if (dtype == at::kFloat) return f(float());
  TORCH_CHECK(dtype == at::kDouble, "fused-additive runs in float32 and float64");
  f(double());
}

// c [B, T, H] from keys, context [B, L, H], q [B, T, H], v [H], all contiguous.
class FusedAttention : public torch::autograd::Function<FusedAttention> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context_of, const at::Tensor& keys,
                            const at::Tensor& context, const at::Tensor& q, const at::Tensor& v) {
    const at::Tensor c = at::empty_like(q);
    const at::Tensor statistics = at::empty({q.size(0), q.size(1), 2}, q.options());
    WithReal(q.scalar_type(), [&](auto real) {
      using Real = decltype(real);
      at::parallel_for(0, q.size(0), 1, [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b)
          FusedAdditiveForward(ShapeOf(keys, q),
                               RowOf<Real>(b, keys, context, q, v, c, statistics));
      });
    });
    context_of->save_for_backward({keys, context, q, v, c, statistics});
    return c;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context_of,
                                                 torch::autograd::variable_list grads) {
    const torch::autograd::variable_list saved = context_of->get_saved_variables();
    const at::Tensor &keys = saved[0], &context = saved[1], &q = saved[2], &v = saved[3];
    // Mostly a part of the gradient of [c; h], with rows of its own stride.
    const at::Tensor dc = grads[0].stride(2) == 1 ? grads[0] : grads[0].contiguous();
    const at::Tensor dkeys = at::empty_like(keys), dcontext = at::empty_like(context);
    const at::Tensor dq = at::empty_like(q);
    const FusedAdditiveShape shape = ShapeOf(keys, q);
    const at::Tensor parts = at::empty({q.size(0), shape.hidden}, q.options());
    const at::Tensor scratch =
        at::empty({at::get_num_threads(), FusedAdditiveScratch(shape)}, q.options());
    WithReal(q.scalar_type(), [&](auto real) {
      using Real = decltype(real);
      auto at_row = [](const at::Tensor& t, int64_t b) {
        return static_cast<Real*>(t.mutable_data_ptr()) + b * t.stride(0);
      };
      at::parallel_for(0, q.size(0), 1, [&](int64_t begin, int64_t end) {
        Real* mine = at_row(scratch, at::get_thread_num());
        for (int64_t b = begin; b < end; ++b) {
          FusedAdditiveBackward(shape, RowOf<Real>(b, keys, context, q, v, saved[4], saved[5]),
                                {at_row(dc, b), dc.stride(1), at_row(dkeys, b), at_row(dcontext, b),
                                 at_row(dq, b), at_row(parts, b)},
                                mine);
        }
      });
    });
    return {dkeys, dcontext, dq, parts.sum(0)};
  }
};

at::Tensor Attend(const RealOps&, const at::Tensor& keys, const at::Tensor& context,
                  const at::Tensor& q, const at::Tensor& v) {
  return FusedAttention::apply(keys, context, q, v);
}

cost::Tensor Attend(const TracedOps& ops, const cost::Tensor& keys, const cost::Tensor& context,
                    const cost::Tensor& q, const cost::Tensor& v) {
  cost::Tape& tape = *ops.tape;
  const int64_t hidden = q.size(2);
  const cost::Tensor c = tape.Empty("c", q.sizes());
  const cost::Tensor statistics = tape.Empty("softmax statistics", {q.size(0), q.size(1), 2});
  // v . tanh and the weighted sum; backwards, v . tanh again, dc . context and the sums into dkeys,
  // dcontext, dq and dv. The arithmetic of the tanh itself is not counted, as in no variant.
  const int64_t products = 2 * q.numel() * keys.size(1);
  return tape.Custom(
      {keys, context, q, v}, {keys, context, q, v, c, statistics},
      [&] {
        tape.AddFlops(2 * products);
        return c;
      },
      [&tape, hidden, products](const cost::Tensor&, const std::vector<cost::Tensor>& saved) {
        tape.AddFlops(4 * products);
        const cost::Tensor dkeys = tape.Empty("d(keys)", saved[0].sizes());
        const cost::Tensor dcontext = tape.Empty("d(context)", saved[1].sizes());
        const cost::Tensor dq = tape.Empty("d(q)", saved[2].sizes());
        const cost::Tensor parts = tape.Empty("d(v) of each row", {saved[2].size(0), hidden});
        const cost::Tensor scratch = tape.Empty("tanh of each thread", {tape.threads(), hidden});
        return std::vector<cost::Tensor>{dkeys, dcontext, dq, tape.Empty("d(v)", {hidden})};
      });
}

struct FusedAdditive {
  bool batched;

  static constexpr bool kIsAdditive = true;
  static constexpr bool kOnCpuOnly = true;
  std::string name() const { return batched ? "fused-additive-batched" : "fused-additive"; }
  std::string Algorithm(const AttentionProblem&) const {
    return std::string(batched ? "all steps at once" : "step by step") +
           ", tiles of the source, statistics kept; backward computes the tanh again";
  }
  bool takes_all_steps() const { return batched; }

  template <typename Ops>
  std::vector<typename Ops::Tensor> Forward(
      const Ops& ops, const AttentionProblem& p,
      const AttentionInputs<typename Ops::Tensor>& inputs) const {
    const auto& weights = inputs.parameters;
    const auto keys = Project(ops, inputs.context, weights[1], "W_s context");
    const int64_t queries = batched ? p.target_len : 1;
    std::vector<typename Ops::Tensor> y;
    for (const auto& h : inputs.steps) {
      const auto q = Project(ops, h, weights[0], "q");
      auto c =
          Attend(ops, keys, inputs.context, ops.View(q, {p.batch, queries, p.hidden}), weights[2]);
      if (!batched) c = ops.View(c, {p.batch, p.hidden});
      y.push_back(AttentionalState(ops, c, h, weights[3]));
    }
    return y;
  }
};

const RegisterAttentionVariant kFused(
    std::make_unique<AutogradVariant<FusedAdditive>>(FusedAdditive{false}));
const RegisterAttentionVariant kFusedBatched(
    std::make_unique<AutogradVariant<FusedAdditive>>(FusedAdditive{true}));

}  // namespace
}  // namespace ttbench
