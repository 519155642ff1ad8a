// The model of time that the plans of the fused CUDA kernels share: what one unit of a thread
// block's work takes. docs/cuda.md has its assumptions.
#pragma once

#include <cstdint>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/precision.h"

namespace ttbench {

// What one unit of work takes, by the model.
struct FusedCudaCost {
  double macs = 0;            // Multiply-adds of the layer itself.
  double issued_macs = 0;     // With what fills tiles up.
  double core_cycles = 0;     // Of a multiprocessor's tensor cores or FMA units, at full rate.
  double shared_cycles = 0;   // Of its shared memory, at 128 bytes a cycle.
  double issue_cycles = 0;    // Of its schedulers, four instructions a cycle.
  double cycles = 0;          // The most of these and of its share of the L2's bandwidth.
  double latency_cycles = 0;  // From beginning to end of a unit with the multiprocessor to itself.
  double l2_bytes = 0;        // Cores and sums that go through the caches.
  double memory_bytes = 0;    // x, y, dy and dx.
};

// A product, or a sum for a gradient, as warps take it.
struct CudaWork {
  double rows = 0, columns = 0, depth = 0;
  double tiles = 0, steps = 0;             // Of warps; steps of each.
  double left_bytes = 0, right_bytes = 0;  // From shared memory or L1, over all tiles and steps.
  double instructions = 0;                 // Of a warp and a step.
  double output_accesses = 0;              // 4 B wide, of a warp.
  // Of a tile beside its steps: the indices of its results; cycles that it waits.
  double tile_instructions = 250, tile_cycles = 200;
};

// Of tiles of 2 row blocks x column_blocks. sums: the results are float32 and added to.
CudaWork ProductWork(CudaPrecision precision, double rows, double columns, double depth,
                     int column_blocks, bool sums);
// `depth` shared out to `splits` sums.
CudaWork SumWork(CudaPrecision precision, double rows, double columns, double depth,
                 int column_blocks, double splits);

// Adds up the unit of a thread block of `threads`.
class CudaUnitModel {
 public:
  CudaUnitModel(CudaPrecision precision, const CudaDevice& device, int64_t threads,
                FusedCudaCost* unit)
      : precision_(precision),
        device_(device),
        threads_(static_cast<double>(threads)),
        unit_(unit) {}

  // `times` runs of it, with a barrier after each.
  void AddWork(const CudaWork& work, double times);
  // Moves vectors of `bytes` between global and shared memory: an index for each, then a load and a
  // store. waits: for memory, with nothing else to do.
  void AddMove(double vectors, double bytes, double instructions, double times, bool waits);
  // Of `times` steps whose copies come one step ahead, none takes less than memory does.
  void WaitForCopies(double times);
  // Sets the unit's cycles, and returns the seconds of `rounds` units one after another on a
  // multiprocessor that `active` blocks share.
  double Seconds(double rounds, double active);

 private:
  // Rates of one multiprocessor, a cycle.
  double MacsPerCycle() const;
  double L2BytesPerCycle() const;

  CudaPrecision precision_;
  const CudaDevice& device_;
  double threads_;
  FusedCudaCost* unit_;
};

}  // namespace ttbench
