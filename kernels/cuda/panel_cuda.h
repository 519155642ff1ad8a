// Launches the CUDA panel kernels. Without LibTorch; every launch is asynchronous on its stream.
//
// Tensors as in fused_cuda.h. Scratch, which begins on 16 bytes: packed holds plan.packed_elements
// elements as stored; values holds plan.value_elements floats, twice as many in the backward;
// partial holds plan.partial_elements floats.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/panel_cuda_plan.h"

namespace ttbench {

// y = x W^T. The plan is of the forward pass; its device has at most this one's shared memory.
cudaError_t LaunchPanelForward(const PanelCudaPlan& plan, const std::vector<const void*>& cores,
                               const void* x, void* y, void* packed, float* values,
                               cudaStream_t stream);

// dx and the gradients of all cores, of sum(y * dy). Equal calls give equal bits.
cudaError_t LaunchPanelBackward(const PanelCudaPlan& plan, const std::vector<const void*>& cores,
                                const void* x, const void* dy, void* dx,
                                const std::vector<void*>& dcores, void* packed, float* values,
                                float* partial, cudaStream_t stream);

}  // namespace ttbench
