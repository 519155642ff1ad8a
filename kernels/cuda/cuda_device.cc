#include "kernels/cuda/cuda_device.h"

#include <algorithm>

namespace ttbench {
namespace {

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

CudaDevice A100() {
  CudaDevice device;
  device.name = "A100";
  device.compute_capability = 80;
  device.multiprocessors = 108;
  device.shared_bytes_per_multiprocessor = 164 << 10;
  device.shared_bytes_per_block = 163 << 10;
  device.l1_and_shared_bytes = 192 << 10;
  device.float32_flops = 19.5e12;
  device.tf32_flops = 156e12;
  device.bfloat16_flops = 312e12;
  device.memory_bytes_per_s = 2.039e12;
  device.clock_hz = 1.41e9;
  device.l2_bytes_per_s = 2560 * device.clock_hz;
  return device;
}

CudaDevice H100() {
  CudaDevice device;
  device.name = "H100";
  device.compute_capability = 90;
  device.multiprocessors = 132;
  device.shared_bytes_per_multiprocessor = 228 << 10;
  device.shared_bytes_per_block = 227 << 10;
  device.l1_and_shared_bytes = 256 << 10;
  device.float32_flops = 67e12;
  device.tf32_flops = 495e12;
  device.bfloat16_flops = 989e12;
  device.memory_bytes_per_s = 3.35e12;
  device.clock_hz = 1.83e9;
  device.l2_bytes_per_s = 2560 * device.clock_hz;
  device.mma_fraction = 0.62;
  return device;
}

CudaDevice H200() {
  CudaDevice device = H100();
  device.name = "H200";
  device.memory_bytes_per_s = 4.8e12;
  return device;
}

CudaOccupancy Occupancy(const CudaDevice& device, int64_t threads, int64_t registers_per_thread,
                        int64_t shared_bytes) {
  constexpr int64_t kWarp = 32, kQuarters = 4, kRegisters = 256, kSharedBytes = 128;
  if (shared_bytes > device.shared_bytes_per_block) return {0, 0, "shared memory"};
  const int64_t warps = (threads + kWarp - 1) / kWarp;
  const int64_t quarter_registers = device.registers_per_multiprocessor / kQuarters;
  const int64_t warp_registers = RoundUp(registers_per_thread * kWarp, kRegisters);
  const int64_t register_warps = quarter_registers / warp_registers * kQuarters;
  const int64_t block_shared = RoundUp(shared_bytes + device.reserved_shared_bytes, kSharedBytes);

  CudaOccupancy occupancy{device.blocks_per_multiprocessor, 0, "blocks"};
  const auto limit = [&](int64_t blocks, const char* what) {
    if (blocks < occupancy.blocks) occupancy = {blocks, 0, what};
  };
  limit(device.threads_per_multiprocessor / kWarp / warps, "threads");
  // A block must fit as if its warps came in fours.
  const bool fits =
      warp_registers * RoundUp(warps, kQuarters) <= device.registers_per_multiprocessor;
  limit(fits ? register_warps / warps : 0, "registers");
  limit(device.shared_bytes_per_multiprocessor / block_shared, "shared memory");
  occupancy.warps = occupancy.blocks * warps;
  return occupancy;
}

}  // namespace ttbench
