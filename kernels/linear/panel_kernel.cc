#include "kernels/linear/panel_kernel.h"

#include <algorithm>
#include <cmath>

#include "kernels/linear/small_gemm.h"

namespace ttbench {
namespace {

// Rows of x in a product.
constexpr int64_t kBatchRows = 240;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t RoundUpToLine(int64_t elements, int64_t real_bytes) {
  return RoundUp(elements, 64 / real_bytes);
}

}  // namespace

PanelPlan PlanPanels(const TtShape& two_cores, int64_t batch, int64_t threads,
                     int64_t element_bytes, FusedPass pass, const FusedMachine& machine) {
  const int64_t real_bytes = std::max<int64_t>(element_bytes, sizeof(float));
  PanelPlan plan;
  plan.pass = pass;
  plan.batch = batch;
  plan.left_in = two_cores.n(0);
  plan.left_out = two_cores.m(0);
  plan.right_in = two_cores.n(1);
  plan.right_out = two_cores.m(1);
  plan.rank = two_cores.right_rank(0);
  const bool backward = pass == FusedPass::kBackward;
  const bool widens = element_bytes < real_bytes;
  // Rebuilding takes r multiply-adds an element of the matrix (3 r in the backward), multiplying
  // one for each row (two): with 8 r rows, an eighth (three sixteenths) of the work.
  plan.block = widens ? std::min(batch, RoundUp(8 * plan.rank, kBatchRows)) : batch;
  const int64_t panel = std::max<int64_t>(1, machine.l2_bytes / 3 / real_bytes);
  const int64_t shared = backward ? plan.right_in : plan.left_out;
  plan.slots = std::max<int64_t>(1, std::min(threads, shared));
  const int64_t own_rows = backward ? (plan.right_in + plan.slots - 1) / plan.slots : plan.right_in;
  // A panel of few i_L (or j_L) reads all of R again for few products; one of few rows reads y
  // again. R comes from memory, r elements a lane and twice more in the backward; y, batch
  // elements, mostly from the second-level cache, at about a quarter of the cost.
  const int64_t most_outer = backward ? plan.left_out : plan.left_in;
  const double lines = static_cast<double>(panel / plan.right_out);
  const double r = static_cast<double>(plan.rank * (backward ? 3 : 1));
  const double best_outer =
      std::sqrt(2 * lines * r / static_cast<double>(std::max<int64_t>(1, plan.block)));
  plan.outer =
      std::clamp(std::max(static_cast<int64_t>(best_outer), panel / plan.right_out / own_rows),
                 int64_t{1}, most_outer);
  plan.rows = std::clamp<int64_t>(panel / plan.right_out / plan.outer, 1, own_rows);
  const int64_t panel_elements = RoundUpToLine(plan.outer * plan.rows * plan.right_out, real_bytes);
  plan.slot_elements = panel_elements;
  if (backward) {
    plan.slot_elements +=
        panel_elements + RoundUpToLine(plan.rank * plan.rows * plan.right_out, real_bytes);
    plan.gradient_elements = RoundUpToLine(plan.left_in * plan.left_out * plan.rank, real_bytes);
  }
  if (widens) {
    const int64_t row_elements = (backward ? 2 : 1) * plan.in_features() + plan.out_features();
    plan.widened_elements = CheckedMul(plan.block, row_elements);
  }
  return plan;
}

template <typename Real>
void PanelForwardSlot(const PanelPlan& plan, int64_t slot, int64_t count, const Real* left,
                      const Real* right, const Real* x, Real* y, Real* slots) {
  Real* panel = slots + slot * plan.slot_elements;
  const int64_t in = plan.in_features(), out = plan.out_features(), m = plan.right_out;
  const int64_t begin = plan.left_out * slot / plan.slots;
  const int64_t end = plan.left_out * (slot + 1) / plan.slots;
  for (int64_t row = 0; row < plan.right_in; row += plan.rows) {
    const int64_t rows = std::min(plan.rows, plan.right_in - row);
    for (int64_t j = begin; j < end; ++j) {
      for (int64_t i = 0; i < plan.left_in; i += plan.outer) {
        const int64_t outer = std::min(plan.outer, plan.left_in - i);
        const SmallGemm<Real> rebuild({outer, rows * m, plan.rank, plan.left_out * plan.rank,
                                       plan.right_in * m, rows * m, false, false});
        rebuild(left + (i * plan.left_out + j) * plan.rank, right + row * m, panel);
        // With all rows in the panel, the inputs of neighbouring i_L are one run.
        const int64_t runs = rows == plan.right_in ? 1 : outer;
        const int64_t depth = outer * rows / runs;
        for (int64_t b = 0; b < count; b += kBatchRows) {
          for (int64_t run = 0; run < runs; ++run) {
            const bool more = row > 0 || i + run > 0;
            const SmallGemm<Real> multiply(
                {std::min(kBatchRows, count - b), m, depth, in, m, out, false, more});
            multiply(x + b * in + (i + run) * plan.right_in + row, panel + run * depth * m,
                     y + b * out + j * m);
          }
        }
      }
    }
  }
}

template <typename Real>
void PanelBackwardSlot(const PanelPlan& plan, int64_t slot, int64_t count, bool add,
                       const Real* left, const Real* right, const Real* x, const Real* dy, Real* dx,
                       Real* dright, Real* slots, Real* gradients) {
  const int64_t in = plan.in_features(), out = plan.out_features(), m = plan.right_out;
  const int64_t panel_elements = RoundUpToLine(plan.outer * plan.rows * m, sizeof(Real));
  Real* panel = slots + slot * plan.slot_elements;
  Real* dpanel = panel + panel_elements;
  Real* transposed = dpanel + panel_elements;  // R as [r, m_R, rows].
  Real* dleft = gradients + slot * plan.gradient_elements;
  if (!add) std::fill_n(dleft, plan.gradient_elements, Real(0));
  const int64_t begin = plan.right_in * slot / plan.slots;
  const int64_t end = plan.right_in * (slot + 1) / plan.slots;
  for (int64_t row = begin; row < end; row += plan.rows) {
    const int64_t rows = std::min(plan.rows, end - row), lanes = rows * m;
    const int64_t right_ld = plan.right_in * m;
    for (int64_t a = 0; a < plan.rank; ++a) {
      PackTile(right + a * right_ld + row * m, m, rows, m, rows, transposed + a * lanes);
      if (!add) std::fill_n(dright + a * right_ld + row * m, lanes, Real(0));
    }
    if (count == 0) continue;
    for (int64_t i = 0; i < plan.left_in; ++i) {
      for (int64_t j = 0; j < plan.left_out; j += plan.outer) {
        const int64_t outer = std::min(plan.outer, plan.left_out - j);
        const Real* left_rows = left + (i * plan.left_out + j) * plan.rank;
        const SmallGemm<Real> rebuild(
            {outer, lanes, plan.rank, plan.rank, lanes, lanes, false, false});
        rebuild(left_rows, transposed, panel);
        const int64_t column = i * plan.right_in + row;
        for (int64_t b = 0; b < count; b += kBatchRows) {
          const int64_t product_rows = std::min(kBatchRows, count - b);
          const SmallGemm<Real> multiply(
              {product_rows, rows, outer * m, out, rows, in, false, j > 0});
          multiply(dy + b * out + j * m, panel, dx + b * in + column);
          const SmallGemm<Real> correlate({rows, m, product_rows, in, out, m, true, b > 0});
          for (int64_t o = 0; o < outer; ++o) {
            correlate(x + b * in + column, dy + b * out + (j + o) * m, dpanel + o * lanes);
          }
        }
        const SmallGemm<Real> project(
            {plan.rank, lanes, outer, plan.rank, lanes, right_ld, true, true});
        project(left_rows, dpanel, dright + row * m);
        DotGemm({outer, plan.rank, lanes, 1, lanes, right_ld, plan.rank, 0, 0}, dpanel,
                right + row * m, dleft + (i * plan.left_out + j) * plan.rank);
      }
    }
  }
}

template <typename Real>
void WriteLeftGradient(const PanelPlan& plan, const Real* gradients, Real* dleft) {
  for (int64_t i = 0; i < plan.left_in * plan.left_out * plan.rank; ++i) {
    Real sum = gradients[i];
    for (int64_t slot = 1; slot < plan.slots; ++slot) {
      sum += gradients[slot * plan.gradient_elements + i];
    }
    dleft[i] = sum;
  }
}

template void PanelForwardSlot(const PanelPlan&, int64_t, int64_t, const float*, const float*,
                               const float*, float*, float*);
template void PanelForwardSlot(const PanelPlan&, int64_t, int64_t, const double*, const double*,
                               const double*, double*, double*);
template void PanelBackwardSlot(const PanelPlan&, int64_t, int64_t, bool, const float*,
                                const float*, const float*, const float*, float*, float*, float*,
                                float*);
template void PanelBackwardSlot(const PanelPlan&, int64_t, int64_t, bool, const double*,
                                const double*, const double*, const double*, double*, double*,
                                double*, double*);
template void WriteLeftGradient(const PanelPlan&, const float*, float*);
template void WriteLeftGradient(const PanelPlan&, const double*, double*);

}  // namespace ttbench
