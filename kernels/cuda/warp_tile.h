// The inner loops of the fused kernels: a warp's tile of a product and of a sum, in registers.
#pragma once

#include "kernels/cuda/fragments.h"

namespace ttbench {

// Of 2 row blocks x kBlocks column blocks.
template <int kBlocks>
using WarpSums = float[kTileRowBlocks][kBlocks][4];

// sums[row, column] += sum over d of left[row, d] * right[column][d]. left: packed in fragments, in
// shared memory (kResident) or global; `at`: element where the tile's first row block begins.
// right: [column][depth] in shared memory from byte `from` on. second: the tile has a second row
// block. Columns from `columns` on repeat the last one. kRolled: one step at a time, in the fewest
// registers.
template <CudaPrecision kPrecision, bool kResident, int kBlocks, bool kRolled = false,
          typename Context, typename Packed>
TTBENCH_DEVICE void MultiplyWarpTile(Context& ctx, Packed packed, int64_t at, bool second,
                                     int depth, int from, int pitch, int column, int columns,
                                     int lane, WarpSums<kBlocks>& sums) {
  using Fragment = Fragments<kPrecision>;
  constexpr int kStep = Fragment::kStep, kBlock = kRowBlock * kStep;
  constexpr int kBytes = sizeof(typename Fragment::Stored);
  const int steps = (depth + kStep - 1) / kStep;
  int offset[kBlocks][Fragment::kColumns];
  TTBENCH_UNROLL
  for (int n = 0; n < kBlocks; ++n) {
    TTBENCH_UNROLL
    for (int i = 0; i < Fragment::kColumns; ++i) {
      // Beyond the last column its values are used again, and the result is dropped.
      const int c = column + n * kColumnBlock + Fragment::Column(lane, i);
      offset[n][i] = from + (c < columns ? c : columns - 1) * pitch * kBytes;
    }
  }
  const auto multiply = [&](int step) {
    typename Fragment::Left left[kTileRowBlocks];
    left[0] = Fragment::template LoadLeft<kResident>(ctx, packed, at + step * kBlock, lane);
    if (second) {
      left[1] =
          Fragment::template LoadLeft<kResident>(ctx, packed, at + (steps + step) * kBlock, lane);
    }
    TTBENCH_UNROLL
    for (int n = 0; n < kBlocks; ++n) {
      if (column + n * kColumnBlock >= columns) break;
      const typename Fragment::Right right =
          Fragment::LoadRight(ctx, offset[n], step * kStep, depth, lane);
      Fragment::Multiply(ctx, sums[0][n], left[0], right);
      if (second) Fragment::Multiply(ctx, sums[1][n], left[1], right);
    }
  };
  if constexpr (kRolled) {
    TTBENCH_ROLLED
    for (int step = 0; step < steps; ++step) multiply(step);
  } else {
    for (int step = 0; step < steps; ++step) multiply(step);
  }
}

// A matrix [index][..] in shared memory of which a sum takes columns `first` .. `limit` - 1.
struct SumOperand {
  int offset, pitch;  // In bytes and elements.
  int first, limit;
};

// sums[i, j] += sum over c of left[c][left.first + i] * right[c][right.first + j], for the steps
// begin .. end - 1 of the `count` indices c.
template <CudaPrecision kPrecision, int kBlocks, typename Context>
TTBENCH_DEVICE void SumWarpTile(Context& ctx, const SumOperand& left, const SumOperand& right,
                                int begin, int end, int count, int lane, WarpSums<kBlocks>& sums) {
  using Fragment = Fragments<kPrecision>;
  constexpr int kStep = Fragment::kStep;
  const bool second = left.first + kRowBlock < left.limit;
  for (int step = begin; step < end; ++step) {
    typename Fragment::Left operand[kTileRowBlocks];
    TTBENCH_UNROLL
    for (int m = 0; m < kTileRowBlocks; ++m) {
      if (m == 1 && !second) break;
      operand[m] = Fragment::SumLeft(ctx, left.offset, left.pitch, left.first + m * kRowBlock,
                                     left.limit, step * kStep, count, lane);
    }
    TTBENCH_UNROLL
    for (int n = 0; n < kBlocks; ++n) {
      if (right.first + n * kColumnBlock >= right.limit) break;
      const typename Fragment::Right other =
          Fragment::SumRight(ctx, right.offset, right.pitch, right.first + n * kColumnBlock,
                             right.limit, step * kStep, count, lane);
      Fragment::Multiply(ctx, sums[0][n], operand[0], other);
      if (second) Fragment::Multiply(ctx, sums[1][n], operand[1], other);
    }
  }
}

}  // namespace ttbench
