// Executes a plan on a device: products by cuBLAS, the rest by plan_kernels.h. Without LibTorch;
// everything is asynchronous on the stream given.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <stdexcept>

#include "kernels/cuda/gemm_plan.h"

namespace ttbench {

// A call of cuBLAS or of the CUDA runtime failed: what() names it, the step and the cause.
class CudaFailure : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct CublasOptions {
  // float32 products on tensor cores, their operands rounded to TF32. Elsewhere, and for float64,
  // in full precision; bfloat16 products are summed in float32 either way.
  bool tf32 = false;
  // Products that are not batched go through cublasLt, by the first algorithm of its heuristic.
  bool lt = false;
  // The caller's: all that cuBLAS may use. nullptr: none.
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

// Bound to the device that is current when it is made. Not for several threads at once.
class CublasExecutor {
 public:
  CublasExecutor();  // Throws CudaFailure.
  ~CublasExecutor();
  CublasExecutor(const CublasExecutor&) = delete;
  CublasExecutor& operator=(const CublasExecutor&) = delete;

  // All pointers that the pass needs are set, to memory of the device. Throws CudaFailure.
  void Run(const GemmPlan& plan, const PlanPass& pass, const PlanPointers& pointers,
           const CublasOptions& options, cudaStream_t stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A pass recorded once as a CUDA graph, and launched as one: for a pass of many small products,
// whose launches cost more than they do. Pointers are those it was recorded with. `stream` must not
// be the default stream, and the pass must have run once before, so that nothing is set up while
// recording.
class CapturedPass {
 public:
  // Throws CudaFailure.
  CapturedPass(CublasExecutor* executor, const GemmPlan& plan, const PlanPass& pass,
               const PlanPointers& pointers, const CublasOptions& options, cudaStream_t stream);
  ~CapturedPass();
  CapturedPass(const CapturedPass&) = delete;
  CapturedPass& operator=(const CapturedPass&) = delete;

  void Launch(cudaStream_t stream);

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace ttbench
