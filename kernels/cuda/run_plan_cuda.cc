#include <c10/cuda/CUDAStream.h>

#include "kernels/cuda/cublas_executor.h"
#include "kernels/cuda/cuda_settings.h"
#include "kernels/cuda/run_plan.h"

namespace ttbench {

void RunPlanOnDevice(const GemmPlan& plan, const PlanPass& pass, const PlanPointers& pointers,
                     bool lt, const at::Tensor& workspace) {
  // One for each thread, as autograd has its own; never freed, as the driver may go first.
  static thread_local auto* executor = new CublasExecutor;
  const CublasOptions options{CurrentCudaSettings().tf32, lt, workspace.mutable_data_ptr(),
                              workspace.numel()};
  executor->Run(plan, pass, pointers, options, c10::cuda::getCurrentCUDAStream().stream());
}

}  // namespace ttbench
