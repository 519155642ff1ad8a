// fused-panel: the matrix rebuilt panel by panel in the cache and multiplied at once, forward and
// backward; never held whole. For high ranks, where rebuilding costs less than contracting: d^6 r
// against B d^4 (r^2 + 2 r - d^2) multiply-adds. (fused: for all others.)
//
// The cores on either side of a cut are joined into two (autograd goes back through that), and
// panel_kernel.h does the rest. Held beyond x: the joined cores, r d^4 elements for three cubic
// cores. In bfloat16 the cores are joined in float32, from copies that are held as well.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/join_cores.h"
#include "kernels/linear/kernel_call.h"
#include "kernels/linear/panel_kernel.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

// As far right as leaves panels that make good products; the right core grows with the rest.
int64_t Cut(const TtShape& shape) {
  constexpr int64_t kGoodWidth = 48;
  for (int64_t cut = shape.cores() - 1; cut > 1; --cut) {
    const TtShape joined = JoinedShape(shape, cut);
    if (joined.n(1) >= kGoodWidth && joined.m(1) >= kGoodWidth) return cut;
  }
  return 1;
}

at::ScalarType RealOf(at::ScalarType dtype) { return dtype == at::kBFloat16 ? at::kFloat : dtype; }

// The scratch of a pass, in the order in which it is allocated.
std::vector<std::pair<const char*, int64_t>> ScratchElements(const PanelPlan& plan) {
  std::vector<std::pair<const char*, int64_t>> elements = {
      {"panels of all threads", plan.slots * plan.slot_elements}};
  if (plan.pass == FusedPass::kBackward) {
    elements.emplace_back("left core gradients of all threads",
                          plan.slots * plan.gradient_elements);
  }
  if (plan.widened_elements > 0) {
    elements.emplace_back("rows in float32", plan.widened_elements);
  }
  return elements;
}

struct Scratch {
  Scratch(const PanelPlan& plan, at::ScalarType dtype) {
    for (const auto& [name, elements] : ScratchElements(plan)) {
      tensors.push_back(at::empty({elements}, at::TensorOptions().dtype(dtype)));
    }
  }
  template <typename Real>
  PanelScratch<Real> Pointers(const PanelPlan& plan) {
    PanelScratch<Real> pointers;
    pointers.slots = MutableData<Real>(tensors[0]);
    if (plan.pass == FusedPass::kBackward) pointers.gradients = MutableData<Real>(tensors[1]);
    if (plan.widened_elements > 0) pointers.widened = MutableData<Real>(tensors.back());
    return pointers;
  }
  std::vector<at::Tensor> tensors;
};

std::vector<cost::Tensor> TraceScratch(cost::Tape& tape, const PanelPlan& plan,
                                       int64_t real_bytes) {
  std::vector<cost::Tensor> scratch;
  for (const auto& [name, elements] : ScratchElements(plan)) {
    scratch.push_back(tape.Empty(name, {elements}, real_bytes));
  }
  return scratch;
}

// x is of any Element; left and right are of its PanelReal.
class PanelLinear : public torch::autograd::Function<PanelLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const TtShape& joined,
                            const at::Tensor& x_any, const at::Tensor& left_any,
                            const at::Tensor& right_any) {
    const at::Tensor x = x_any.contiguous(), left = left_any.contiguous(),
                     right = right_any.contiguous();
    context->save_for_backward({x, left, right});
    at::Tensor y = at::empty({x.size(0), joined.out_features()}, x.options());
    WithElement(x.scalar_type(), [&](auto element) {
      using Element = decltype(element);
      using Real = PanelReal<Element>;
      const PanelPlan plan = PlanPanels(joined, x.size(0), at::get_num_threads(), sizeof(Element),
                                        FusedPass::kForward);
      Scratch scratch(plan, left.scalar_type());
      PanelForward(plan, ConstData<Real>(left), ConstData<Real>(right), ConstData<Element>(x),
                   MutableData<Element>(y), scratch.Pointers<Real>(plan),
                   [](int64_t count, const auto& f) { InParallel(count, f); });
    });
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &left = saved[1], &right = saved[2];
    const TtShape joined({left.size(1), right.size(1)}, {left.size(2), right.size(2)},
                         {left.size(3)});
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx = at::empty(x.sizes(), x.options());
    at::Tensor dleft = at::empty(left.sizes(), left.options());
    at::Tensor dright = at::empty(right.sizes(), right.options());
    WithElement(x.scalar_type(), [&](auto element) {
      using Element = decltype(element);
      using Real = PanelReal<Element>;
      const PanelPlan plan = PlanPanels(joined, x.size(0), at::get_num_threads(), sizeof(Element),
                                        FusedPass::kBackward);
      Scratch scratch(plan, left.scalar_type());
      PanelBackward(plan, ConstData<Real>(left), ConstData<Real>(right), ConstData<Element>(x),
                    ConstData<Element>(dy), MutableData<Element>(dx), MutableData<Real>(dleft),
                    MutableData<Real>(dright), scratch.Pointers<Real>(plan),
                    [](int64_t count, const auto& f) { InParallel(count, f); });
    });
    return {at::Tensor(), dx, dleft, dright};
  }
};

class FusedPanel : public LinearVariant {
 public:
  std::string name() const override { return "fused-panel"; }
  bool RunsOn(Device device) const override { return device == Device::kCpu; }
  std::string Algorithm(const LinearProblem& problem) const override {
    const int64_t cut = Cut(problem.shape);
    const PanelPlan plan =
        PlanPanels(JoinedShape(problem.shape, cut), problem.batch, problem.threads,
                   ElementBytes(problem.dtype), FusedPass::kForward);
    return "cut after G" + std::to_string(cut) + ", panels of " +
           std::to_string(plan.outer * plan.rows) + " inputs by " + std::to_string(plan.right_out) +
           " outputs";
  }
  // In bfloat16 the cores are joined in float32, so that no product is oneDNN's.
  std::string WhyPeaksUnmodelled(const LinearProblem&) const override { return ""; }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    const int64_t cut = Cut(shape);
    std::vector<at::Tensor> wide;
    for (const at::Tensor& core : cores) wide.push_back(core.to(RealOf(core.scalar_type())));
    const at::Tensor left = JoinCores(shape, {0, cut}, wide);
    const at::Tensor right = JoinCores(shape, {cut, shape.cores()}, wide);
    return PanelLinear::apply(JoinedShape(shape, cut), x, left, right);
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    const int64_t cut = Cut(shape), batch = x.size(0), threads = tape.threads();
    const int64_t element_bytes = x.element_bytes(), real_bytes = RealBytes(element_bytes);
    const TtShape joined = JoinedShape(shape, cut);
    std::vector<cost::Tensor> wide;
    for (const cost::Tensor& core : cores) {
      wide.push_back(element_bytes == real_bytes
                         ? core
                         : tape.Cast(core, real_bytes, core.name() + " in float32"));
    }
    const cost::Tensor left = JoinCores(tape, shape, {0, cut}, wide, "joined left cores");
    const cost::Tensor right =
        JoinCores(tape, shape, {cut, shape.cores()}, wide, "joined right cores");
    const cost::Tensor left_copy = tape.Contiguous(left.Detach(), "joined left cores, contiguous");
    const cost::Tensor right_copy =
        tape.Contiguous(right.Detach(), "joined right cores, contiguous");
    auto plan_for = [=](FusedPass pass) {
      return PlanPanels(joined, batch, threads, element_bytes, pass);
    };
    const int64_t block = std::max<int64_t>(1, plan_for(FusedPass::kForward).block);
    const int64_t blocks = std::max<int64_t>(1, (batch + block - 1) / block);
    const int64_t rebuild = CheckedMul(2 * blocks, joined.rebuild_macs());
    const int64_t multiply = CheckedMul(2, CheckedMul(batch, shape.dense_parameters()));
    return tape.Custom(
        {x, left, right}, {x, left_copy, right_copy},
        [&] {
          cost::Tensor y = tape.Empty("y", {batch, shape.out_features()});
          const auto scratch = TraceScratch(tape, plan_for(FusedPass::kForward), real_bytes);
          tape.AddFlops(CheckedAdd(rebuild, multiply));
          return y;
        },
        [=, &tape](const cost::Tensor&, const std::vector<cost::Tensor>& saved) {
          std::vector<cost::Tensor> out;
          for (const cost::Tensor& input : saved) {
            out.push_back(
                tape.Empty("d(" + input.name() + ")", input.sizes(), input.element_bytes()));
          }
          const auto scratch = TraceScratch(tape, plan_for(FusedPass::kBackward), real_bytes);
          tape.AddFlops(CheckedAdd(CheckedMul(3, rebuild), CheckedMul(2, multiply)));
          return out;
        });
  }

  double planning_gflops() const override { return 80; }
};

const RegisterLinearVariant kFusedPanel(std::make_unique<FusedPanel>());

}  // namespace
}  // namespace ttbench
