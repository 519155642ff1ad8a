// What a CUDA device offers a kernel: the limits its blocks share and its published rates.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cuda/precision.h"

namespace ttbench {

struct CudaDevice {
  std::string name;
  int compute_capability = 80;  // Ten times the capability's number.
  int64_t multiprocessors = 0;
  // CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
  int64_t shared_bytes_per_multiprocessor = 0;
  int64_t shared_bytes_per_block = 0;       // The most a kernel can opt in to.
  int64_t reserved_shared_bytes = 1 << 10;  // Of each block, by the system.
  int64_t l1_and_shared_bytes = 0;          // One memory, shared out between both.
  int64_t registers_per_multiprocessor = 65536;
  int64_t threads_per_multiprocessor = 2048;
  int64_t blocks_per_multiprocessor = 32;

  // Published peaks, dense (A100 data sheet and whitepaper, H100 and H200 data sheets).
  double float32_flops = 0, tf32_flops = 0, bfloat16_flops = 0;
  double memory_bytes_per_s = 0;
  double clock_hz = 0;  // Boost.
  // From the L2 cache: half of the 5120 bytes a clock of the A100 whitepaper, an assumption.
  double l2_bytes_per_s = 0;
  // Of the tensor cores' peak, what mma.sync reaches, an assumption: all on sm_80; on sm_90, where
  // only wgmma reaches it, 62% (after Luo et al., "Benchmarking and Dissecting the Nvidia Hopper
  // GPU Architecture via Microbenchmarking", 2024).
  double mma_fraction = 1;

  double PeakFlops(CudaPrecision precision) const {
    return precision == CudaPrecision::kFloat32 ? float32_flops
           : precision == CudaPrecision::kTf32  ? tf32_flops
                                                : bfloat16_flops;
  }
};

CudaDevice A100();  // SXM4, 80 GB.
CudaDevice H100();  // SXM5, 80 GB.
CudaDevice H200();  // SXM5, 141 GB.

// Blocks of a kernel that one multiprocessor holds at once; 0 if it cannot run.
struct CudaOccupancy {
  int64_t blocks = 0;
  int64_t warps = 0;
  const char* limit = "";  // "threads", "registers", "shared memory" or "blocks".
};
// CUDA C++ Best Practices Guide, "Calculating Occupancy", and the allocation rules of
// cuda_occupancy.h: registers are allocated 256 at a time to each warp, warps four at a time, one
// to each quarter of a multiprocessor; shared memory 128 bytes at a time.
CudaOccupancy Occupancy(const CudaDevice& device, int64_t threads, int64_t registers_per_thread,
                        int64_t shared_bytes);

}  // namespace ttbench
