// fused-panel: the matrix rebuilt panel by panel in the cache and multiplied at once, forward and
// backward; never held whole. For high ranks, where rebuilding costs less than contracting: d^6 r
// against B d^4 (r^2 + 2 r - d^2) multiply-adds. (fused: for all others.)
//
// The cores on either side of a cut are joined into two (autograd goes back through that), and
// panel_kernel.h does the rest. Held beyond x: the joined cores, r d^4 elements for three cubic
// cores.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kernels/linear/join_cores.h"
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

template <typename F>
void InParallel(int64_t count, const F& f) {
  if (count == 1) return f(0);
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

template <typename F>
void WithReal(const at::Tensor& x, const F& f) {
  TORCH_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble,
              "fused-panel: x must be float32 or float64, not ", x.scalar_type());
  x.scalar_type() == at::kFloat ? f(float()) : f(double());
}

class PanelLinear : public torch::autograd::Function<PanelLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const TtShape& joined,
                            const at::Tensor& x_any, const at::Tensor& left_any,
                            const at::Tensor& right_any) {
    const at::Tensor x = x_any.contiguous(), left = left_any.contiguous(),
                     right = right_any.contiguous();
    context->save_for_backward({x, left, right});
    at::Tensor y = at::empty({x.size(0), joined.out_features()}, x.options());
    WithReal(x, [&](auto zero) {
      using Real = decltype(zero);
      const PanelPlan plan =
          PlanPanels(joined, x.size(0), at::get_num_threads(), sizeof(Real), FusedPass::kForward);
      at::Tensor slots = at::empty({plan.slots * plan.slot_elements}, x.options());
      InParallel(plan.slots, [&, out = y.mutable_data_ptr<Real>(),
                              scratch = slots.mutable_data_ptr<Real>()](int64_t slot) {
        PanelForward(plan, slot, left.const_data_ptr<Real>(), right.const_data_ptr<Real>(),
                     x.const_data_ptr<Real>(), out, scratch);
      });
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
    at::Tensor dleft = at::empty(left.sizes(), x.options());
    at::Tensor dright = at::empty(right.sizes(), x.options());
    WithReal(x, [&](auto zero) {
      using Real = decltype(zero);
      const PanelPlan plan =
          PlanPanels(joined, x.size(0), at::get_num_threads(), sizeof(Real), FusedPass::kBackward);
      at::Tensor slots = at::empty({plan.slots * plan.slot_elements}, x.options());
      at::Tensor gradients = at::empty({plan.slots * plan.gradient_elements}, x.options());
      Real* const sums = gradients.mutable_data_ptr<Real>();
      InParallel(plan.slots,
                 [&, out = dx.mutable_data_ptr<Real>(), right_out = dright.mutable_data_ptr<Real>(),
                  scratch = slots.mutable_data_ptr<Real>()](int64_t slot) {
                   PanelBackward(plan, slot, left.const_data_ptr<Real>(),
                                 right.const_data_ptr<Real>(), x.const_data_ptr<Real>(),
                                 dy.const_data_ptr<Real>(), out, right_out, scratch, sums);
                 });
      WriteLeftGradient(plan, sums, dleft.mutable_data_ptr<Real>());
    });
    return {at::Tensor(), dx, dleft, dright};
  }
};

class FusedPanel : public LinearVariant {
 public:
  std::string name() const override { return "fused-panel"; }
  std::string Algorithm(const LinearProblem& problem) const override {
    const int64_t cut = Cut(problem.shape);
    const PanelPlan plan =
        PlanPanels(JoinedShape(problem.shape, cut), problem.batch, problem.threads,
                   ElementBytes(problem.dtype), FusedPass::kForward);
    return "cut after G" + std::to_string(cut) + ", panels of " +
           std::to_string(plan.outer * plan.rows) + " inputs by " + std::to_string(plan.right_out) +
           " outputs";
  }
  std::string WhyUnsupported(const LinearProblem& problem) const override {
    return problem.dtype == DType::kBFloat16 ? "the panel path has no bfloat16 products" : "";
  }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    const int64_t cut = Cut(shape);
    const at::Tensor left = JoinCores(shape, {0, cut}, cores);
    const at::Tensor right = JoinCores(shape, {cut, shape.cores()}, cores);
    return PanelLinear::apply(JoinedShape(shape, cut), x, left, right);
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    const int64_t cut = Cut(shape), batch = x.size(0), threads = tape.threads();
    const TtShape joined = JoinedShape(shape, cut);
    const cost::Tensor left = JoinCores(tape, shape, {0, cut}, cores, "joined left cores");
    const cost::Tensor right =
        JoinCores(tape, shape, {cut, shape.cores()}, cores, "joined right cores");
    const cost::Tensor left_copy = tape.Contiguous(left.Detach(), "joined left cores, contiguous");
    const cost::Tensor right_copy =
        tape.Contiguous(right.Detach(), "joined right cores, contiguous");
    const int64_t real_bytes = cores[0].buffer()->bytes() / std::max<int64_t>(1, cores[0].numel());
    auto plan_for = [=](FusedPass pass) {
      return PlanPanels(joined, batch, threads, real_bytes, pass);
    };
    const int64_t rebuild = CheckedMul(2, joined.rebuild_macs());
    const int64_t multiply = CheckedMul(2, CheckedMul(batch, shape.dense_parameters()));
    return tape.Custom(
        {x, left, right}, {x, left_copy, right_copy},
        [&] {
          cost::Tensor y = tape.Empty("y", {batch, shape.out_features()});
          const PanelPlan plan = plan_for(FusedPass::kForward);
          const cost::Tensor slots =
              tape.Empty("panels of all threads", {plan.slots * plan.slot_elements});
          tape.AddFlops(CheckedAdd(rebuild, multiply));
          return y;
        },
        [=, &tape](const cost::Tensor&, const std::vector<cost::Tensor>& saved) {
          std::vector<cost::Tensor> out;
          for (const cost::Tensor& input : saved) {
            out.push_back(tape.Empty("d(" + input.name() + ")", input.sizes()));
          }
          const PanelPlan plan = plan_for(FusedPass::kBackward);
          const cost::Tensor slots =
              tape.Empty("panels of all threads", {plan.slots * plan.slot_elements});
          const cost::Tensor gradients = tape.Empty("left core gradients of all threads",
                                                    {plan.slots * plan.gradient_elements});
          tape.AddFlops(CheckedAdd(CheckedMul(3, rebuild), CheckedMul(2, multiply)));
          return out;
        });
  }

  double planning_gflops() const override { return 80; }
};

const RegisterLinearVariant kFusedPanel(std::make_unique<FusedPanel>());

}  // namespace
}  // namespace ttbench
