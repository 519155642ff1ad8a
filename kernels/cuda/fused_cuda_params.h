// What the fused CUDA kernels are told of a plan: sizes, strides and places, all worked out on the
// host. Trivially copyable and passed by value; FusedCudaPlan makes it.
//
// Every intermediate of a tile is a matrix [columns][depth] in shared memory, with the depth
// contiguous. Contracting core k of the layer from its last core to its first,
//
//   T_{k-1}[(o, m_k, l)][(n_{k-1}, a)] = sum over (n_k, b) of G_k[a, n_k, m_k, b]
//                                                        * T_k[(o, n_{k-1}, l)][(n_k, b)],
//
// is a product of a small matrix with rows (m_k, a) and a long one, whose result lies as the next
// product wants it. o is over samples and n_1 .. n_{k-2}, l over m_{k+1} .. m_K; T_K is x, T_0 is
// y. The gradients take the same way back with n and m exchanged:
//
//   dT_k[(o, n_k, l)][(m_{k+1}, b)] = sum over (m_k, a) of G_k[a, n_k, m_k, b]
//                                                        * dT_{k-1}[(o, m_{k+1}, l)][(m_k, a)],
//
// with o over samples and n_1 .. n_{k-1}, and l over m_{k+2} .. m_K; dT_0 is dy, dT_K is dx. T_k
// and dT_{k-1} have the same columns, over which their product is summed into core k's gradient.
#pragma once

#include <cstdint>

#include "kernels/cuda/precision.h"
#include "kernels/shape.h"

namespace ttbench {

// Division of 0 <= n < 2^31 by a constant (Granlund and Montgomery, 1994, figure 4.1).
struct FastDivisor {
  FastDivisor() = default;
  explicit FastDivisor(int64_t by) : divisor(static_cast<uint32_t>(by)) {
    while ((uint64_t{1} << shift) < divisor) ++shift;
    if (shift == 0) return;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << (31 + shift)) + divisor - 1) / divisor);
    --shift;
  }

  TTBENCH_HOST_DEVICE uint32_t Divide(uint32_t n) const {
    if (divisor == 1) return n;
#if defined(__CUDA_ARCH__)
    return __umulhi(n, multiplier) >> shift;
#else
    return static_cast<uint32_t>((static_cast<uint64_t>(n) * multiplier) >> 32) >> shift;
#endif
  }
  // n = quotient * divisor + remainder.
  TTBENCH_HOST_DEVICE uint32_t Divide(uint32_t n, uint32_t* remainder) const {
    const uint32_t quotient = Divide(n);
    *remainder = n - quotient * divisor;
    return quotient;
  }

  uint32_t divisor = 1, multiplier = 0, shift = 0;
};

// The tile of a warp: accumulators of row blocks x column blocks. Wide tiles reuse what they load
// of a core; the registers of the float32 path and of the gradients' sums leave room for less.
constexpr int kRowBlock = 16, kColumnBlock = 8;
constexpr int kTileRowBlocks = 2, kTileRows = kTileRowBlocks * kRowBlock;
constexpr int ProductColumnBlocks(CudaPrecision precision) {
  return precision == CudaPrecision::kFloat32 ? 4 : 8;
}
constexpr int kGradientColumnBlocks = 4;

// Depths that one step of a tile multiplies.
constexpr int StepDepth(CudaPrecision precision) {
  return precision == CudaPrecision::kFloat32 ? 4 : precision == CudaPrecision::kTf32 ? 8 : 16;
}

// to[(o, h, l)][(j, a)] = sum over d of core[(h, a), d] * from[(o, j, l)][d]. Offsets and pitches
// in shared memory count bytes and elements.
struct CudaProduct {
  int32_t rows = 0, depth = 0;  // rows: of (h, a).
  int32_t columns = 0;          // Of one sample.
  int32_t from = 0, from_pitch = 0;
  int32_t to = 0, to_pitch = 0;
  int32_t heights = 0;              // Of h.
  FastDivisor rank, lanes, joined;  // Of a, l and j.
  // The packed core: in global memory, in elements; a part is what one chunk or block needs. In
  // shared memory, in bytes, if the block holds all of it; else -1.
  int64_t packed = 0, packed_elements = 0;  // Of all parts.
  int32_t packed_part = 0;
  int32_t resident = -1;
  // For packing: depths are (mode, rank) of depth_rank ranks; how far a part moves each mode.
  int32_t depth_rank = 1, row_mode_part = 0, depth_mode_part = 0;
};

// core_gradient[row, d] += sum over columns of left[column][row] * right[column][d].
struct CudaGradient {
  int32_t rows = 0, depth = 0;  // Of one part.
  int32_t columns = 0;          // Of one sample.
  int32_t left = 0, left_pitch = 0;
  int32_t right = 0, right_pitch = 0;
  int32_t pitch = 0;                     // Depth of all parts.
  int32_t row_part = 0, depth_part = 0;  // Rows and depths to the next part.
  // The columns are shared out to `splits` sums, `size` elements apart. Where the sums are: in
  // shared memory, in bytes, or else -1 and in the block's partial sums, in elements.
  int32_t splits = 1, size = 0;
  int32_t resident = -1;
  int64_t partial = 0;
};

// How the elements of a sample's part (x's or dx's chunk, y's or dy's block), counted in the order
// of global memory, lie there and in shared memory.
struct CudaTileMap {
  int32_t count = 0;   // Of vectors in the part.
  int32_t vector = 1;  // Elements that lie together in both memories.
  FastDivisor per_sample;
  // Vector i begins at element (i / run) * run_stride + part * part_stride + (i % run) * vector.
  FastDivisor run;
  int64_t run_stride = 0, part_stride = 0;
  // In shared memory: sum of digit * stride, the fastest digit first; a sample is sample_stride on.
  int32_t digits = 0;
  int32_t sample_stride = 0;
  FastDivisor digit[kMaxCores];
  int32_t stride[kMaxCores] = {};
};

// Of G_k[a, n_k, m_k, b] in the layer's own core, whose ranks are exchanged in a mirrored plan.
struct CudaCoreStrides {
  int64_t a = 0, n = 0, m = 0, b = 0;
};

struct FusedCudaParams {
  int64_t batch = 0, in_features = 0, out_features = 0;
  int64_t units = 0;  // Of work: (tile, block) forward, (tile, chunk) backward.
  int32_t cores = 0, samples = 0, chunks = 1, blocks = 1;
  int64_t partial_elements = 0;  // Of one thread block.

  CudaTileMap x, y;    // y: of the sums that are written out.
  CudaTileMap dx, dy;  // Backward: dx: of the sums.
  int32_t x_offset = 0, y_offset = 0, dx_offset = 0, dy_offset = 0;

  // products[k] contracts core k; back[k] goes back through it. [cores of the plan's order]
  CudaProduct products[kMaxCores], back[kMaxCores];
  CudaGradient gradients[kMaxCores];
  CudaCoreStrides core_strides[kMaxCores];
  int32_t layer_core[kMaxCores] = {};  // The layer's core that is core k of the order.
};

}  // namespace ttbench
