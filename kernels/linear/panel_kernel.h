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
//
// bfloat16 is what x, y and their gradients are stored in; cores and sums are float32. A block of
// rows at a time is widened, worked on as float32, and its results narrowed, each of them once. All
// panels are rebuilt for each block: a block has so many rows that this is a small part of the
// work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/linear/fused_plan.h"
#include "kernels/linear/small_gemm.h"

namespace ttbench {

// What sums of products of Elements (float, double or BFloat16) are in, and the cores.
template <typename Element>
using PanelReal = std::conditional_t<std::is_same_v<Element, double>, double, float>;

struct PanelPlan {
  FusedPass pass = FusedPass::kForward;
  int64_t batch = 0;
  int64_t block = 0;  // Rows of x worked on together: all of them, or those widened at a time.
  int64_t left_in = 1, left_out = 1, right_in = 1, right_out = 1, rank = 1;
  int64_t rows = 1;   // Of n_R, in a panel.
  int64_t outer = 1;  // Of n_L forward, of m_L backward, in a panel.
  int64_t slots = 1;  // Threads that share the work.

  // Scratch, in elements of PanelReal.
  int64_t slot_elements = 0;      // One thread's panels.
  int64_t gradient_elements = 0;  // One thread's gradient of L.
  int64_t widened_elements = 0;   // A block of x and of y; backward of x, dy and dx.

  int64_t in_features() const { return left_in * right_in; }
  int64_t out_features() const { return left_out * right_out; }
};

// Panels take a third of the second-level cache. element_bytes: of x, 2 for bfloat16.
PanelPlan PlanPanels(const TtShape& two_cores, int64_t batch, int64_t threads,
                     int64_t element_bytes, FusedPass pass,
                     const FusedMachine& machine = ThisFusedMachine());

// Scratch of the plan's sizes: slots * slot_elements; slots * gradient_elements, of the backward;
// widened_elements.
template <typename Real>
struct PanelScratch {
  Real* slots = nullptr;
  Real* gradients = nullptr;
  Real* widened = nullptr;
};

// The work of one thread on `count` rows of x. Slots run in any order or at once.
template <typename Real>
void PanelForwardSlot(const PanelPlan& plan, int64_t slot, int64_t count, const Real* left,
                      const Real* right, const Real* x, Real* y, Real* slots);
// Writes all of dx; writes dright and the slot's part of the gradient of L, or adds to them.
template <typename Real>
void PanelBackwardSlot(const PanelPlan& plan, int64_t slot, int64_t count, bool add,
                       const Real* left, const Real* right, const Real* x, const Real* dy, Real* dx,
                       Real* dright, Real* slots, Real* gradients);
// dleft = the sum over the slots, in their order.
template <typename Real>
void WriteLeftGradient(const PanelPlan& plan, const Real* gradients, Real* dleft);

// A slot's share of widening or narrowing.
template <typename From, typename To>
void ConvertPart(const PanelPlan& plan, int64_t slot, int64_t elements, const From* from, To* to) {
  const int64_t begin = elements * slot / plan.slots, end = elements * (slot + 1) / plan.slots;
  if constexpr (std::is_same_v<To, float>) {
    PackTile(from + begin, end - begin, 1, end - begin, 1, to + begin);
  } else {
    UnpackTile(from + begin, 1, end - begin, 1, to + begin, end - begin);
  }
}

// The passes. x is [B, N], y is [B, M], row-major. run(count, f) runs f(0) .. f(count - 1), in any
// order or at once.
template <typename Element, typename Run>
void PanelForward(const PanelPlan& plan, const PanelReal<Element>* left,
                  const PanelReal<Element>* right, const Element* x, Element* y,
                  const PanelScratch<PanelReal<Element>>& scratch, const Run& run) {
  for (int64_t row = 0; row < plan.batch; row += plan.block) {
    const int64_t count = std::min(plan.block, plan.batch - row);
    const Element* x_rows = x + row * plan.in_features();
    Element* y_rows = y + row * plan.out_features();
    if constexpr (std::is_same_v<Element, BFloat16>) {
      float* wide_x = scratch.widened;
      float* wide_y = wide_x + plan.block * plan.in_features();
      run(plan.slots, [&](int64_t slot) {
        ConvertPart(plan, slot, count * plan.in_features(), x_rows, wide_x);
      });
      run(plan.slots, [&](int64_t slot) {
        PanelForwardSlot(plan, slot, count, left, right, wide_x, wide_y, scratch.slots);
      });
      run(plan.slots, [&](int64_t slot) {
        ConvertPart(plan, slot, count * plan.out_features(), wide_y, y_rows);
      });
    } else {
      run(plan.slots, [&](int64_t slot) {
        PanelForwardSlot(plan, slot, count, left, right, x_rows, y_rows, scratch.slots);
      });
    }
  }
}

// Writes all of dx, dleft and dright.
template <typename Element, typename Run>
void PanelBackward(const PanelPlan& plan, const PanelReal<Element>* left,
                   const PanelReal<Element>* right, const Element* x, const Element* dy,
                   Element* dx, PanelReal<Element>* dleft, PanelReal<Element>* dright,
                   const PanelScratch<PanelReal<Element>>& scratch, const Run& run) {
  int64_t row = 0;
  do {  // Without rows as well: the cores' gradients are zeros then.
    const int64_t count = std::min(plan.block, plan.batch - row);
    const Element* x_rows = x + row * plan.in_features();
    const Element* dy_rows = dy + row * plan.out_features();
    Element* dx_rows = dx + row * plan.in_features();
    if constexpr (std::is_same_v<Element, BFloat16>) {
      float* wide_x = scratch.widened;
      float* wide_dx = wide_x + plan.block * plan.in_features();
      float* wide_dy = wide_dx + plan.block * plan.in_features();
      run(plan.slots, [&](int64_t slot) {
        ConvertPart(plan, slot, count * plan.in_features(), x_rows, wide_x);
        ConvertPart(plan, slot, count * plan.out_features(), dy_rows, wide_dy);
      });
      run(plan.slots, [&](int64_t slot) {
        PanelBackwardSlot(plan, slot, count, row > 0, left, right, wide_x, wide_dy, wide_dx, dright,
                          scratch.slots, scratch.gradients);
      });
      run(plan.slots, [&](int64_t slot) {
        ConvertPart(plan, slot, count * plan.in_features(), wide_dx, dx_rows);
      });
    } else {
      run(plan.slots, [&](int64_t slot) {
        PanelBackwardSlot(plan, slot, count, row > 0, left, right, x_rows, dy_rows, dx_rows, dright,
                          scratch.slots, scratch.gradients);
      });
    }
    row += plan.block;
  } while (row < plan.batch);
  WriteLeftGradient(plan, scratch.gradients, dleft);
}

}  // namespace ttbench
