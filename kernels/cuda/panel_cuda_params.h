// What the CUDA panel kernels are told of a plan: sizes, strides and places, all worked out on the
// host. Trivially copyable and passed by value; PanelCudaPlan makes it.
//
// The cores on either side of a cut are joined into two, L [n_L, m_L, r] and R [r, n_R, m_R]. A
// panel of the matrix is what a few (i_L, j_L) of L and a few (i_R, j_R) of R, its pairs p and q,
// make by one small product:
//
//   W[(j_L, j_R), (i_L, i_R)] = sum over a of L[p, a] * R[a, q].
//
// Multiplied by x it adds to y; by dy, with inputs and outputs exchanged, to dx. A panel of the
// matrix's gradient, dW = sum over b of dy[b, j] x[b, i], is projected on the joined cores:
//
//   dL[p, a] += sum over q of dW[p, q] R[a, q],   dR[a, q] += sum over p of dW[p, q] L[p, a].
#pragma once

#include <cstdint>

#include "kernels/cuda/fused_cuda_params.h"

namespace ttbench {

// The most threads of a panel kernel's block, and registers of each: one such block fills a
// multiprocessor.
constexpr int64_t kPanelCudaThreads = 384, kPanelCudaRegisters = 168;

// Column blocks of a warp's tile while a panel is rebuilt: the sums of y take the other registers.
constexpr int kRebuildColumnBlocks = 2;

// One of the two joined cores, cut into parts of in_tile inputs by out_tile outputs. Pairs of a
// part: the input is the faster. Parts: the output's tile is.
struct PanelPart {
  int32_t in_tile = 1, out_tile = 1, in_tiles = 1, out_tiles = 1;
  FastDivisor in;               // in_tile
  int64_t packed = 0;           // In the packed cores, in elements.
  int32_t packed_elements = 0;  // Of a part.
  TTBENCH_HOST_DEVICE int32_t pairs() const { return in_tile * out_tile; }
  TTBENCH_HOST_DEVICE int32_t parts() const { return in_tiles * out_tiles; }
};

// How the part of rows of a tensor that belongs to a panel (left tile x right tile of features)
// comes to [row][feature] in shared memory.
struct PanelTileMap {
  int64_t features = 0;                       // Of a row of the tensor.
  int64_t left_stride = 0, right_stride = 0;  // To the next tile of L's and R's modes.
  int64_t run_stride = 0;                     // Runs lie apart in the tensor, joined in the tile.
  int32_t vector = 1;                         // Elements copied at once.
  FastDivisor per_row, run;                   // Vectors of a row of the tile, of a run.
  int32_t pitch = 0;                          // Of the tile, in elements.
};

// y[b, out] = sum over in of W[out, in] x[b, in], or dx from dy with inputs and outputs exchanged.
// A unit is `samples` rows by one part's outputs. Offsets in shared memory are in bytes; what is
// there twice is copied ahead.
struct PanelMultiply {
  int64_t batch = 0, units = 0, out_features = 0;
  int32_t samples = 0, out_blocks = 1, panels = 1, rank = 1;
  PanelPart left, right;        // packed: [pairs, rank] in fragments; [pair][right_pitch].
  int32_t rows = 0, depth = 0;  // Of a panel: outputs and inputs.
  FastDivisor right_out;        // R's outputs of a panel,
  int32_t right_features = 1;   // and all of R's.
  PanelTileMap x;
  int32_t row_tiles = 1;  // Of warps; the others are along the samples.
  int32_t right_pitch = 0;
  int32_t x_offset[2] = {}, right_offset[2] = {}, panel_offset = 0;
  int32_t panel_bytes = 0;
};

// A unit is a panel of the gradient, summed over one of `splits` parts of the batch.
struct PanelGradient {
  int64_t batch = 0, units = 0, steps = 0;
  int32_t samples = 0, splits = 1, rank = 1;  // samples: of a step.
  PanelPart left, right;                      // packed: [rank, pairs] in fragments.
  int32_t rows = 0, columns = 0;              // Inputs and outputs of a panel.
  FastDivisor right_in, right_out;            // R's of a panel.
  PanelTileMap x, dy;
  int32_t row_tiles = 1;
  int32_t x_offset[2] = {}, dy_offset[2] = {};
  // The panel as [p][q] and as [q][p], where x and dy were.
  int32_t by_left_offset = 0, by_left_pitch = 0, by_right_offset = 0, by_right_pitch = 0;
  // Partial sums, in floats: [part of R, split] sums of L's size, [part of L, split] of R's. An
  // element of a sum is [part][pair][a].
  int64_t left_partial = 0, right_partial = 0;
  int64_t left_size = 0, right_size = 0;
};

// out[c, (i, i'), (j, j'), b] = sum over a of left[c, i, j, a] core[a, i', j', b]. Places are in
// floats; gradients lie `gradients` behind their values.
struct PanelJoin {
  int64_t left = 0, core = 0, out = 0;
  int32_t lead = 1, in = 1, out_modes = 1, rank = 1;
  int32_t core_in = 1, core_out = 1, core_rank = 1;
  TTBENCH_HOST_DEVICE int32_t left_elements() const { return lead * in * out_modes * rank; }
  TTBENCH_HOST_DEVICE int32_t core_elements() const {
    return rank * core_in * core_out * core_rank;
  }
  TTBENCH_HOST_DEVICE int32_t elements() const {
    return lead * in * core_in * out_modes * core_out * core_rank;
  }
};

// A step of both joined cores at once: neither needs the other.
struct PanelJoins {
  int32_t count = 0;
  PanelJoin join[2];
};

// Packs one joined core. Strides are those of its values.
struct PanelPack {
  enum Layout : int32_t {
    kPairsByRank,  // Fragments, rows are pairs.
    kRankByPairs,  // Fragments, rows are ranks.
    kColumns,      // [pair][pitch].
  };
  Layout layout = kPairsByRank;
  int32_t rank = 1, pitch = 0;
  PanelPart part;
  int64_t values = 0;  // In floats.
  int64_t stride_a = 0, stride_in = 0, stride_out = 0;
};

constexpr int kMaxPanelPacks = 4;

struct PanelCudaParams {
  int32_t cores = 0;
  // Core k's values, in floats: core_begin[k] .. core_begin[k + 1].
  int64_t core_begin[kMaxCores + 1] = {};
  int64_t gradients = 0;  // From a value to its gradient.
  int32_t packs = 0;
  PanelPack pack[kMaxPanelPacks];
  PanelMultiply multiply;
  PanelGradient gradient;  // Backward: of the last two packs, L and R.
};

}  // namespace ttbench
