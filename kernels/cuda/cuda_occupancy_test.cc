// Occupancy() against the calculator that NVIDIA ships with its toolkit.
#include <cuda_occupancy.h>
#include <gtest/gtest.h>

#include "kernels/cuda/cuda_device.h"

namespace ttbench {
namespace {

int PublishedBlocks(const CudaDevice& device, int threads, int registers, int shared_bytes) {
  cudaOccDeviceProp properties = {};
  properties.computeMajor = device.compute_capability / 10;
  properties.computeMinor = device.compute_capability % 10;
  properties.maxThreadsPerBlock = 1024;
  properties.maxThreadsPerMultiprocessor = static_cast<int>(device.threads_per_multiprocessor);
  properties.regsPerBlock = properties.regsPerMultiprocessor =
      static_cast<int>(device.registers_per_multiprocessor);
  properties.warpSize = 32;
  properties.sharedMemPerBlock = 48 << 10;
  properties.sharedMemPerMultiprocessor = device.shared_bytes_per_multiprocessor;
  properties.numSms = static_cast<int>(device.multiprocessors);
  properties.sharedMemPerBlockOptin = device.shared_bytes_per_block;
  properties.reservedSharedMemPerBlock = device.reserved_shared_bytes;
  cudaOccFuncAttributes attributes = {};
  attributes.maxThreadsPerBlock = 1024;
  attributes.numRegs = registers;
  attributes.sharedSizeBytes = 0;
  attributes.partitionedGCConfig = PARTITIONED_GC_OFF;
  attributes.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  attributes.maxDynamicSharedSizeBytes = device.shared_bytes_per_block;
  attributes.numBlockBarriers = 1;
  cudaOccDeviceState state = {};
  cudaOccResult result = {};
  EXPECT_EQ(cudaOccMaxActiveBlocksPerMultiprocessor(&result, &properties, &attributes, &state,
                                                    threads, shared_bytes),
            CUDA_OCC_SUCCESS);
  return result.activeBlocksPerMultiprocessor;
}

TEST(OccupancyTest, IsWhatNvidiasCalculatorSays) {
  for (const CudaDevice& device : {A100(), H100(), H200()}) {
    for (int threads = 32; threads <= 512; threads += 32) {
      for (int registers : {16, 32, 40, 64, 65, 80, 96, 101, 128, 168, 255}) {
        for (int shared = 0; shared <= device.shared_bytes_per_block; shared += 5000) {
          ASSERT_EQ(Occupancy(device, threads, registers, shared).blocks,
                    PublishedBlocks(device, threads, registers, shared))
              << device.name << " " << threads << " threads, " << registers << " registers, "
              << shared << " bytes";
        }
      }
    }
  }
}

}  // namespace
}  // namespace ttbench
