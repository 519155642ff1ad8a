// The fused CUDA kernels on LibTorch's tensors: checks them, allocates results and scratch with
// LibTorch, and launches. Core k: [r_{k-1}, n_k, m_k, r_k]; all tensors contiguous, on one CUDA
// device, of float32, or of bfloat16 with CudaPrecision::kBfloat16. Throws c10::Error.
#pragma once

#include <ATen/core/Tensor.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/fused_cuda_plan.h"

namespace ttbench {

// [batch, M] of x, [batch, N].
at::Tensor FusedCudaForward(const FusedCudaPlan& plan, const std::vector<at::Tensor>& cores,
                            const at::Tensor& x, cudaStream_t stream);

struct FusedCudaGradients {
  at::Tensor dx;
  std::vector<at::Tensor> dcores;
};
FusedCudaGradients FusedCudaBackward(const FusedCudaPlan& plan,
                                     const std::vector<at::Tensor>& cores, const at::Tensor& x,
                                     const at::Tensor& dy, cudaStream_t stream);

}  // namespace ttbench
