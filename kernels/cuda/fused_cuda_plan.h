// How the fused CUDA kernels cut a TT layer into tiles and lay them out: a pure function of the
// shape, the batch, the precision and the device, tested without one. No CUDA, no LibTorch.
//
// A tile is `samples` rows of x. A thread block works on a tile in chunks of the first input mode
// and blocks of the last output mode, so that the tile's intermediates fit into shared memory;
// neither cuts the work it takes nor adds any (fused_body.h says in which order). A mirrored plan
// contracts from the first core to the last: it is a plan of the mirrored layer, whose tiles are
// loaded and stored with their modes reversed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/cuda/cuda_cost.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/fused_cuda_params.h"
#include "kernels/cuda/precision.h"
#include "kernels/shape.h"

namespace ttbench {

enum class CudaPass { kForward, kBackward };

// Registers of a thread that the fused kernels are held to, and the most threads of a block. Two
// blocks of the most threads fit a multiprocessor forward; backward, where shared memory holds
// fewer, one of them or three of 128 threads.
constexpr int64_t kFusedCudaForwardRegisters = 128, kFusedCudaBackwardRegisters = 168;
constexpr int64_t kFusedCudaThreads = 256;

struct FusedCudaTile {
  int64_t samples = 1;
  int64_t chunk = 1;                // Of n_1; divides it.
  int64_t block = 1;                // Of m_K; divides it.
  int64_t threads = 128;            // Of a thread block; a multiple of 32.
  bool resident_cores = false;      // Held in shared memory; else read through the caches.
  bool resident_gradients = false;  // The sums of the cores' gradients likewise.
};

struct FusedCudaPlan {
  CudaPass pass = CudaPass::kForward;
  CudaPrecision precision = CudaPrecision::kFloat32;
  bool mirrored = false;
  FusedCudaTile tile;
  int64_t tiles = 0;
  int64_t grid = 0;  // Thread blocks; each takes every grid-th unit.
  int64_t shared_bytes = 0;
  CudaOccupancy occupancy;
  int64_t carveout_percent = 0;  // Of the multiprocessor's shared memory, for that many blocks.
  FusedCudaCost unit;            // A tile's block forward, a tile's chunk backward.
  double seconds = 0;            // The model's estimate of the kernel's time.

  // Scratch in global memory: the packed cores, elements as stored; the blocks' sums of the cores'
  // gradients, float32.
  int64_t packed_elements = 0;
  int64_t partial_elements() const { return grid * params.partial_elements; }

  FusedCudaParams params;
};

// The plan with the tile given; `grid`: 0 for as many blocks as the device holds at once, or the
// units if fewer. std::nullopt, and the reason, if it does not
// fit the device.
std::optional<FusedCudaPlan> MakeFusedCudaPlan(const TtShape& shape, int64_t batch,
                                               CudaPrecision precision, CudaPass pass,
                                               const CudaDevice& device, bool mirrored,
                                               const FusedCudaTile& tile, int64_t grid = 0,
                                               std::string* reason = nullptr);

// The plan of least estimated time, in either order.
std::optional<FusedCudaPlan> PlanFusedCuda(const TtShape& shape, int64_t batch,
                                           CudaPrecision precision, CudaPass pass,
                                           const CudaDevice& device, std::string* reason = nullptr);

}  // namespace ttbench
