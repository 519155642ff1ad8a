// Additive scores (Bahdanau, Cho, Bengio 2015): v . tanh(W_s context + W_q h). Here autograd does
// keep a tensor of the context's size for every step: the result of tanh.
//
//   additive               step by step under autograd
//   additive-checkpointed  each step keeps what it was given and computes the tanh again in its
//                          backward
#include <ATen/ops/tanh_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/attention/autograd_variant.h"

namespace ttbench {
namespace {

// scores [B, L] of one step. The recomputing one never lets autograd see the tanh.
class CheckpointedScores : public torch::autograd::Function<CheckpointedScores> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& keys,
                            const at::Tensor& q, const at::Tensor& v) {
    context->save_for_backward({keys, q, v});
    return at::mm(Activations(keys, q), v.unsqueeze(1)).view({keys.size(0), keys.size(1)});
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor& keys = saved[0];
    const at::Tensor& v = saved[2];
    const at::Tensor dscores = grads[0].reshape({-1, 1});
    at::Tensor dkeys, dv;
    {
      const at::Tensor activations = Activations(keys, saved[1]);
      dv = at::mm(activations.t(), dscores).squeeze(1);
      dkeys = at::mm(dscores, v.unsqueeze(0));
      at::tanh_backward_out(dkeys, dkeys, activations);
    }
    dkeys = dkeys.view(keys.sizes());
    return {dkeys, dkeys.sum(1), dv};
  }

 private:
  static at::Tensor Activations(const at::Tensor& keys, const at::Tensor& q) {
    return at::add(keys, q.unsqueeze(1)).tanh_().view({-1, keys.size(2)});
  }
};

at::Tensor RecomputedScores(const RealOps&, const at::Tensor& keys, const at::Tensor& q,
                            const at::Tensor& v) {
  return CheckpointedScores::apply(keys, q, v);
}

cost::Tensor RecomputedScores(const TracedOps& ops, const cost::Tensor& keys, const cost::Tensor& q,
                              const cost::Tensor& v) {
  cost::Tape& tape = *ops.tape;
  const int64_t batch = keys.size(0), source_len = keys.size(1), hidden = keys.size(2);
  const cost::Sizes flat{batch * source_len, hidden};
  return tape.Custom(
      {keys, q, v}, {keys, q, v},
      [&] {
        const cost::Tensor scores = tape.Mm(tape.Empty("tanh(keys + q)", flat),
                                            tape.Reshape(v.Detach(), {hidden, 1}, ""), "scores");
        return tape.Reshape(scores, {batch, source_len}, "");
      },
      [&tape, flat, batch, source_len, hidden](const cost::Tensor& grad,
                                               const std::vector<cost::Tensor>& saved) {
        const cost::Tensor dscores = tape.Reshape(grad, {flat[0], 1}, "d(scores)");
        cost::Tensor dkeys, dv;
        {
          const cost::Tensor activations = tape.Empty("tanh(keys + q), again", flat);
          dv = tape.Mm(tape.Transpose(activations), dscores, "d(v)");
          dkeys = tape.Mm(dscores, tape.Reshape(saved[2], {1, hidden}, ""), "d(keys)");
        }
        dkeys = tape.Reshape(dkeys, {batch, source_len, hidden}, "");
        const cost::Tensor dq = tape.Sum(dkeys, {1}, "d(q)");
        return std::vector<cost::Tensor>{dkeys, tape.Reshape(dq, {batch, hidden}, ""),
                                         tape.Reshape(dv, {hidden}, "")};
      });
}

template <typename Ops>
typename Ops::Tensor KeptScores(const Ops& ops, const typename Ops::Tensor& keys,
                                const typename Ops::Tensor& q, const typename Ops::Tensor& v) {
  const int64_t batch = keys.size(0), source_len = keys.size(1), hidden = keys.size(2);
  const auto activations =
      ops.Tanh(ops.Add(keys, ops.View(q, {batch, 1, hidden}), "keys + q"), "tanh(keys + q)");
  const auto scores = ops.Mm(ops.View(activations, {batch * source_len, hidden}),
                             ops.View(v, {hidden, 1}), "scores");
  return ops.View(scores, {batch, source_len});
}

struct Additive {
  bool checkpointed;

  static constexpr bool kIsAdditive = true;
  std::string name() const { return checkpointed ? "additive-checkpointed" : "additive"; }
  std::string Algorithm(const AttentionProblem&) const {
    return checkpointed ? "step by step; backward computes the tanh again"
                        : "step by step under autograd, which keeps the tanh";
  }
  bool takes_all_steps() const { return false; }

  template <typename Ops>
  std::vector<typename Ops::Tensor> Forward(
      const Ops& ops, const AttentionProblem&,
      const AttentionInputs<typename Ops::Tensor>& inputs) const {
    const auto& weights = inputs.parameters;
    const auto keys = Project(ops, inputs.context, weights[1], "W_s context");
    std::vector<typename Ops::Tensor> y;
    for (const auto& h : inputs.steps) {
      const auto q = Project(ops, h, weights[0], "q");
      const auto scores = checkpointed ? RecomputedScores(ops, keys, q, weights[2])
                                       : KeptScores(ops, keys, q, weights[2]);
      const auto attn = ops.Softmax(scores, "attention");
      y.push_back(AttentionalState(ops, WeightedContext(ops, attn, inputs.context), h, weights[3]));
    }
    return y;
  }
};

const RegisterAttentionVariant kAdditive(std::make_unique<AutogradVariant<Additive>>(Additive{
    false}));
const RegisterAttentionVariant kCheckpointed(std::make_unique<AutogradVariant<Additive>>(Additive{
    true}));

}  // namespace
}  // namespace ttbench
