// Additive attention in tiles, forward and backward, without LibTorch:
//
//   score[t, l] = v . tanh(keys[l] + q[t]);  p = softmax over l;  c[t] = sum over l of p[l]
//   context[l]
//
// for each row of the batch. The tanh of one source state, H numbers, is the largest intermediate;
// tiles of kTileRows of them are scored, and c is rescaled as their maximum grows (the online
// softmax of Milakov and Gimelshein 2018, as in FlashAttention). Kept for the backward, beside c:
// the maximum and the sum of exponentials of each query. The backward computes every tanh again.
//
// Rows of the batch are independent, so any number of threads may share them; results do not
// depend on how.
#pragma once

#include <cstdint>

namespace ttbench {

struct FusedAdditiveShape {
  int64_t source_len;  // L
  int64_t queries;     // T
  int64_t hidden;      // H
};

// Of one row of the batch: keys, context [L, H]; q, c [T, H]; v [H]; statistics [T, 2].
template <typename Real>
struct FusedAdditiveRow {
  const Real* keys;
  const Real* context;
  const Real* q;
  const Real* v;
  Real* c;           // Written by the forward, read by the backward.
  Real* statistics;  // Likewise.
};

// Gradients of that row, all written, none added to: dkeys, dcontext [L, H], dq [T, H]; dv [H] is
// the row's part of it.
template <typename Real>
struct FusedAdditiveGradients {
  const Real* dc;  // [T, H], rows dc_stride apart.
  int64_t dc_stride;
  Real* dkeys;
  Real* dcontext;
  Real* dq;
  Real* dv;
};

// Elements of scratch that a thread's backward needs.
int64_t FusedAdditiveScratch(const FusedAdditiveShape& shape);

template <typename Real>
void FusedAdditiveForward(const FusedAdditiveShape& shape, const FusedAdditiveRow<Real>& row);
template <typename Real>
void FusedAdditiveBackward(const FusedAdditiveShape& shape, const FusedAdditiveRow<Real>& row,
                           const FusedAdditiveGradients<Real>& gradients, Real* scratch);

// The kernel's own tanh, elementwise: within 4 units in the last place.
template <typename Real>
void VectorTanh(const Real* x, int64_t count, Real* y);

}  // namespace ttbench
