// Launches the fused CUDA kernels. Without LibTorch; every launch is asynchronous on its stream.
//
// Tensors are in device memory and begin on 16 bytes: x and dx [batch, N], y and dy [batch, M],
// row-major; core k is [r_{k-1}, n_k, m_k, r_k]. Elements are float, or bfloat16 (two bytes) with
// CudaPrecision::kBfloat16. Scratch: packed holds plan.packed_elements elements as stored; partial
// holds plan.partial_elements() floats.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/fused_cuda_plan.h"

namespace ttbench {

// y = x W^T. The plan is of the forward pass; its device has at most this one's shared memory.
cudaError_t LaunchFusedForward(const FusedCudaPlan& plan, const std::vector<const void*>& cores,
                               const void* x, void* y, void* packed, cudaStream_t stream);

// dx and the gradients of all cores, of sum(y * dy). Equal calls give equal bits.
cudaError_t LaunchFusedBackward(const FusedCudaPlan& plan, const std::vector<const void*>& cores,
                                const void* x, const void* dy, void* dx,
                                const std::vector<void*>& dcores, void* packed, float* partial,
                                cudaStream_t stream);

// The limits of the current device, for planning. Rates are those of the A100 or, from
// capability 9.0 on, the H100, scaled by the number of multiprocessors.
cudaError_t CurrentCudaDevice(CudaDevice* device);

}  // namespace ttbench
