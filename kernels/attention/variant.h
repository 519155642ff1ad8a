// The registry of attention variants: every way the suite knows to run a decoder's attention over a
// whole sequence. As kernels/variant.h for linear layers: one file for each variant or few forms of
// one, with its computation, its cost model, what it supports, and the line that registers it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/attention/problem.h"
#include "kernels/cost/tape.h"

namespace ttbench {

template <typename Tensor>
struct AttentionInputs {
  Tensor context;  // [B, L, H]
  // T tensors, each [B, H]: h of each step; or one [B, T, H] for variants that take all steps at
  // once. Of the whole decoder the word vectors, each [B, kWordVectorSize].
  std::vector<Tensor> steps;
  // Of the whole decoder, each [B, H]: the attention fed to the first step; c and h of each layer.
  std::vector<Tensor> initial;
  // W_a [H, H] and W_c [H, 2H]. Additive: W_q [H, H], W_s [H, H], v [H], W_c. Of the whole decoder
  // before these, for each layer: W_i2h [4H, in], b [4H], W_h2h [4H, H].
  std::vector<Tensor> parameters;
};

// One sequence, again and again: on at::Tensor, or on the tape's tensors as its cost model.
template <typename Tensor>
class AttentionPass {
 public:
  virtual ~AttentionPass() = default;
  // y in the form of inputs.steps: T tensors [B, H], or one [B, T, H].
  virtual std::vector<Tensor> Forward() = 0;
  // From the gradients of y; leaves those of the inputs and parameters with them.
  virtual void Backward(const std::vector<Tensor>& y, const std::vector<Tensor>& dy) = 0;
  // Frees the buffers that the pass keeps from one sequence to the next, if it does.
  virtual void Release() {}
};

class AttentionVariant {
 public:
  virtual ~AttentionVariant() = default;

  // As in --variant and cell names; no two variants of any family share one.
  virtual std::string name() const = 0;
  // The path that runs for this problem, in a few words.
  virtual std::string Algorithm(const AttentionProblem& problem) const = 0;
  // Scores are v . tanh(W_s context + W_q h) rather than context . W_a h.
  virtual bool is_additive() const { return false; }
  // Takes h of all steps as one tensor: cannot run where a step needs the step before.
  virtual bool takes_all_steps() const { return false; }
  // As LinearVariant::RunsOn() and the two after it.
  virtual bool RunsOn(Device) const { return true; }
  virtual std::string WhyUnsupported(const AttentionProblem& problem) const;
  std::string WhySkipped(const AttentionProblem& problem) const {
    return RunsOn(problem.device) ? WhyUnsupported(problem) : WhyNotOn(problem.device);
  }

  virtual std::unique_ptr<AttentionPass<at::Tensor>> NewPass(
      const AttentionProblem& problem, const AttentionInputs<at::Tensor>& inputs) const = 0;
  // The cost model: the same pass on the tape.
  virtual std::unique_ptr<AttentionPass<cost::Tensor>> NewTracedPass(
      cost::Tape& tape, const AttentionProblem& problem,
      const AttentionInputs<cost::Tensor>& inputs) const = 0;

  // As LinearVariant::planning_gflops().
  virtual double planning_gflops() const { return 20; }
};

// The variant every ratio of this family is taken against: the first of the two patches.
inline constexpr const char* kAttentionBaseline = "prealloc-mm";

// The sizes of a variant's parameters, in order, and their names.
struct NamedSizes {
  std::string name;
  cost::Sizes sizes;
};
std::vector<NamedSizes> AttentionParameters(const AttentionVariant& variant,
                                            const AttentionProblem& problem);
// Of a problem's inputs: context, each of steps, each of initial.
struct AttentionInputSizes {
  NamedSizes context;
  std::vector<NamedSizes> steps, initial;
};
AttentionInputSizes InputSizes(const AttentionVariant& variant, const AttentionProblem& problem);

// All registered variants: the baseline first, the rest by name.
const std::vector<std::unique_ptr<const AttentionVariant>>& AttentionVariants();
// nullptr if there is none of that name.
const AttentionVariant* FindAttentionVariant(const std::string& name);

// A variant's file ends in one line for each form, as in kernels/variant.h.
struct RegisterAttentionVariant {
  explicit RegisterAttentionVariant(std::unique_ptr<const AttentionVariant> variant);
};

}  // namespace ttbench
