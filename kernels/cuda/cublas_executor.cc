#include "kernels/cuda/cublas_executor.h"

#include <cublasLt.h>
#include <cublas_v2.h>

#include <map>
#include <string>
#include <tuple>

#include "kernels/cuda/plan_kernels.h"

namespace ttbench {
namespace {

void Require(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  throw CudaFailure(what + " failed: " + cudaGetErrorString(error));
}

void Require(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw CudaFailure(what + " failed: " + cublasGetStatusString(status));
}

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return CUDA_R_32F;
    case DType::kFloat64:
      return CUDA_R_64F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
  }
  return CUDA_R_32F;
}

cublasComputeType_t ComputeOf(DType dtype, bool tf32) {
  if (dtype == DType::kFloat64) return CUBLAS_COMPUTE_64F;
  return dtype == DType::kFloat32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// alpha and beta, in the type that cuBLAS sums in.
struct Scales {
  explicit Scales(bool accumulate) : beta_float(accumulate), beta_double(accumulate) {}
  const void* alpha(DType dtype) const {
    return dtype == DType::kFloat64 ? static_cast<const void*>(&one_double) : &one_float;
  }
  const void* beta(DType dtype) const {
    return dtype == DType::kFloat64 ? static_cast<const void*>(&beta_double) : &beta_float;
  }
  float one_float = 1, beta_float;
  double one_double = 1, beta_double;
};

// Owns what cublasLt makes by create and destroy functions.
template <typename Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Owned {
  Owned() = default;
  ~Owned() {
    if (handle) kDestroy(handle);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle handle = nullptr;
};

// Row-major C = op(A) op(B) is column-major C^T = op(B)^T op(A)^T, and a row-major matrix is its
// own transpose in column-major: the operands trade places, and so do m and n.
cublasOperation_t Operation(bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }

// What an algorithm of cublasLt is chosen for.
using LtKey = std::tuple<bool, bool, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int, int,
                         bool, int64_t>;

}  // namespace

struct CublasExecutor::State {
  cublasHandle_t cublas = nullptr;
  cublasLtHandle_t lt = nullptr;
  std::map<LtKey, cublasLtMatmulAlgo_t> algorithms;

  ~State() {
    if (lt) cublasLtDestroy(lt);
    if (cublas) cublasDestroy(cublas);
  }

  void Multiply(const GemmPlan& plan, const GemmStep& step, const PlanPointers& pointers,
                const CublasOptions& options) const {
    const DType dtype = TypeFor(plan, step.a);
    const Scales scales(step.accumulate);
    Require(cublasGemmStridedBatchedEx_64(
                cublas, Operation(step.transpose_b), Operation(step.transpose_a), step.n, step.m,
                step.k, scales.alpha(dtype), At(plan, step.b, pointers), TypeOf(dtype), step.b.ld,
                step.b.batch_stride, At(plan, step.a, pointers), TypeOf(dtype), step.a.ld,
                step.a.batch_stride, scales.beta(dtype), At(plan, step.c, pointers),
                TypeOf(TypeFor(plan, step.c)), step.c.ld, step.c.batch_stride, step.batch,
                ComputeOf(dtype, options.tf32), CUBLAS_GEMM_DEFAULT),
            "cublasGemmStridedBatchedEx for '" + step.name + "' of " + plan.layer);
  }

  void MultiplyByLt(const GemmPlan& plan, const GemmStep& step, const PlanPointers& pointers,
                    const CublasOptions& options, cudaStream_t stream) {
    const std::string what = "cublasLtMatmul for '" + step.name + "' of " + plan.layer;
    const DType dtype = TypeFor(plan, step.a);
    const cudaDataType_t type = TypeOf(dtype), result_type = TypeOf(TypeFor(plan, step.c));
    const cudaDataType_t scale_type = dtype == DType::kFloat64 ? CUDA_R_64F : CUDA_R_32F;
    Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> product;
    Require(cublasLtMatmulDescCreate(&product.handle, ComputeOf(dtype, options.tf32), scale_type),
            what);
    const cublasOperation_t first = Operation(step.transpose_b),
                            second = Operation(step.transpose_a);
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;  // No bias.
    auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
      Require(cublasLtMatmulDescSetAttribute(product.handle, attribute, &value, sizeof value),
              what);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, first);
    set(CUBLASLT_MATMUL_DESC_TRANSB, second);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> a, b, c;
    auto layout = [&](auto* of, cudaDataType_t element, bool transposed, int64_t rows,
                      int64_t columns, int64_t ld) {
      Require(cublasLtMatrixLayoutCreate(&of->handle, element,
                                         static_cast<uint64_t>(transposed ? columns : rows),
                                         static_cast<uint64_t>(transposed ? rows : columns), ld),
              what);
    };
    layout(&a, type, step.transpose_b, step.n, step.k, step.b.ld);
    layout(&b, type, step.transpose_a, step.k, step.m, step.a.ld);
    layout(&c, result_type, false, step.n, step.m, step.c.ld);

    const LtKey key(step.transpose_a, step.transpose_b, step.m, step.n, step.k, step.a.ld,
                    step.b.ld, step.c.ld, static_cast<int>(type), static_cast<int>(result_type),
                    options.tf32, options.workspace_bytes);
    auto algorithm = algorithms.find(key);
    if (algorithm == algorithms.end()) {
      Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference;
      Require(cublasLtMatmulPreferenceCreate(&preference.handle), what);
      const auto bytes = static_cast<uint64_t>(options.workspace_bytes);
      Require(
          cublasLtMatmulPreferenceSetAttribute(
              preference.handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes),
          what);
      cublasLtMatmulHeuristicResult_t result{};
      int found = 0;
      Require(cublasLtMatmulAlgoGetHeuristic(lt, product.handle, a.handle, b.handle, c.handle,
                                             c.handle, preference.handle, 1, &result, &found),
              what);
      if (found == 0) throw CudaFailure(what + " failed: cublasLt has no algorithm for it");
      algorithm = algorithms.emplace(key, result.algo).first;
    }
    const Scales scales(step.accumulate);
    void* result = At(plan, step.c, pointers);
    Require(cublasLtMatmul(lt, product.handle, scales.alpha(dtype), At(plan, step.b, pointers),
                           a.handle, At(plan, step.a, pointers), b.handle, scales.beta(dtype),
                           result, c.handle, result, c.handle, &algorithm->second,
                           options.workspace, static_cast<size_t>(options.workspace_bytes), stream),
            what);
  }

  static const PlanBuffer& Buffer(const GemmPlan& plan, BufferId id) {
    return plan.buffers[static_cast<size_t>(id)];
  }
  static DType TypeFor(const GemmPlan& plan, const Operand& operand) {
    return Buffer(plan, operand.buffer).dtype;
  }
  static void* At(const GemmPlan& plan, const Operand& operand, const PlanPointers& pointers) {
    return pointers.Of(Buffer(plan, operand.buffer)) + operand.offset_bytes;
  }
};

CublasExecutor::CublasExecutor() : state_(std::make_unique<State>()) {
  Require(cublasCreate(&state_->cublas), "cublasCreate");
  Require(cublasLtCreate(&state_->lt), "cublasLtCreate");
  // TF32 is asked for by the compute type alone; slices are never summed in less than float32.
  Require(cublasSetMathMode(state_->cublas, static_cast<cublasMath_t>(
                                                CUBLAS_DEFAULT_MATH |
                                                CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
          "cublasSetMathMode");
}

CublasExecutor::~CublasExecutor() = default;

void CublasExecutor::Run(const GemmPlan& plan, const PlanPass& pass, const PlanPointers& pointers,
                         const CublasOptions& options, cudaStream_t stream) {
  // A new stream resets the workspace, so that goes second.
  Require(cublasSetStream(state_->cublas, stream), "cublasSetStream");
  Require(cublasSetWorkspace(state_->cublas, options.workspace,
                             static_cast<size_t>(options.workspace_bytes)),
          "cublasSetWorkspace");
  auto at = [&](BufferId id) { return pointers.Of(State::Buffer(plan, id)); };
  for (const Step& any : pass.steps) {
    if (const auto* gemm = std::get_if<GemmStep>(&any)) {
      if (options.lt && gemm->batch == 1) {
        state_->MultiplyByLt(plan, *gemm, pointers, options, stream);
      } else {
        state_->Multiply(plan, *gemm, pointers, options);
      }
    } else if (const auto* swap = std::get_if<SwapStep>(&any)) {
      Require(LaunchSwap(ElementBytes(State::Buffer(plan, swap->from).dtype), at(swap->from),
                         at(swap->to), swap->outer, swap->a, swap->b, swap->inner, stream),
              "the copy '" + swap->name + "' of " + plan.layer);
    } else {
      const auto& sum = std::get<SumStep>(any);
      Require(LaunchSum(State::Buffer(plan, sum.from).dtype, State::Buffer(plan, sum.to).dtype,
                        at(sum.from), at(sum.to), sum.slices, sum.elements, stream),
              "the sum '" + sum.name + "' of " + plan.layer);
    }
  }
}

CapturedPass::CapturedPass(CublasExecutor* executor, const GemmPlan& plan, const PlanPass& pass,
                           const PlanPointers& pointers, const CublasOptions& options,
                           cudaStream_t stream) {
  Require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a graph");
  cudaGraph_t graph = nullptr;
  try {
    executor->Run(plan, pass, pointers, options, stream);
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  Require(cudaStreamEndCapture(stream, &graph), "ending the capture of a graph");
  const cudaError_t made = cudaGraphInstantiate(&graph_, graph, 0);
  cudaGraphDestroy(graph);
  Require(made, "cudaGraphInstantiate");
}

CapturedPass::~CapturedPass() { cudaGraphExecDestroy(graph_); }

void CapturedPass::Launch(cudaStream_t stream) {
  Require(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch");
}

}  // namespace ttbench
