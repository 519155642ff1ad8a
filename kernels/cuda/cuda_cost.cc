#include "kernels/cuda/cuda_cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/cuda/fused_cuda_params.h"

namespace ttbench {
namespace {

// The model's guesses, to be measured: cycles that a warp waits for the operands of a step, at a
// barrier, and for a tile's first bytes from memory.
constexpr double kLoadCycles = 30, kBarrierCycles = 40, kMemoryCycles = 800;

// Of row blocks by column blocks.
double Blocks(const CudaWork& work) {
  return std::ceil(work.rows / kRowBlock) * std::ceil(work.columns / kColumnBlock);
}

}  // namespace

CudaWork ProductWork(CudaPrecision precision, double rows, double columns, double depth,
                     int column_blocks, bool sums) {
  const double step = StepDepth(precision), bytes = static_cast<double>(StoredBytes(precision));
  CudaWork work;
  work.rows = rows;
  work.columns = columns;
  work.depth = depth;
  work.steps = std::ceil(depth / step);
  const double row_tiles = std::ceil(rows / kTileRows);
  const double column_tiles = std::ceil(columns / (column_blocks * kColumnBlock));
  work.tiles = row_tiles * column_tiles;
  work.left_bytes =
      std::ceil(rows / kRowBlock) * kRowBlock * work.steps * step * bytes * column_tiles;
  work.right_bytes =
      std::ceil(columns / kColumnBlock) * kColumnBlock * work.steps * step * bytes * row_tiles;
  const bool fma = precision == CudaPrecision::kFloat32;
  // Of a column block: 32 multiply-adds and 2 loads of a lane, or 2 products and a load. Of a
  // step: the core's loads, and addresses.
  work.instructions = fma ? 12 + 34 * column_blocks : 8 + 3 * column_blocks;
  work.output_accesses = Blocks(work) * 4 * (sums ? 4 : 2);  // Two lanes to a bank.
  return work;
}

CudaWork SumWork(CudaPrecision precision, double rows, double columns, double depth,
                 int column_blocks, double splits) {
  CudaWork work;
  work.rows = rows;
  work.columns = columns;
  work.depth = depth;
  const double row_tiles = std::ceil(rows / kTileRows);
  const double column_tiles = std::ceil(columns / (column_blocks * kColumnBlock));
  work.tiles = row_tiles * column_tiles * splits;
  work.steps = std::ceil(std::ceil(depth / StepDepth(precision)) / splits);
  // 128 bytes for each access of a warp: of a row or column block and a step, 4 and 2 (TF32);
  // 8 and 4, two lanes to a bank (bfloat16); 8 and 4 (float32).
  const double left = precision == CudaPrecision::kTf32       ? 4
                      : precision == CudaPrecision::kBfloat16 ? 16
                                                              : 8;
  const double right = precision == CudaPrecision::kFloat32 ? 4 : left / 2;
  const double all_steps = work.steps * splits;
  work.left_bytes = 128 * left * std::ceil(rows / kRowBlock) * column_tiles * all_steps;
  work.right_bytes = 128 * right * std::ceil(columns / kColumnBlock) * row_tiles * all_steps;
  work.instructions = precision == CudaPrecision::kFloat32 ? 30 + 40 * column_blocks
                      : precision == CudaPrecision::kTf32  ? 28 + 8 * column_blocks
                                                           : 40 + 20 * column_blocks;
  work.output_accesses = Blocks(work) * splits * 8 * 2;
  return work;
}

double CudaUnitModel::MacsPerCycle() const {
  const bool cores = precision_ != CudaPrecision::kFloat32;
  return device_.PeakFlops(precision_) * (cores ? device_.mma_fraction : 1) / 2 /
         static_cast<double>(device_.multiprocessors) / device_.clock_hz;
}

double CudaUnitModel::L2BytesPerCycle() const {
  return device_.l2_bytes_per_s / static_cast<double>(device_.multiprocessors) / device_.clock_hz;
}

void CudaUnitModel::AddWork(const CudaWork& work, double times) {
  const double step = StepDepth(precision_);
  const double issued =
      Blocks(work) * kRowBlock * kColumnBlock * std::ceil(work.depth / step) * step;
  const double instructions =
      work.tiles * (work.steps * work.instructions + work.tile_instructions);
  unit_->macs += times * work.rows * work.columns * work.depth;
  unit_->issued_macs += times * issued;
  unit_->core_cycles += times * issued / MacsPerCycle();
  unit_->issue_cycles += times * instructions / 4;
  unit_->shared_cycles +=
      times * ((work.left_bytes + work.right_bytes) / 128 + work.output_accesses);
  // A warp has a quarter of the multiprocessor to itself.
  const double warps = threads_ / 32;
  const double mac_cycles = 4 * issued / work.tiles / work.steps / MacsPerCycle();
  const double step_cycles = std::max(mac_cycles, work.instructions) + kLoadCycles;
  unit_->latency_cycles +=
      times * (std::ceil(work.tiles / warps) * (work.steps * step_cycles + work.tile_cycles) +
               kBarrierCycles);
}

void CudaUnitModel::AddMove(double vectors, double bytes, double instructions, double times,
                            bool waits) {
  unit_->issue_cycles += times * vectors / 32 * instructions / 4;
  unit_->shared_cycles += times * vectors * bytes / 128;
  unit_->latency_cycles += times * (std::ceil(vectors / threads_) * instructions * threads_ / 128 +
                                    (waits ? kMemoryCycles : 0));
}

void CudaUnitModel::WaitForCopies(double times) {
  unit_->latency_cycles = std::max(unit_->latency_cycles, times * kMemoryCycles);
}

double CudaUnitModel::Seconds(double rounds, double active) {
  unit_->cycles = std::max({unit_->core_cycles, unit_->shared_cycles, unit_->issue_cycles,
                            unit_->l2_bytes / L2BytesPerCycle()});
  return rounds * std::max(unit_->cycles * active, unit_->latency_cycles) / device_.clock_hz;
}

}  // namespace ttbench
