#include "kernels/cuda/cuda_device.h"

#include <gtest/gtest.h>

namespace ttbench {
namespace {

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": 64 warps, 32
// blocks and 65,536 registers a multiprocessor at 8.0 and 9.0; 164 and 228 KB of shared memory.
TEST(OccupancyTest, IsWhatTheTightestLimitLeaves) {
  struct Case {
    int64_t threads, registers, shared_bytes, on_a100, on_h100;
  };
  const Case cases[] = {
      {256, 32, 0, 8, 8},          // 2048 threads.
      {32, 16, 0, 32, 32},         // 32 blocks.
      {128, 32, 0, 16, 16},        // 2048 threads.
      {256, 128, 0, 2, 2},         // 256 * 128 * 2 registers.
      {256, 65, 0, 3, 3},          // 72 with the granularity: 28 warps.
      {96, 168, 0, 4, 4},          // 12 warps of 5376 registers: a quarter holds 3.
      {1024, 65, 0, 0, 0},         // 73,728 registers.
      {128, 32, 48 << 10, 3, 4},   // 49 KiB with what the system takes.
      {128, 32, 163 << 10, 1, 1},  // The most on 8.0.
      {128, 32, 227 << 10, 0, 1},  // The most on 9.0.
      {128, 32, (227 << 10) + 1, 0, 0},
      {128, 32, 81 << 10, 2, 2},  // 2 * 82 = 164; 3 * 82 > 228.
  };
  for (const Case& c : cases) {
    EXPECT_EQ(Occupancy(A100(), c.threads, c.registers, c.shared_bytes).blocks, c.on_a100)
        << c.threads << " threads, " << c.registers << " registers, " << c.shared_bytes;
    EXPECT_EQ(Occupancy(H100(), c.threads, c.registers, c.shared_bytes).blocks, c.on_h100)
        << c.threads << " threads, " << c.registers << " registers, " << c.shared_bytes;
  }
  EXPECT_STREQ(Occupancy(A100(), 256, 128, 0).limit, "registers");
  EXPECT_STREQ(Occupancy(A100(), 128, 32, 48 << 10).limit, "shared memory");
  EXPECT_EQ(Occupancy(A100(), 256, 128, 0).warps, 16);
}

}  // namespace
}  // namespace ttbench
