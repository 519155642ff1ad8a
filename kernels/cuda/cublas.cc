// The layer by cuBLAS alone, without LibTorch's operators: the products of a plan (gemm_plan.h),
// every buffer of a pass in one allocation. On CUDA devices only.
//
//   cublas-dense       y = x W^T by cublasLt
//   cublas-sequential  last core to first by strided-batched products; no intermediate is copied in
//                      the forward. Held beyond x: the intermediates (2 r B d^3 for three cubic
//                      cores) and each core with its middle dimensions swapped.
//   cublas-merged      the cores on either side of the cheapest cut joined first, as `merged` does
//
// cuBLAS's workspace (CurrentCudaSettings()) is allocated with each pass, and so counted.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/cuda/cuda_settings.h"
#include "kernels/cuda/gemm_plan.h"
#include "kernels/cuda/run_plan.h"
#include "kernels/scalar_type.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

enum class Form { kDense, kSequential, kMerged };

GemmPlan NewPlan(Form form, const TtShape& shape, int64_t batch, DType dtype, PlanFor purpose) {
  switch (form) {
    case Form::kDense:
      return PlanDense(shape.out_features(), shape.in_features(), batch, dtype, purpose);
    case Form::kSequential:
      return PlanSequential(shape, batch, dtype, purpose);
    case Form::kMerged:
      return PlanMerged(shape, batch, dtype, purpose);
  }
  return {};
}

// The latest few are kept: a small layer runs in less time than its plan takes to make.
std::shared_ptr<const GemmPlan> PlanOf(Form form, const TtShape& shape, int64_t batch, DType dtype,
                                       PlanFor purpose) {
  struct Entry {
    Form form;
    TtShape shape;
    int64_t batch;
    DType dtype;
    PlanFor purpose;
    std::shared_ptr<const GemmPlan> plan;
  };
  static std::mutex mutex;
  static auto* entries = new std::list<Entry>;
  constexpr size_t kKept = 64;
  const std::lock_guard<std::mutex> lock(mutex);
  for (auto entry = entries->begin(); entry != entries->end(); ++entry) {
    if (entry->form != form || entry->batch != batch || entry->dtype != dtype ||
        entry->purpose != purpose || !(entry->shape == shape)) {
      continue;
    }
    entries->splice(entries->begin(), *entries, entry);
    return entry->plan;
  }
  auto plan = std::make_shared<const GemmPlan>(NewPlan(form, shape, batch, dtype, purpose));
  entries->push_front({form, shape, batch, dtype, purpose, plan});
  if (entries->size() > kKept) entries->pop_back();
  return plan;
}

at::Tensor Bytes(int64_t bytes, const at::Tensor& like) {
  return at::empty({bytes}, like.options().dtype(at::kByte));
}

// Runs a pass with scratch and workspace of its own.
void RunPass(const GemmPlan& plan, const PlanPass& pass, PlanPointers pointers, Form form,
             const at::Tensor& x) {
  const at::Tensor workspace = Bytes(CurrentCudaSettings().cublas_workspace_bytes, x);
  const at::Tensor scratch = Bytes(pass.scratch_bytes, x);
  pointers.scratch = scratch.mutable_data_ptr();
  RunPlanOnDevice(plan, pass, pointers, form == Form::kDense, workspace);
}

class PlannedLinear : public torch::autograd::Function<PlannedLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, Form form,
                            const TtShape& shape, bool trains, at::TensorList inputs) {
    torch::autograd::variable_list saved;
    for (const at::Tensor& input : inputs) saved.push_back(input.contiguous());
    const at::Tensor& x = saved[0];
    context->saved_data["form"] = static_cast<int64_t>(form);
    context->saved_data["in_modes"] = shape.in_modes();
    context->saved_data["out_modes"] = shape.out_modes();
    context->saved_data["ranks"] = shape.ranks();
    const auto plan = PlanOf(form, shape, x.size(0), DTypeOf(x.scalar_type()),
                             trains ? PlanFor::kTraining : PlanFor::kInference);
    const at::Tensor held = Bytes(plan->held_bytes, x);
    const at::Tensor y = at::empty({x.size(0), shape.out_features()}, x.options());
    PlanPointers pointers = Inputs(saved, held);
    pointers.y = y.mutable_data_ptr();
    RunPass(*plan, plan->forward, std::move(pointers), form, x);
    saved.push_back(held);
    context->save_for_backward(saved);
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto form = static_cast<Form>(context->saved_data["form"].toInt());
    const TtShape shape(context->saved_data["in_modes"].toIntVector(),
                        context->saved_data["out_modes"].toIntVector(),
                        context->saved_data["ranks"].toIntVector());
    torch::autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor held = saved.back();
    saved.pop_back();
    const at::Tensor& x = saved[0];
    torch::autograd::variable_list result(3);  // Of the form, the shape and `trains`.
    const at::Tensor dy = grads[0].contiguous();
    const auto plan = PlanOf(form, shape, x.size(0), DTypeOf(x.scalar_type()), PlanFor::kTraining);
    for (const at::Tensor& input : saved) result.push_back(at::empty_like(input));
    PlanPointers pointers = Inputs(saved, held);
    pointers.dy = dy.const_data_ptr();
    pointers.dx = result[3].mutable_data_ptr();
    for (size_t i = 4; i < result.size(); ++i)
      pointers.parameter_gradients.push_back(result[i].mutable_data_ptr());
    RunPass(*plan, plan->backward, std::move(pointers), form, x);
    return result;
  }

 private:
  static PlanPointers Inputs(const torch::autograd::variable_list& inputs, const at::Tensor& held) {
    PlanPointers pointers;
    pointers.x = inputs[0].const_data_ptr();
    for (size_t i = 1; i < inputs.size(); ++i)
      pointers.parameters.push_back(inputs[i].const_data_ptr());
    pointers.held = held.mutable_data_ptr();
    return pointers;
  }
};

class Cublas : public LinearVariant {
 public:
  explicit Cublas(Form form) : form_(form) {}
  std::string name() const override {
    return form_ == Form::kDense        ? "cublas-dense"
           : form_ == Form::kSequential ? "cublas-sequential"
                                        : "cublas-merged";
  }
  bool is_dense() const override { return form_ == Form::kDense; }
  bool RunsOn(Device device) const override { return device == Device::kCuda; }
  std::string WhyUnsupported(const LinearProblem& problem) const override {
    return problem.batch > 0 ? "" : "written for at least one row of x";
  }
  std::string WhyPeaksUnmodelled(const LinearProblem&) const override { return ""; }
  std::string Algorithm(const LinearProblem& problem) const override {
    if (is_dense()) return "cublasLt";
    const GemmPlan plan =
        NewPlan(form_, problem.shape, problem.batch, problem.dtype,
                problem.phase == Phase::kInference ? PlanFor::kInference : PlanFor::kTraining);
    return std::string(form_ == Form::kMerged ? "cores joined, then " : "") + "right to left, " +
           std::to_string(plan.forward.steps.size()) + " steps forward" +
           (plan.backward.steps.empty()
                ? ""
                : " and " + std::to_string(plan.backward.steps.size()) + " backward");
  }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList parameters) const override {
    TORCH_CHECK(x.is_cuda(), "'", name(), "' ", WhyNotOn(Device::kCpu), "; x is on ", x.device());
    std::vector<at::Tensor> inputs = {x};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    bool trains = false;
    for (const at::Tensor& input : inputs) trains |= input.requires_grad();
    trains &= at::GradMode::is_enabled();
    return PlannedLinear::apply(form_, shape, trains, at::TensorList(inputs));
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& parameters) const override {
    const DType dtype = *std::find_if(kDTypes.begin(), kDTypes.end(), [&](DType candidate) {
      return ElementBytes(candidate) == tape.element_bytes();
    });
    const auto plan = PlanOf(form_, shape, x.size(0), dtype,
                             tape.recording() ? PlanFor::kTraining : PlanFor::kInference);
    std::vector<cost::Tensor> inputs = {x};
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    auto run = [&tape](const PlanPass& pass) {
      const cost::Tensor workspace =
          tape.Empty("cuBLAS's workspace", {CurrentCudaSettings().cublas_workspace_bytes}, 1);
      const cost::Tensor scratch = tape.Empty("scratch", {pass.scratch_bytes}, 1);
      for (const Step& step : pass.steps) {
        if (const auto* gemm = std::get_if<GemmStep>(&step)) tape.AddFlops(gemm->flops());
      }
    };
    std::vector<cost::Tensor> saved = inputs;
    saved.push_back(tape.Empty("held", {plan->held_bytes}, 1));
    return tape.Custom(
        inputs, saved,
        [&] {
          cost::Tensor y = tape.Empty("y", {x.size(0), shape.out_features()});
          run(plan->forward);
          return y;
        },
        [plan, run, &tape](const cost::Tensor&, const std::vector<cost::Tensor>& kept) {
          std::vector<cost::Tensor> out;
          for (size_t i = 0; i + 1 < kept.size(); ++i)
            out.push_back(tape.Empty("d(" + kept[i].name() + ")", kept[i].sizes()));
          run(plan->backward);
          return out;
        });
  }

  double planning_gflops() const override { return 60; }

 private:
  Form form_;
};

const RegisterLinearVariant kDense(std::make_unique<Cublas>(Form::kDense));
const RegisterLinearVariant kSequential(std::make_unique<Cublas>(Form::kSequential));
const RegisterLinearVariant kMerged(std::make_unique<Cublas>(Form::kMerged));

}  // namespace
}  // namespace ttbench
