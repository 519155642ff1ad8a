// How the fused kernel cuts a TT layer into tiles: a pure function of the shape, the batch, the
// thread count and the machine's caches, shared by the kernel and its cost model. No LibTorch.
//
// A tile is `samples` rows of x, held with the sample innermost: every intermediate of a tile is
// [.., m_{k+1}, .., m_K, samples], so that each contraction is a product of small matrices whose
// contiguous dimension is long whatever the modes are. A tile is worked on in blocks of the last
// output mode and chunks of the first input mode, neither of which costs any work twice:
//
//   for each block of m_K, chunk of i_1:       T_K is the chunk's x; cores K .. 2 in turn:
//     T_{k-1}[i_1 .. i_{k-1}] = G_k T_k[i_1 .. i_{k-1}]      [r_{k-1} m_k, n_k r_k] [n_k r_k, R_k]
//     Y += G_1 T_1                                               R_k = m_{k+1} .. m_K samples
//
// Forward work is shared out by (tile, block), backward work by (tile, chunk), so that both cores
// have work at B = 1.
//
// A mirrored plan contracts from the first core to the last: it is a plan of the mirrored layer,
// whose tiles are packed and unpacked with their modes reversed, in the same moves that transpose.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/shape.h"

namespace ttbench {

struct FusedMachine {
  int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10;  // Data caches of one core.
  int64_t vector_bytes = 32;
};
// Of this machine, read once; the defaults where the system does not tell.
const FusedMachine& ThisFusedMachine();

enum class FusedPass { kForward, kBackward };

struct FusedPlan {
  FusedPass pass = FusedPass::kForward;
  bool mirrored = false;  // block is of m_1, chunk of n_K.
  int64_t batch = 0;
  int64_t samples = 1;  // Rows of x in a tile.
  int64_t block = 1;    // Of m_K, worked on together.
  int64_t chunk = 1;    // Of n_1, worked on together.
  int64_t tiles = 0, blocks = 1, chunks = 1;
  int64_t slots = 1;  // Threads that share the work, each with scratch of its own.
  double cycles = 0;  // The model's estimate for the slowest thread.

  // Scratch, in elements of the accumulation type.
  int64_t packed_elements = 0;    // The cores as the products want them, for all threads.
  int64_t slot_elements = 0;      // Intermediates of one thread.
  int64_t gradient_elements = 0;  // One thread's sums of the cores' gradients.
  int64_t scratch_elements() const {
    return packed_elements + slots * (slot_elements + gradient_elements);
  }
  int64_t units() const { return tiles * (pass == FusedPass::kForward ? blocks : chunks); }
};

// The layer that a plan contracts from its last core to its first: with its modes and ranks in
// reverse order if `mirrored`.
TtShape FusedOrder(const TtShape& shape, bool mirrored);

// The plan of least estimated time, in either order, whose scratch is at most what the dense layer
// has and this one has not: M N less the parameters, in elements, twice that in the backward, where
// both layers have gradients; of least scratch where none fits. real_bytes: of the accumulation
// type.
FusedPlan PlanFused(const TtShape& shape, int64_t batch, int64_t threads, int64_t real_bytes,
                    FusedPass pass, const FusedMachine& machine = ThisFusedMachine());

// The same with the tile given, for tests and tuning.
FusedPlan MakeFusedPlan(const TtShape& shape, int64_t batch, int64_t slots, int64_t real_bytes,
                        FusedPass pass, int64_t samples, int64_t block, int64_t chunk,
                        bool mirrored = false, const FusedMachine& machine = ThisFusedMachine());

// The offsets of a plan's scratch, in elements, cores, modes and ranks numbered as in `order`, the
// plan's FusedOrder; every buffer starts on a cache line.
struct FusedLayout {
  // Cores as [r_{k-1} m_k, n_k r_k]; the last one's rows (and its gradient's) in blocks of m_K. -1
  // where no product wants it.
  std::vector<int64_t> core;
  // The last core as [n_K, r_{K-1} m_K], columns in blocks of m_K: for single samples, or -1.
  int64_t last_transposed = -1;
  int64_t packed_elements = 0;
  // In a slot: x (forward: the tile's; backward: the chunk's), y or dy, dx, T_k and dT_k for k in
  // 1 .. K-1 (index k; index 0 unused), and room to transpose in.
  int64_t x = 0, y = 0, dx = 0, transposed = 0;
  std::vector<int64_t> partial, partial_gradient;
  int64_t slot_elements = 0;
  std::vector<int64_t> gradient;
  int64_t gradient_elements = 0;
};
FusedLayout LayOutFused(const TtShape& order, const FusedPlan& plan, int64_t real_bytes);

// Lanes of the middle cores' gradient that are transposed together.
constexpr int64_t kTransposedRows = 64;
// Whether the gradient of a core, [p, q] summed over `lanes`, is cheaper with its second factor
// transposed for a matrix product than as dot products. The constants are cycles per element moved
// and per 16 sums reduced, measured.
inline bool TransposedGradientPays(int64_t q, int64_t lanes) { return lanes < 9 * q; }

}  // namespace ttbench
