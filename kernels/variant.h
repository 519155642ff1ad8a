// The registry of linear variants: every way the suite knows to compute a TT linear layer.
//
// A variant is one class in one file under kernels/linear: its computation, its cost model, what it
// supports, and the line that registers it. Tests, sweep, plots and docs find it here.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cost/tape.h"
#include "kernels/problem.h"

namespace ttbench {

class LinearVariant {
 public:
  virtual ~LinearVariant() = default;

  // As in --variant and cell names: lower case, words joined by hyphens.
  virtual std::string name() const = 0;
  // The path that runs for this problem, in a few words.
  virtual std::string Algorithm(const LinearProblem& problem) const = 0;
  // True if the parameters are one dense weight [M, N] instead of the cores; ranks then do not
  // matter.
  virtual bool is_dense() const { return false; }
  // Whether it runs on such a device at all. What is made of LibTorch's operators runs on any.
  virtual bool RunsOn(Device) const { return true; }
  // Why this variant cannot run the problem, as a reason for the result row; "" if it can. Asked
  // for problems only on devices that it runs on: WhySkipped() is what to ask.
  virtual std::string WhyUnsupported(const LinearProblem&) const { return ""; }
  std::string WhySkipped(const LinearProblem& problem) const {
    return RunsOn(problem.device) ? WhyUnsupported(problem) : WhyNotOn(problem.device);
  }

  // Why the cost model gives no peaks for this problem; "" if it is exact. A product that LibTorch
  // hands to oneDNN takes scratch through the metered allocator, in amounts that depend on the CPU;
  // weight and held bytes are exact all the same.
  virtual std::string WhyPeaksUnmodelled(const LinearProblem& problem) const {
    return problem.dtype == DType::kBFloat16
               ? "peaks not modelled: oneDNN's scratch depends on the CPU"
               : "";
  }

  // y = x W^T. x is [B, N], contiguous; parameters are the cores, core k of [r_{k-1}, n_k, m_k,
  // r_k], or the dense weight; y is [B, M], contiguous, and aliases nothing. Differentiable by
  // autograd in x and every parameter.
  virtual at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                             at::TensorList parameters) const = 0;
  // The cost model: the same forward on the tape. Every buffer it allocates is a named term. Asked
  // for problems only that the variant supports.
  virtual cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                             const std::vector<cost::Tensor>& parameters) const = 0;

  // Whether `auto` may pick it. Not for a variant that is wrong or fails on purpose.
  virtual bool is_trusted() const { return true; }

  // GFLOP/s a thread that this form can be expected to reach, for the times --list prints and for
  // skipping cells that would take too long; never a result.
  virtual double planning_gflops() const { return 20; }
};

// The variant every ratio is taken against.
inline constexpr const char* kBaselineVariant = "dense";

// All registered variants: the baseline first, the rest by name.
const std::vector<std::unique_ptr<const LinearVariant>>& LinearVariants();
// nullptr if there is none of that name.
const LinearVariant* FindLinearVariant(const std::string& name);

// A variant's file ends in one line for each form:
//   static const RegisterLinearVariant kDense(std::make_unique<Dense>());
// A second variant of the same name ends the program with a message.
struct RegisterLinearVariant {
  explicit RegisterLinearVariant(std::unique_ptr<const LinearVariant> variant);
};

}  // namespace ttbench
