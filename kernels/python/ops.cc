// The registry as operators of PyTorch, in a library for torch.ops.load_library():
//
//   y = torch.ops.ttbench.linear("fused", in_modes, out_modes, ranks, x, cores)
//
// They take the variants' own path, autograd included; ttbench.py makes a module of them.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cost/speed.h"
#include "kernels/problem.h"
#include "kernels/scalar_type.h"
#include "kernels/shape.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

const LinearVariant& VariantNamed(const std::string& name) {
  const LinearVariant* variant = FindLinearVariant(name);
  if (!variant) {
    std::string names;
    for (const auto& known : LinearVariants()) {
      names += (names.empty() ? "" : ", ") + known->name();
    }
    TORCH_CHECK_VALUE(false, "there is no variant '", name, "'; use one of ", names);
  }
  return *variant;
}

DType DTypeOfTensor(at::ScalarType dtype) {
  try {
    return DTypeOf(dtype);
  } catch (const std::invalid_argument& error) {
    TORCH_CHECK_TYPE(false, error.what());
  }
}

TtShape ShapeOf(at::IntArrayRef in_modes, at::IntArrayRef out_modes, at::IntArrayRef ranks) {
  try {
    return TtShape(in_modes.vec(), out_modes.vec(), ranks.vec());
  } catch (const ShapeError& error) {
    TORCH_CHECK_VALUE(false, error.what());
  }
}

LinearProblem ProblemOf(const TtShape& shape, int64_t batch, bool train, at::ScalarType dtype) {
  return {shape, batch, train ? Phase::kTrain : Phase::kInference, DTypeOfTensor(dtype),
          at::get_num_threads()};
}

std::vector<std::string> Variants() {
  std::vector<std::string> names;
  for (const auto& variant : LinearVariants()) names.push_back(variant->name());
  return names;
}

std::string Algorithm(const std::string& variant, at::IntArrayRef in_modes,
                      at::IntArrayRef out_modes, at::IntArrayRef ranks, int64_t batch, bool train,
                      at::ScalarType dtype) {
  return VariantNamed(variant).Algorithm(
      ProblemOf(ShapeOf(in_modes, out_modes, ranks), batch, train, dtype));
}

std::string WhyUnsupported(const std::string& variant, at::IntArrayRef in_modes,
                           at::IntArrayRef out_modes, at::IntArrayRef ranks, int64_t batch,
                           bool train, at::ScalarType dtype) {
  return VariantNamed(variant).WhySkipped(
      ProblemOf(ShapeOf(in_modes, out_modes, ranks), batch, train, dtype));
}

void RequireSizes(const char* what, int64_t number, const at::Tensor& tensor, at::IntArrayRef want,
                  const at::Tensor& x) {
  TORCH_CHECK_VALUE(tensor.sizes() == want, what, number, " is ", tensor.sizes(),
                    "; these modes and ranks take ", want);
  TORCH_CHECK_TYPE(tensor.scalar_type() == x.scalar_type(), "x is ", x.scalar_type(), " but ", what,
                   number, " is ", tensor.scalar_type(), "; convert one with to()");
  TORCH_CHECK_VALUE(tensor.device().is_cpu(), what, number, " is on ", tensor.device(),
                    "; the variants run on the CPU");
}

at::Tensor Linear(const std::string& variant_name, at::IntArrayRef in_modes,
                  at::IntArrayRef out_modes, at::IntArrayRef ranks, const at::Tensor& x,
                  at::TensorList parameters) {
  const LinearVariant& variant = VariantNamed(variant_name);
  const TtShape shape = ShapeOf(in_modes, out_modes, ranks);
  // A variant is never handed other sizes than it was asked for.
  TORCH_CHECK_VALUE(shape.clipping_note().empty(), shape.clipping_note());
  TORCH_CHECK_VALUE(x.dim() > 0 && x.size(-1) == shape.in_features(), "x is ", x.sizes(),
                    "; a TT layer of ", shape.modes_name(), " takes [..., ", shape.in_features(),
                    "]");
  TORCH_CHECK_VALUE(x.device().is_cpu(), "x is on ", x.device(), "; the variants run on the CPU");
  const size_t expected = variant.is_dense() ? 1 : static_cast<size_t>(shape.cores());
  TORCH_CHECK_VALUE(parameters.size() == expected, "there are ", parameters.size(),
                    " parameters; variant '", variant.name(), "' of ", shape.modes_name(),
                    " takes ", expected);
  if (variant.is_dense()) {
    RequireSizes("weight ", 1, parameters[0], {shape.out_features(), shape.in_features()}, x);
  } else {
    for (int64_t k = 0; k < shape.cores(); ++k) {
      RequireSizes("core ", k + 1, parameters[k], shape.CoreSizes(k), x);
    }
  }
  const int64_t rows = x.numel() / shape.in_features();
  const std::string reason =
      variant.WhySkipped(ProblemOf(shape, rows, at::GradMode::is_enabled(), x.scalar_type()));
  TORCH_CHECK_VALUE(reason.empty(), "variant '", variant.name(),
                    "' cannot run this layer: ", reason);
  std::vector<at::Tensor> contiguous;
  for (const at::Tensor& parameter : parameters) contiguous.push_back(parameter.contiguous());
  const at::Tensor y =
      variant.Forward(shape, x.reshape({rows, shape.in_features()}).contiguous(), contiguous);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = shape.out_features();
  return y.view(sizes);
}

// Tells `auto` how long a run of the variant took.
void AddSpeed(const std::string& variant, at::IntArrayRef in_modes, at::IntArrayRef out_modes,
              at::IntArrayRef ranks, int64_t batch, bool train, at::ScalarType dtype,
              int64_t threads, double seconds) {
  VariantNamed(variant);
  LinearProblem problem = ProblemOf(ShapeOf(in_modes, out_modes, ranks), batch, train, dtype);
  problem.threads = threads;
  MeasuredSpeeds().Add({variant, problem, seconds});
}

TORCH_LIBRARY(ttbench, library) {
  library.def("variants", &Variants);
  library.def(
      "algorithm(str variant, int[] in_modes, int[] out_modes, int[] ranks, int batch, bool train, "
      "ScalarType dtype) -> str",
      &Algorithm);
  library.def(
      "why_unsupported(str variant, int[] in_modes, int[] out_modes, int[] ranks, int batch, "
      "bool train, ScalarType dtype) -> str",
      &WhyUnsupported);
  library.def(
      "add_speed(str variant, int[] in_modes, int[] out_modes, int[] ranks, int batch, bool train, "
      "ScalarType dtype, int threads, float seconds) -> ()",
      &AddSpeed);
  library.def(
      "linear(str variant, int[] in_modes, int[] out_modes, int[] ranks, Tensor x, "
      "Tensor[] parameters) -> Tensor",
      &Linear);
}

}  // namespace
}  // namespace ttbench
