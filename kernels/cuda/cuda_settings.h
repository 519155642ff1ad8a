// What is chosen for a whole process on a CUDA device. Set before the first product, not while one
// runs.
#pragma once

#include <cstdint>

namespace ttbench {

// NVIDIA's advice from compute capability 9.0 on (cuBLAS library guide, cublasSetWorkspace).
inline constexpr int64_t kDefaultCublasWorkspaceBytes = int64_t{32} << 20;

struct CudaSettings {
  // float32 products on tensor cores, their operands rounded to TF32.
  bool tf32 = false;
  // What a plan of products gives cuBLAS to work in.
  int64_t cublas_workspace_bytes = kDefaultCublasWorkspaceBytes;
};

inline CudaSettings& CurrentCudaSettings() {
  static CudaSettings settings;
  return settings;
}

}  // namespace ttbench
