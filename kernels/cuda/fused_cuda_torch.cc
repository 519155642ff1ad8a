#include "kernels/cuda/fused_cuda_torch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "kernels/cuda/fused_cuda.h"

namespace ttbench {
namespace {

void CheckTensor(const FusedCudaPlan& plan, const char* name, const at::Tensor& tensor,
                 int64_t elements) {
  const bool bfloat16 = plan.precision == CudaPrecision::kBfloat16;
  TORCH_CHECK(tensor.is_cuda(), name, " must be on a CUDA device, not on ", tensor.device());
  TORCH_CHECK(tensor.scalar_type() == (bfloat16 ? at::kBFloat16 : at::kFloat), name, " is ",
              tensor.scalar_type(), ", which the plan is not for");
  TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous");
  TORCH_CHECK(tensor.numel() == elements, name, " has ", tensor.numel(), " elements, not ",
              elements);
  // Vectors of 16 bytes are copied.
  TORCH_CHECK(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0, name,
              " must begin on 16 bytes");
}

std::vector<const void*> Pointers(const FusedCudaPlan& plan, const std::vector<at::Tensor>& cores) {
  TORCH_CHECK(static_cast<int64_t>(cores.size()) == plan.params.cores, "the plan is for ",
              plan.params.cores, " cores, not ", cores.size());
  std::vector<const void*> pointers(cores.size());
  for (int32_t k = 0; k < plan.params.cores; ++k) {
    // Of the plan's order.
    const CudaProduct& product = plan.params.products[k];
    const int64_t chunks = k == 0 ? plan.params.chunks : 1;
    const int64_t blocks = k == plan.params.cores - 1 ? plan.params.blocks : 1;
    const int32_t core = plan.params.layer_core[k];
    CheckTensor(plan, "a core", cores[core], product.rows * blocks * product.depth * chunks);
    pointers[core] = cores[core].const_data_ptr();
  }
  return pointers;
}

void CheckLaunch(cudaError_t error) {
  TORCH_CHECK(error == cudaSuccess,
              "a fused CUDA kernel did not start: ", cudaGetErrorString(error));
}

}  // namespace

at::Tensor FusedCudaForward(const FusedCudaPlan& plan, const std::vector<at::Tensor>& cores,
                            const at::Tensor& x, cudaStream_t stream) {
  const FusedCudaParams& params = plan.params;
  TORCH_CHECK(plan.pass == CudaPass::kForward, "a plan of the backward pass");
  CheckTensor(plan, "x", x, params.batch * params.in_features);
  const std::vector<const void*> pointers = Pointers(plan, cores);
  at::Tensor y = at::empty({params.batch, params.out_features}, x.options());
  const at::Tensor packed = at::empty({plan.packed_elements}, x.options());
  CheckLaunch(LaunchFusedForward(plan, pointers, x.const_data_ptr(), y.mutable_data_ptr(),
                                 packed.mutable_data_ptr(), stream));
  return y;
}

FusedCudaGradients FusedCudaBackward(const FusedCudaPlan& plan,
                                     const std::vector<at::Tensor>& cores, const at::Tensor& x,
                                     const at::Tensor& dy, cudaStream_t stream) {
  const FusedCudaParams& params = plan.params;
  TORCH_CHECK(plan.pass == CudaPass::kBackward, "a plan of the forward pass");
  CheckTensor(plan, "x", x, params.batch * params.in_features);
  CheckTensor(plan, "dy", dy, params.batch * params.out_features);
  const std::vector<const void*> pointers = Pointers(plan, cores);
  FusedCudaGradients gradients{at::empty_like(x), {}};
  std::vector<void*> dcore_pointers;
  for (const at::Tensor& core : cores) {
    gradients.dcores.push_back(at::empty_like(core));
    dcore_pointers.push_back(gradients.dcores.back().mutable_data_ptr());
  }
  const at::Tensor packed = at::empty({plan.packed_elements}, x.options());
  const at::Tensor partial = at::empty({plan.partial_elements()}, x.options().dtype(at::kFloat));
  CheckLaunch(LaunchFusedBackward(plan, pointers, x.const_data_ptr(), dy.const_data_ptr(),
                                  gradients.dx.mutable_data_ptr(), dcore_pointers,
                                  packed.mutable_data_ptr(),
                                  static_cast<float*>(partial.mutable_data_ptr()), stream));
  return gradients;
}

}  // namespace ttbench
