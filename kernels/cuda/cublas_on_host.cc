// Stands in for the parts of cuBLAS and cublasLt that cublas_executor.cc calls, and for the
// launches of plan_kernels.h, on the host's memory: column-major products by loops, as the cuBLAS
// library guide defines them. For testing, without a device, what the executor asks cuBLAS for. It
// says nothing of cuBLAS itself.
#include <cublasLt.h>
#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/plan_kernels.h"

namespace {

// Column-major: element (i, j) of a matrix is data[i + j ld].
struct Matrices {
  const void* data;
  bool transposed;
  int64_t ld, stride;
};

template <typename Element>
void Multiply(int64_t m, int64_t n, int64_t k, const Element alpha, const Matrices& a,
              const Matrices& b, const Element beta, void* c, int64_t ldc, int64_t stride_c,
              int64_t batch) {
  auto at = [](const Matrices& of, int64_t matrix, int64_t i, int64_t j) {
    if (of.transposed) std::swap(i, j);
    return static_cast<const Element*>(of.data)[matrix * of.stride + i + j * of.ld];
  };
  for (int64_t x = 0; x < batch; ++x) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) {
        Element sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += at(a, x, i, p) * at(b, x, p, j);
        Element& to = static_cast<Element*>(c)[x * stride_c + i + j * ldc];
        // beta = 0: what was there is not read (it may be NaN).
        to = alpha * sum + (beta == 0 ? 0 : beta * to);
      }
    }
  }
}

cublasStatus_t Run(cudaDataType type, cublasComputeType_t compute, int64_t m, int64_t n, int64_t k,
                   const void* alpha, const Matrices& a, const Matrices& b, const void* beta,
                   void* c, int64_t ldc, int64_t stride_c, int64_t batch) {
  // The leading dimensions that cuBLAS refuses.
  const bool fits = a.ld >= std::max<int64_t>(1, a.transposed ? k : m) &&
                    b.ld >= std::max<int64_t>(1, b.transposed ? n : k) && ldc >= m;
  if (!fits || batch > 65535) return CUBLAS_STATUS_INVALID_VALUE;
  if (type == CUDA_R_32F && compute == CUBLAS_COMPUTE_32F) {
    Multiply(m, n, k, *static_cast<const float*>(alpha), a, b, *static_cast<const float*>(beta), c,
             ldc, stride_c, batch);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (type == CUDA_R_64F && compute == CUBLAS_COMPUTE_64F) {
    Multiply(m, n, k, *static_cast<const double*>(alpha), a, b, *static_cast<const double*>(beta),
             c, ldc, stride_c, batch);
    return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

// What cublasLt's handles point to.
struct Product {
  cublasComputeType_t compute;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
};
struct Layout {
  cudaDataType type;
  int64_t rows, columns, ld;
};

Product* Of(cublasLtMatmulDesc_t handle) { return reinterpret_cast<Product*>(handle); }
Layout* Of(cublasLtMatrixLayout_t handle) { return reinterpret_cast<Layout*>(handle); }

int g_handle;

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(&g_handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "invalid value" : "not supported";
}

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n, int64_t k,
    const void* alpha, const void* a, cudaDataType type_a, int64_t lda, long long stride_a,
    const void* b, cudaDataType type_b, int64_t ldb, long long stride_b, const void* beta, void* c,
    cudaDataType type_c, int64_t ldc, long long stride_c, int64_t batch,
    cublasComputeType_t compute, cublasGemmAlgo_t) {
  if (type_a != type_b || type_a != type_c) return CUBLAS_STATUS_NOT_SUPPORTED;
  return Run(type_a, compute, m, n, k, alpha, {a, op_a == CUBLAS_OP_T, lda, stride_a},
             {b, op_b == CUBLAS_OP_T, ldb, stride_b}, beta, c, ldc, stride_c, batch);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&g_handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                                        cudaDataType) {
  *handle = reinterpret_cast<cublasLtMatmulDesc_t>(new Product{compute});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  delete Of(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t) {
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSA)
    Of(handle)->a = *static_cast<const cublasOperation_t*>(value);
  if (attribute == CUBLASLT_MATMUL_DESC_TRANSB)
    Of(handle)->b = *static_cast<const cublasOperation_t*>(value);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  *handle = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  delete Of(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* handle) {
  *handle = reinterpret_cast<cublasLtMatmulPreference_t>(&g_handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t[], int* found) {
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

// The sizes are those of the layouts, which must agree: as cublasLt has it.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t handle, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t) {
  const Product& product = *Of(handle);
  const Layout &la = *Of(layout_a), &lb = *Of(layout_b), &lc = *Of(layout_c);
  const bool ta = product.a == CUBLAS_OP_T, tb = product.b == CUBLAS_OP_T;
  const int64_t m = ta ? la.columns : la.rows, k = ta ? la.rows : la.columns;
  const int64_t kb = tb ? lb.columns : lb.rows, n = tb ? lb.rows : lb.columns;
  if (c != d || k != kb || lc.rows != m || lc.columns != n || la.type != lb.type ||
      la.type != lc.type || la.ld < la.rows || lb.ld < lb.rows) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return Run(la.type, product.compute, m, n, k, alpha, {a, ta, la.ld, 0}, {b, tb, lb.ld, 0}, beta,
             d, lc.ld, 0, 1);
}

}  // extern "C"

namespace ttbench {

cudaError_t LaunchSwap(int64_t element_bytes, const void* from, void* to, int64_t outer, int64_t a,
                       int64_t b, int64_t inner, cudaStream_t) {
  const int64_t run = inner * element_bytes;
  char* next = static_cast<char*>(to);
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t j = 0; j < b; ++j)
      for (int64_t i = 0; i < a; ++i, next += run)
        std::copy_n(static_cast<const char*>(from) + ((o * a + i) * b + j) * run, run, next);
  return cudaSuccess;
}

namespace {

template <typename Element>
void Sum(const void* from, void* to, int64_t slices, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    Element sum = 0;
    for (int64_t s = 0; s < slices; ++s) sum += static_cast<const Element*>(from)[s * elements + i];
    static_cast<Element*>(to)[i] = sum;
  }
}

}  // namespace

cudaError_t LaunchSum(DType from_type, DType to_type, const void* from, void* to, int64_t slices,
                      int64_t elements, cudaStream_t) {
  if (from_type != to_type) return cudaErrorInvalidValue;
  from_type == DType::kFloat64 ? Sum<double>(from, to, slices, elements)
                               : Sum<float>(from, to, slices, elements);
  return cudaSuccess;
}

}  // namespace ttbench
