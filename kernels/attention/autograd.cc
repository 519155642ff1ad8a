// Under LibTorch's autograd, which sums the context's gradients as they arrive: nothing of the
// context's size is kept for each step.
//
//   autograd  step by step, as a decoder must that feeds its attention back; also the whole decoder
//   batched   all steps at once
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention/autograd_variant.h"

namespace ttbench {
namespace {

// The attentional state of one step from h [B, H].
template <typename Ops>
typename Ops::Tensor Attend(const Ops& ops, const typename Ops::Tensor& context,
                            const typename Ops::Tensor& h, const typename Ops::Tensor& w_a,
                            const typename Ops::Tensor& w_c) {
  const int64_t batch = context.size(0), source_len = context.size(1), hidden = context.size(2);
  const auto q = Project(ops, h, w_a, "q");
  const auto scores = ops.Bmm(context, ops.View(q, {batch, hidden, 1}), "scores");
  const auto attn = ops.Softmax(ops.View(scores, {batch, source_len}), "attention");
  return AttentionalState(ops, WeightedContext(ops, attn, context), h, w_c);
}

struct StepByStep {
  static constexpr bool kIsAdditive = false;
  std::string name() const { return "autograd"; }
  std::string Algorithm(const AttentionProblem& problem) const {
    return problem.layers == 0 ? "step by step, bmm under autograd"
                               : "LSTM and attention step by step under autograd, input feeding";
  }
  bool takes_all_steps() const { return false; }

  template <typename Ops>
  std::vector<typename Ops::Tensor> Forward(
      const Ops& ops, const AttentionProblem& problem,
      const AttentionInputs<typename Ops::Tensor>& inputs) const {
    using Tensor = typename Ops::Tensor;
    const std::vector<Tensor>& weights = inputs.parameters;
    const Tensor& w_a = weights[weights.size() - 2];
    const Tensor& w_c = weights.back();
    std::vector<Tensor> y;
    if (problem.layers == 0) {
      for (const Tensor& h : inputs.steps) y.push_back(Attend(ops, inputs.context, h, w_a, w_c));
      return y;
    }
    Tensor fed = inputs.initial[0];
    std::vector<Tensor> states(inputs.initial.begin() + 1, inputs.initial.end());
    for (const Tensor& word : inputs.steps) {
      Tensor x = ops.Cat(word, fed, "[word; attention]");
      for (int64_t n = 0; n < problem.layers; ++n) {
        Tensor& c = states[2 * n];
        Tensor& h = states[2 * n + 1];
        Tensor sums = ops.Linear(x, weights[3 * n], weights[3 * n + 1], "W_i2h x + b");
        sums = ops.Add(sums, Project(ops, h, weights[3 * n + 2], "W_h2h h"), "gates' sums");
        const std::vector<Tensor> parts = ops.Chunk(sums, 4);
        sums = Tensor();
        const Tensor in = ops.Sigmoid(parts[0], "in gate");
        const Tensor forget = ops.Sigmoid(parts[1], "forget gate");
        const Tensor out = ops.Sigmoid(parts[2], "out gate");
        const Tensor write = ops.Tanh(parts[3], "write");
        const Tensor kept = ops.Mul(forget, c, "kept");
        c = ops.Add(kept, ops.Mul(in, write, "added"), "c");
        h = ops.Mul(out, ops.Tanh(c, "tanh c"), "h");
        x = h;
      }
      fed = Attend(ops, inputs.context, x, w_a, w_c);
      y.push_back(fed);
    }
    return y;
  }
};

struct Batched {
  static constexpr bool kIsAdditive = false;
  std::string name() const { return "batched"; }
  std::string Algorithm(const AttentionProblem&) const { return "all steps at once, bmm"; }
  bool takes_all_steps() const { return true; }

  template <typename Ops>
  std::vector<typename Ops::Tensor> Forward(
      const Ops& ops, const AttentionProblem&,
      const AttentionInputs<typename Ops::Tensor>& inputs) const {
    const auto& h = inputs.steps[0];
    const auto q = Project(ops, h, inputs.parameters[0], "q");
    const auto attn =
        ops.Softmax(ops.Bmm(q, ops.Permute(inputs.context, {0, 2, 1}), "scores"), "attention");
    const auto c = ops.Bmm(attn, inputs.context, "c");
    return {AttentionalState(ops, c, h, inputs.parameters[1])};
  }
};

class StepByStepVariant : public AutogradVariant<StepByStep> {
 public:
  std::string WhyUnsupported(const AttentionProblem& problem) const override {
    AttentionProblem alone = problem;
    alone.layers = 0;
    return AutogradVariant::WhyUnsupported(alone);
  }
};

const RegisterAttentionVariant kAutograd(std::make_unique<StepByStepVariant>());
const RegisterAttentionVariant kBatched(std::make_unique<AutogradVariant<Batched>>());

}  // namespace
}  // namespace ttbench
