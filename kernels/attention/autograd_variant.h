// What the variants that run under LibTorch's autograd share: one program for both the computation
// and its cost model, and the pass around it.
#pragma once

#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/variant.h"
#include "kernels/ops.h"

namespace ttbench {

// x W^T for x [.., n] of any number of dimensions.
template <typename Ops>
typename Ops::Tensor Project(const Ops& ops, const typename Ops::Tensor& x,
                             const typename Ops::Tensor& weight, const char* name) {
  const int64_t in = weight.size(1), out = weight.size(0);
  if (x.dim() == 2) return ops.Mm(x, ops.Permute(weight, {1, 0}), name);
  const auto y =
      ops.Mm(ops.View(x, {x.size(0) * x.size(1), in}), ops.Permute(weight, {1, 0}), name);
  return ops.View(y, {x.size(0), x.size(1), out});
}

// tanh(W_c [c; h]), of one step or of all.
template <typename Ops>
typename Ops::Tensor AttentionalState(const Ops& ops, const typename Ops::Tensor& c,
                                      const typename Ops::Tensor& h,
                                      const typename Ops::Tensor& w_c) {
  return ops.Tanh(Project(ops, ops.Cat(c, h, "[c; h]"), w_c, "W_c [c; h]"), "y");
}

// The sum of the context weighted by attn [B, L].
template <typename Ops>
typename Ops::Tensor WeightedContext(const Ops& ops, const typename Ops::Tensor& attn,
                                     const typename Ops::Tensor& context) {
  const int64_t batch = context.size(0), source_len = context.size(1), hidden = context.size(2);
  const auto c = ops.Bmm(ops.View(attn, {batch, 1, source_len}), context, "c");
  return ops.View(c, {batch, hidden});
}

// Program: Forward(ops, problem, inputs) -> y, for any Ops.
template <typename Program, typename Ops>
class AutogradPass : public AttentionPass<typename Ops::Tensor> {
 public:
  using Tensor = typename Ops::Tensor;
  AutogradPass(Program program, Ops ops, const AttentionProblem& problem,
               AttentionInputs<Tensor> inputs)
      : program_(std::move(program)), ops_(ops), problem_(problem), inputs_(std::move(inputs)) {}

  std::vector<Tensor> Forward() override { return program_.Forward(ops_, problem_, inputs_); }
  void Backward(const std::vector<Tensor>& y, const std::vector<Tensor>& dy) override {
    if constexpr (std::is_same_v<Tensor, at::Tensor>) {
      torch::autograd::backward(y, dy);
    } else {
      ops_.tape->RunBackward(y, dy);
    }
  }

 private:
  Program program_;
  Ops ops_;
  AttentionProblem problem_;
  AttentionInputs<Tensor> inputs_;
};

// A program by a kernel of the CPU says so: static constexpr bool kOnCpuOnly = true.
template <typename Program, typename = void>
struct OnCpuOnly : std::false_type {};
template <typename Program>
struct OnCpuOnly<Program, std::enable_if_t<Program::kOnCpuOnly>> : std::true_type {};

template <typename Program>
class AutogradVariant : public AttentionVariant {
 public:
  explicit AutogradVariant(Program program = {}) : program_(std::move(program)) {}
  std::string name() const override { return program_.name(); }
  std::string Algorithm(const AttentionProblem& problem) const override {
    return program_.Algorithm(problem);
  }
  bool RunsOn(Device device) const override {
    return device == Device::kCpu || !OnCpuOnly<Program>::value;
  }
  bool is_additive() const override { return Program::kIsAdditive; }
  bool takes_all_steps() const override { return program_.takes_all_steps(); }
  std::unique_ptr<AttentionPass<at::Tensor>> NewPass(
      const AttentionProblem& problem, const AttentionInputs<at::Tensor>& inputs) const override {
    return std::make_unique<AutogradPass<Program, RealOps>>(program_, RealOps{}, problem, inputs);
  }
  std::unique_ptr<AttentionPass<cost::Tensor>> NewTracedPass(
      cost::Tape& tape, const AttentionProblem& problem,
      const AttentionInputs<cost::Tensor>& inputs) const override {
    return std::make_unique<AutogradPass<Program, TracedOps>>(program_, TracedOps{&tape}, problem,
                                                              inputs);
  }

 private:
  Program program_;
};

}  // namespace ttbench
