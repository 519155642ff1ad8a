#include "third_party/saxpy.h"

namespace {

__global__ void SaxpyKernel(int n, float a, const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

}  // namespace

cudaError_t Saxpy(int n, float a, const float* x, float* y) {
  SaxpyKernel<<<(n + 255) / 256, 256>>>(n, a, x, y);
  return cudaGetLastError();
}
