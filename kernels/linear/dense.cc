// The dense layer: one weight W of [M, N], y = x W^T.
//
//   dense         at::linear, what users get; the baseline. LibTorch hands float32 and float64
//                 to MKL, which leaves AVX-512 unused on AMD's CPUs.
//   dense-onednn  the same product by oneDNN, which uses the widest vectors of any CPU.
//                 Claims of being faster than dense are made against the faster of the two.
//
// Both hold x alone for the backward.
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/variant.h"

// Exported by libtorch_cpu, declared in a header that the wheel leaves out: result = mat1 mat2 *
// alpha + result * beta.
namespace at::native {
void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta,
                   float alpha);
}

namespace ttbench {
namespace {

// Whether LibTorch's oneDNN matmul runs here; it asks for what bfloat16 needs, whatever the type.
bool HasOneDnnMatmul() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

class Dense : public LinearVariant {
 public:
  std::string name() const override { return kBaselineVariant; }
  bool is_dense() const override { return true; }
  std::string Algorithm(const LinearProblem& problem) const override {
    if (problem.dtype == DType::kBFloat16) {
      return HasOneDnnMatmul() ? "linear (oneDNN matmul)" : "linear (LibTorch gemm)";
    }
    return at::hasMKL() ? "linear (MKL gemm)" : "linear (LibTorch gemm)";
  }
  at::Tensor Forward(const TtShape&, const at::Tensor& x,
                     at::TensorList parameters) const override {
    return at::linear(x, parameters[0]);
  }
  cost::Tensor Trace(cost::Tape& tape, const TtShape&, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& parameters) const override {
    return tape.Mm(x, tape.Transpose(parameters[0]), "y");
  }
  double planning_gflops() const override { return 60; }
};

// a b, by oneDNN: its matmul, or on CPUs without AVX-512 its linear layer.
at::Tensor OneDnnMatmul(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return at::zeros({a.size(0), b.size(1)}, a.options());
  if (!HasOneDnnMatmul()) {
    using Scalars = c10::List<std::optional<at::Scalar>>;
    static const auto linear =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("mkldnn::_linear_pointwise", "")
            .typed<at::Tensor(const at::Tensor&, const at::Tensor&,
                              const std::optional<at::Tensor>&, std::string_view, Scalars,
                              std::optional<std::string_view>)>();
    return linear.call(a, b.t(), std::nullopt, "none", Scalars(), std::nullopt);
  }
  at::Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  at::native::mkldnn_matmul(a, b, result, 0, 1);
  return result;
}

class OneDnnLinear : public torch::autograd::Function<OneDnnLinear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return OneDnnMatmul(x, weight.t());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx, dweight;
    if (context->needs_input_grad(0)) dx = OneDnnMatmul(dy, saved[1]);
    if (context->needs_input_grad(1)) dweight = OneDnnMatmul(dy.t(), saved[0]);
    return {dx, dweight};
  }
};

class DenseOneDnn : public LinearVariant {
 public:
  std::string name() const override { return "dense-onednn"; }
  bool is_dense() const override { return true; }
  bool RunsOn(Device device) const override { return device == Device::kCpu; }
  std::string Algorithm(const LinearProblem&) const override {
    return HasOneDnnMatmul() ? "oneDNN matmul" : "oneDNN linear";
  }
  std::string WhyUnsupported(const LinearProblem& problem) const override {
    if (problem.dtype == DType::kFloat64) return "oneDNN has no float64 matmul";
    return problem.dtype == DType::kBFloat16 && !HasOneDnnMatmul()
               ? "oneDNN's bfloat16 products need AVX-512"
               : "";
  }
  std::string WhyPeaksUnmodelled(const LinearProblem&) const override {
    return "peaks not modelled: oneDNN's scratch depends on the CPU";
  }
  at::Tensor Forward(const TtShape&, const at::Tensor& x,
                     at::TensorList parameters) const override {
    return OneDnnLinear::apply(x, parameters[0]);
  }
  cost::Tensor Trace(cost::Tape& tape, const TtShape&, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& parameters) const override {
    const cost::Tensor& weight = parameters[0];
    return tape.Custom(
        {x, weight}, {x, weight}, [&] { return tape.Mm(x, tape.Transpose(weight), "y"); },
        [&tape](const cost::Tensor& dy, const std::vector<cost::Tensor>& saved) {
          cost::Tensor dx = tape.Mm(dy, saved[1], "d(x)");
          cost::Tensor dweight = tape.Mm(tape.Transpose(dy), saved[0], "d(weight)");
          return std::vector<cost::Tensor>{std::move(dx), std::move(dweight)};
        });
  }
  double planning_gflops() const override { return 80; }
};

const RegisterLinearVariant kDense(std::make_unique<Dense>());
const RegisterLinearVariant kDenseOneDnn(std::make_unique<DenseOneDnn>());

}  // namespace
}  // namespace ttbench
