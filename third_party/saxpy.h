// The smallest CUDA kernel, to show that the toolkit compiles and links.
#pragma once

#include <cuda_runtime.h>

// y += a * x for n elements in device memory.
cudaError_t Saxpy(int n, float a, const float* x, float* y);
