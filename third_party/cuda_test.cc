#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "third_party/saxpy.h"

TEST(CudaTest, RuntimeIsTheToolkitsOwn) {
  int version = 0;
  ASSERT_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, CUDART_VERSION);
}

TEST(CudaTest, SaxpyOnTheDeviceOrAnErrorWithoutOne) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    EXPECT_NE(Saxpy(1, 2.0f, nullptr, nullptr), cudaSuccess);
    GTEST_SKIP() << "no CUDA device";
  }
  const int n = 1000;
  std::vector<float> host(2 * n, 1.0f);
  float* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, host.size() * sizeof(float)), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice),
            cudaSuccess);
  ASSERT_EQ(Saxpy(n, 2.0f, device, device + n), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(host.data(), device, host.size() * sizeof(float), cudaMemcpyDeviceToHost),
            cudaSuccess);
  cudaFree(device);
  for (int i = 0; i < n; ++i) EXPECT_EQ(host[n + i], 3.0f) << i;
}
