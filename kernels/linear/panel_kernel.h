// The panel path on raw pointers: a layer of two cores, L [n_L, m_L, r] and R [r, n_R, m_R], whose
// matrix is rebuilt panel by panel in the cache and multiplied at once; forward and backward,
// gradients projected on the cores panel by panel. Cheaper than contracting where r^2 + 2 r > d^2.
// No LibTorch; the caller brings the scratch.
//
//   P[i_L, n_R, m_R] = L[i_L, j_L, :] R     for a j_L, some i_L and rows of n_R: a product
//   y[:, j_L, :] += x[:, i_L, rows] P[i_L]
//
// Forward work is shared out by j_L, backward work by rows of n_R, so that nothing is rebuilt twice
// and only the gradient of L is summed over threads.
#pragma once

#include <cstdint>

#include "kernels/linear/fused_plan.h"

namespace ttbench {

struct PanelPlan {
  FusedPass pass = FusedPass::kForward;
  int64_t batch = 0;
  int64_t left_in = 1, left_out = 1, right_in = 1, right_out = 1, rank = 1;
  int64_t rows = 1;   // Of n_R, in a panel.
  int64_t outer = 1;  // Of n_L forward, of m_L backward, in a panel.
  int64_t slots = 1;  // Threads that share the work.

  int64_t slot_elements = 0;      // One thread's panels.
  int64_t gradient_elements = 0;  // One thread's gradient of L.

  int64_t in_features() const { return left_in * right_in; }
  int64_t out_features() const { return left_out * right_out; }
};

// Panels take a third of the second-level cache.
PanelPlan PlanPanels(const TtShape& two_cores, int64_t batch, int64_t threads, int64_t real_bytes,
                     FusedPass pass, const FusedMachine& machine = ThisFusedMachine());

// x is [B, N], y is [B, M], row-major; `slots` is slot_elements for each slot. Slots run in any
// order or at once.
template <typename Real>
void PanelForward(const PanelPlan& plan, int64_t slot, const Real* left, const Real* right,
                  const Real* x, Real* y, Real* slots);
// Writes all of dx and of dright; leaves the slot's part of the gradient of L in `gradients`,
// gradient_elements for each slot.
template <typename Real>
void PanelBackward(const PanelPlan& plan, int64_t slot, const Real* left, const Real* right,
                   const Real* x, const Real* dy, Real* dx, Real* dright, Real* slots,
                   Real* gradients);
// dleft = the sum over the slots, in their order.
template <typename Real>
void WriteLeftGradient(const PanelPlan& plan, const Real* gradients, Real* dleft);

}  // namespace ttbench
