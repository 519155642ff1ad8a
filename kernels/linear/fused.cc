// fused: the suite's own kernel. The contraction from the last core to the first, or from the first
// to the last where that is faster, on tiles so small that all intermediates of a tile live in the
// caches; forward and backward. Saves x and the cores; the backward recomputes. Never permutes x or
// y in memory, never holds the matrix, and its scratch does not grow with the batch (fused_plan.h).
//
// Core gradients are summed in a buffer of each thread's own, and those in order: results are the
// same bits on every run with the same number of threads.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/fused_kernel.h"
#include "kernels/linear/fused_plan.h"
#include "kernels/linear/kernel_call.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

// The scratch of a pass, in the order in which it is allocated.
std::vector<std::pair<const char*, int64_t>> ScratchElements(const FusedPlan& plan) {
  std::vector<std::pair<const char*, int64_t>> elements = {
      {"packed cores", plan.packed_elements},
      {"tiles of all threads", plan.slots * plan.slot_elements}};
  if (plan.pass == FusedPass::kBackward) {
    elements.emplace_back("core gradients of all threads", plan.slots * plan.gradient_elements);
  }
  return elements;
}

std::vector<at::Tensor> AllocateScratch(const FusedPlan& plan, at::ScalarType dtype) {
  std::vector<at::Tensor> scratch;
  for (const auto& [name, elements] : ScratchElements(plan)) {
    scratch.push_back(at::empty({elements}, at::TensorOptions().dtype(dtype)));
  }
  return scratch;
}

std::vector<cost::Tensor> TraceScratch(cost::Tape& tape, const FusedPlan& plan,
                                       int64_t element_bytes) {
  std::vector<cost::Tensor> scratch;
  for (const auto& [name, elements] : ScratchElements(plan)) {
    scratch.push_back(tape.Empty(name, {elements * RealBytes(element_bytes) / element_bytes}));
  }
  return scratch;
}

// The planned kernel for a problem; the latest few are kept, as planning takes longer than a small
// layer.
template <typename Element>
std::shared_ptr<const FusedKernel<Element>> KernelFor(const TtShape& shape, int64_t batch,
                                                      int64_t threads, FusedPass pass) {
  using Kernel = FusedKernel<Element>;
  struct Entry {
    TtShape shape;
    int64_t batch, threads;
    FusedPass pass;
    std::shared_ptr<const Kernel> kernel;
  };
  static std::mutex mutex;
  static auto* entries = new std::list<Entry>;
  constexpr size_t kKept = 64;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = std::find_if(entries->begin(), entries->end(), [&](const Entry& entry) {
    return entry.batch == batch && entry.threads == threads && entry.pass == pass &&
           entry.shape == shape;
  });
  if (found != entries->end()) {
    entries->splice(entries->begin(), *entries, found);
  } else {
    const FusedPlan plan = PlanFused(shape, batch, threads, sizeof(typename Kernel::Real), pass);
    entries->push_front({shape, batch, threads, pass, std::make_shared<const Kernel>(shape, plan)});
    if (entries->size() > kKept) entries->pop_back();
  }
  return entries->front().kernel;
}

// Runs a pass: `out` is y forward; dx and then every core's gradient backward.
void RunPass(FusedPass pass, const TtShape& shape, const at::Tensor& x, at::TensorList cores,
             const at::Tensor& dy, std::vector<at::Tensor>& out) {
  WithElement(x.scalar_type(), [&](auto element) {
    using Element = decltype(element);
    using Kernel = FusedKernel<Element>;
    using Real = typename Kernel::Real;
    const auto kernel = KernelFor<Element>(shape, x.size(0), at::get_num_threads(), pass);
    const FusedPlan& plan = kernel->plan();
    std::vector<at::Tensor> scratch =
        AllocateScratch(plan, sizeof(Real) == 8 ? at::kDouble : at::kFloat);
    const typename Kernel::Scratch pointers{
        MutableData<Real>(scratch[0]), MutableData<Real>(scratch[1]),
        pass == FusedPass::kBackward ? MutableData<Real>(scratch[2]) : nullptr};
    std::vector<const Element*> core_data;
    for (const at::Tensor& core : cores) core_data.push_back(ConstData<Element>(core));
    // Below this, waking a thread takes longer than moving the elements.
    constexpr int64_t kWorthSharing = 32'768;
    const int64_t parts = plan.packed_elements < kWorthSharing ? 1 : plan.slots;
    InParallel(parts, [&](int64_t part) { kernel->PackCores(part, parts, core_data, pointers); });
    const Element* x_data = ConstData<Element>(x);
    Element* out_data = MutableData<Element>(out[0]);
    if (pass == FusedPass::kForward) {
      InParallel(plan.slots,
                 [&](int64_t slot) { kernel->Forward(slot, x_data, out_data, pointers); });
      return;
    }
    const Element* dy_data = ConstData<Element>(dy);
    InParallel(plan.slots,
               [&](int64_t slot) { kernel->Backward(slot, x_data, dy_data, out_data, pointers); });
    std::vector<Element*> dcores;
    for (size_t k = 1; k < out.size(); ++k) dcores.push_back(MutableData<Element>(out[k]));
    InParallel(parts,
               [&](int64_t part) { kernel->WriteCoreGradients(part, parts, pointers, dcores); });
  });
}

class FusedLinear : public torch::autograd::Function<FusedLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const TtShape& shape,
                            at::TensorList inputs) {
    torch::autograd::variable_list saved;
    for (const at::Tensor& input : inputs) saved.push_back(input.contiguous());
    std::vector<at::Tensor> y = {
        at::empty({inputs[0].size(0), shape.out_features()}, inputs[0].options())};
    RunPass(FusedPass::kForward, shape, saved[0], at::TensorList(saved).slice(1), {}, y);
    context->save_for_backward(saved);
    context->saved_data["in_modes"] = shape.in_modes();
    context->saved_data["out_modes"] = shape.out_modes();
    context->saved_data["ranks"] = shape.ranks();
    return y[0];
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const TtShape shape(context->saved_data["in_modes"].toIntVector(),
                        context->saved_data["out_modes"].toIntVector(),
                        context->saved_data["ranks"].toIntVector());
    const auto saved = context->get_saved_variables();
    const at::Tensor dy = grads[0].contiguous();
    std::vector<at::Tensor> out;
    for (const at::Tensor& input : saved) out.push_back(at::empty(input.sizes(), input.options()));
    RunPass(FusedPass::kBackward, shape, saved[0], at::TensorList(saved).slice(1), dy, out);
    torch::autograd::variable_list result = {at::Tensor()};  // Of the shape.
    result.insert(result.end(), out.begin(), out.end());
    return result;
  }
};

class Fused : public LinearVariant {
 public:
  std::string name() const override { return "fused"; }
  bool RunsOn(Device device) const override { return device == Device::kCpu; }
  std::string Algorithm(const LinearProblem& problem) const override {
    const FusedPlan plan = PlanFused(problem.shape, problem.batch, problem.threads,
                                     RealBytes(ElementBytes(problem.dtype)), FusedPass::kForward);
    return std::string(plan.mirrored ? "left to right" : "right to left") + " in tiles of " +
           std::to_string(plan.samples) + " rows, " + std::to_string(plan.block) +
           (plan.mirrored ? " of m_1, " : " of m_K, ") + std::to_string(plan.chunk) +
           (plan.mirrored ? " of n_K" : " of n_1");
  }
  std::string WhyPeaksUnmodelled(const LinearProblem&) const override { return ""; }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    std::vector<at::Tensor> inputs = {x};
    inputs.insert(inputs.end(), cores.begin(), cores.end());
    return FusedLinear::apply(shape, at::TensorList(inputs));
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    const int64_t batch = x.size(0), threads = tape.threads();
    const int64_t element_bytes =
        batch * shape.in_features() == 0 ? 4 : x.buffer()->bytes() / (batch * shape.in_features());
    auto plan_for = [=](FusedPass pass) {
      return PlanFused(shape, batch, threads, RealBytes(element_bytes), pass);
    };
    std::vector<cost::Tensor> inputs = {x};
    inputs.insert(inputs.end(), cores.begin(), cores.end());
    return tape.Custom(
        inputs, inputs,
        [&] {
          cost::Tensor y = tape.Empty("y", {batch, shape.out_features()});
          const FusedPlan plan = plan_for(FusedPass::kForward);
          const auto scratch = TraceScratch(tape, plan, element_bytes);
          const TtShape order = FusedOrder(shape, plan.mirrored);
          tape.AddFlops(CheckedMul(2, CheckedMul(batch, order.sequential_macs_per_row())));
          return y;
        },
        [=, &tape](const cost::Tensor&, const std::vector<cost::Tensor>& saved) {
          std::vector<cost::Tensor> out;
          for (const cost::Tensor& input : saved) {
            out.push_back(tape.Empty("d(" + input.name() + ")", input.sizes()));
          }
          const FusedPlan plan = plan_for(FusedPass::kBackward);
          const auto scratch = TraceScratch(tape, plan, element_bytes);
          const TtShape order = FusedOrder(shape, plan.mirrored);
          // The contractions are done again, with all cores but the first.
          const int64_t macs = CheckedMul(batch, order.sequential_macs_per_row());
          const int64_t first_macs =
              CheckedMul(batch, CheckedMul(order.out_features(), order.n(0) * order.right_rank(0)));
          tape.AddFlops(CheckedMul(2, CheckedMul(3, macs) - first_macs));
          return out;
        });
  }

  double planning_gflops() const override { return 60; }
};

const RegisterLinearVariant kFused(std::make_unique<Fused>());

}  // namespace
}  // namespace ttbench
