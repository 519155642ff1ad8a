// Runs a pass of a plan on LibTorch's current CUDA device and stream.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/cuda/gemm_plan.h"

namespace ttbench {

// Pointers are to the device's memory. `workspace` is cuBLAS's, of bytes; `lt`: as
// CublasOptions::lt. By CurrentCudaSettings(). Throws c10::Error in a build without CUDA, and
// CudaFailure.
void RunPlanOnDevice(const GemmPlan& plan, const PlanPass& pass, const PlanPointers& pointers,
                     bool lt, const at::Tensor& workspace);

}  // namespace ttbench
