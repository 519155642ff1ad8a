#include "kernels/linear/fused_plan.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "kernels/linear/small_gemm.h"

namespace ttbench {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The size of each part when `size` is cut into 1, 2, 4, .. parts as equal as can be, down to 1.
std::vector<int64_t> EvenParts(int64_t size) {
  std::vector<int64_t> all = {size};
  for (int64_t parts = 2; all.back() > 1; parts *= 2) {
    const int64_t part = CeilDiv(size, parts);
    if (part < all.back()) all.push_back(part);
  }
  return all;
}

// Estimates the cycles of one core.
class CycleModel {
 public:
  CycleModel(const FusedMachine& machine, int64_t real_bytes)
      : machine_(machine),
        real_bytes_(real_bytes),
        lanes_(std::max<int64_t>(1, machine.vector_bytes / real_bytes)),
        narrow_(machine.vector_bytes < 64) {}

  // `calls` products C[rows, lanes] (+)= A[rows, depth] T[depth, lanes]: two multiply-adds of a
  // vector a cycle; one store, and a load to accumulate, for each vector of C; a call's overhead.
  double Gemm(int64_t calls, int64_t rows, int64_t lanes, int64_t depth, bool accumulate) const {
    const double vectors = static_cast<double>(CeilDiv(lanes, lanes_));
    const double outputs = vectors * static_cast<double>(rows);
    // Fewer rows than a register tile has: loads of T are not shared.
    const double sharing = 0.5 + 0.5 / static_cast<double>(std::min<int64_t>(rows, 6));
    const double multiply_adds =
        outputs * static_cast<double>(depth) * std::max(0.5, 0.8 * sharing);
    const int64_t core_bytes = rows * depth * real_bytes_;
    double cycles = 25;
    if (narrow_) {
      cycles += multiply_adds * (Passes(lanes) / vectors) + outputs * (accumulate ? 1.6 : 0.1);
      // Every vector of lanes meets the whole core.
      if (core_bytes > machine_.l1_bytes) cycles += static_cast<double>(core_bytes) / 10;
      // T and C of all calls go through the next cache.
      const int64_t bytes = (depth + rows) * lanes * real_bytes_;
      if (calls * bytes > machine_.l1_bytes) cycles += static_cast<double>(bytes) / 36;
    } else {
      cycles += multiply_adds + outputs * (accumulate ? 2.5 : 1.5);
      if ((depth + rows) * lanes * real_bytes_ > machine_.l1_bytes) cycles *= 1.03;
      // A load for every multiply-add.
      if (vectors < 2) cycles *= 1.06;
    }
    // T is read again for every few rows.
    if (depth * lanes * real_bytes_ > machine_.l2_bytes * 3 / 4) cycles *= 1.6;
    // A core that no cache near holds streams in anew for each call.
    if (core_bytes > machine_.l2_bytes / 2) cycles += static_cast<double>(core_bytes) / 8;
    return cycles * static_cast<double>(calls);
  }

  // The gradient of a core: [p, q] summed over `lanes` lanes of each of `outer` pairs.
  double Gradient(int64_t p, int64_t q, int64_t lanes, int64_t outer, bool may_transpose) const {
    if (may_transpose && TransposedGradientPays(q, lanes * outer)) {
      return Gemm(outer, p, q, lanes, true) + 0.4 * static_cast<double>(outer * q * lanes);
    }
    const double vectors = static_cast<double>(CeilDiv(lanes, lanes_) * outer);
    const int64_t lane_bytes = lanes * outer * real_bytes_;
    if (narrow_) {
      // Three rows of P and four of Q.
      const double per_vector = 7 * lane_bytes > machine_.l1_bytes ? 14 : 8.5;
      return static_cast<double>(CeilDiv(p, 3) * CeilDiv(q, 4)) * (vectors * per_vector + 150);
    }
    const double per_vector = (p + q) * lane_bytes > machine_.l1_bytes ? 12 : 8.5;
    return static_cast<double>(CeilDiv(p, 4) * CeilDiv(q, 4)) * (vectors * per_vector + 60);
  }

  // The factor for working in `slot_bytes`.
  double BeyondL2(int64_t slot_bytes) const {
    const int64_t l2 = machine_.l2_bytes;
    // More with all cores at work: they share the next cache.
    if (narrow_) {
      return slot_bytes > 4 * l2       ? 1.25
             : slot_bytes > l2 * 3 / 2 ? 1.13
             : slot_bytes > l2         ? 1.03
                                       : 1;
    }
    if (slot_bytes > 6 * l2) return 1.38;
    if (slot_bytes > 2 * l2) return 1.06;
    return slot_bytes > l2 * 3 / 4 ? 1.02 : 1;
  }

  // `elements` of rows, moved to or from a tile in runs of `columns`; `again`: for each run of less
  // than a line, as the line comes and goes once more.
  double Move(int64_t elements, int64_t samples, int64_t columns, bool mirrored,
              double again) const {
    const bool vectors = samples == 1 ? !mirrored : samples % lanes_ == 0;
    if (!narrow_) {
      const bool wide = vectors && (columns % lanes_ == 0 || columns >= 4 * lanes_);
      return static_cast<double>(elements) * (wide ? 0.5 : 2.0);
    }
    const bool wide = vectors && columns >= lanes_;
    const double lines = columns < 16 ? again / static_cast<double>(columns) : 0;
    return static_cast<double>(elements) * ((wide ? 0.3 : 0.6) + lines);
  }

 private:
  // What the lanes of a row of C take, in vectors of a full register tile. A vector of 16 registers
  // leaves so few accumulators beside it that they wait for each other, and a number of the core is
  // loaded for few multiply-adds. Of what is left beside whole vectors, LIBXSMM works on half a
  // vector and on single lanes, each in a pass that takes as long as one with a lone vector.
  double Passes(int64_t lanes) const {
    constexpr double kCost[] = {0, 1.8, 2.76, 3.4};
    constexpr double kLonePass = 2.4;
    const int64_t vectors = lanes / lanes_, half = std::max<int64_t>(1, lanes_ / 2);
    const int64_t rest = lanes % lanes_;
    return static_cast<double>(vectors - vectors % 4) + kCost[vectors % 4] +
           kLonePass * static_cast<double>(rest / half + rest % half);
  }

  const FusedMachine& machine_;
  int64_t real_bytes_;
  int64_t lanes_;
  bool narrow_;  // 16 registers, not 32.
};

double EstimateCycles(const TtShape& shape, const FusedPlan& plan, int64_t slot_bytes,
                      const FusedMachine& machine, int64_t real_bytes) {
  const CycleModel model(machine, real_bytes);
  const int64_t last = shape.cores() - 1, s = plan.samples;
  const bool backward = plan.pass == FusedPass::kBackward;
  // One chunk of one block.
  double step = 0;
  int64_t outer = plan.chunk;
  for (int64_t k = 1; k < last; ++k) outer *= shape.n(k);
  const int64_t last_rows = shape.left_rank(last) * plan.block;
  step += s == 1 ? model.Gemm(1, outer, last_rows, shape.n(last), false)
                 : model.Gemm(outer, last_rows, s, shape.n(last), false);
  if (backward) {
    step += s == 1 ? model.Gemm(1, outer, shape.n(last), last_rows, plan.blocks > 1)
                   : model.Gemm(outer, shape.n(last), s, last_rows, plan.blocks > 1);
    step += s == 1 ? model.Gemm(1, last_rows, shape.n(last), outer, true)
                   : model.Gradient(last_rows, shape.n(last), s, outer, false);
  }
  int64_t right = plan.block * s;
  for (int64_t k = last - 1; k >= 1; --k) {
    outer /= shape.n(k);
    const int64_t rows = shape.left_rank(k) * shape.m(k), depth = shape.n(k) * shape.right_rank(k);
    step += model.Gemm(outer, rows, right, depth, false);
    if (backward) {
      step += model.Gemm(outer, depth, right, rows, false) +
              model.Gradient(rows, depth, right, outer, true);
    }
    right *= shape.m(k);
  }
  const int64_t first_rows = plan.chunk * shape.right_rank(0);
  step += backward ? model.Gemm(1, first_rows, right, shape.m(0), false) +
                         model.Gradient(shape.m(0), first_rows, right, 1, false)
                   : model.Gemm(1, shape.m(0), right, first_rows, plan.chunks > 1);
  step *= model.BeyondL2(slot_bytes);

  // A chunk is of the last mode of a mirrored row, a block of that of another.
  const int64_t block_outputs = shape.out_features() / shape.m(last) * plan.block;
  const bool whole_x = !plan.mirrored || !backward || plan.chunks == 1;
  const int64_t in_columns = whole_x ? shape.in_features() / plan.chunks : plan.chunk;
  const int64_t out_columns = plan.mirrored || plan.blocks == 1 ? block_outputs : plan.block;
  const double out_cycles =
      model.Move(block_outputs * s, s, out_columns, plan.mirrored, backward ? 4 : 6);
  const double in_cycles = model.Move(shape.in_features() * s, s, in_columns, plan.mirrored, 3);
  const int64_t units = CeilDiv(plan.units(), plan.slots);
  const int64_t per_tile = plan.units() / plan.tiles;
  const double tiles = static_cast<double>(std::max<int64_t>(1, CeilDiv(units, per_tile)));
  if (backward) {
    const double unit =
        static_cast<double>(plan.blocks) * step + 2 * in_cycles / static_cast<double>(plan.chunks);
    return static_cast<double>(units) * unit +
           tiles * out_cycles * static_cast<double>(plan.blocks);
  }
  const double unit = static_cast<double>(plan.chunks) * step + out_cycles;
  return static_cast<double>(units) * unit + tiles * in_cycles;
}

// `shape`: the FusedOrder.
FusedPlan MakePlan(const TtShape& shape, bool mirrored, int64_t batch, int64_t slots,
                   int64_t real_bytes, FusedPass pass, int64_t samples, int64_t block,
                   int64_t chunk, const FusedMachine& machine) {
  FusedPlan plan;
  plan.pass = pass;
  plan.mirrored = mirrored;
  plan.batch = batch;
  plan.samples = samples;
  plan.block = block;
  plan.chunk = chunk;
  plan.tiles = CeilDiv(batch, samples);
  plan.blocks = CeilDiv(shape.m(shape.cores() - 1), block);
  plan.chunks = CeilDiv(shape.n(0), chunk);
  plan.slots = std::max<int64_t>(1, std::min(slots, plan.units()));
  const FusedLayout layout = LayOutFused(shape, plan, real_bytes);
  plan.packed_elements = layout.packed_elements;
  plan.slot_elements = layout.slot_elements;
  plan.gradient_elements = layout.gradient_elements;
  if (plan.tiles > 0) {
    // Waking threads and waiting for the last takes some microseconds.
    constexpr double kForkJoinCycles = 10'000;
    plan.cycles =
        EstimateCycles(shape, plan, layout.slot_elements * real_bytes, machine, real_bytes) +
        (plan.slots > 1 ? kForkJoinCycles : 0);
  }
  return plan;
}

}  // namespace

const FusedMachine& ThisFusedMachine() {
  static const FusedMachine machine = [] {
    FusedMachine read;
    const long l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE), l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (l1 > 0) read.l1_bytes = l1;
    if (l2 > 0) read.l2_bytes = l2;
    read.vector_bytes = VectorLanes<float>() * static_cast<int64_t>(sizeof(float));
    return read;
  }();
  return machine;
}

TtShape FusedOrder(const TtShape& shape, bool mirrored) {
  if (!mirrored) return shape;
  auto reversed = [](const Modes& modes) { return Modes(modes.rbegin(), modes.rend()); };
  return TtShape(reversed(shape.in_modes()), reversed(shape.out_modes()), reversed(shape.ranks()));
}

FusedLayout LayOutFused(const TtShape& order, const FusedPlan& plan, int64_t real_bytes) {
  const int64_t line = 64 / real_bytes;
  FusedLayout layout;
  auto place = [line](int64_t& total, int64_t elements) {
    const int64_t offset = total;
    total += CeilDiv(elements, line) * line;
    return offset;
  };
  const int64_t cores = order.cores(), last = cores - 1, s = plan.samples;
  const bool backward = plan.pass == FusedPass::kBackward;
  auto core_elements = [&](int64_t k) {
    return order.left_rank(k) * order.n(k) * order.m(k) * order.right_rank(k);
  };
  // With single samples the last contraction has x as its first factor, and wants its core
  // transposed.
  for (int64_t k = 0; k < cores; ++k) {
    const bool needed = backward || k < last || s > 1;
    layout.core.push_back(needed ? place(layout.packed_elements, core_elements(k)) : -1);
  }
  if (s == 1) layout.last_transposed = place(layout.packed_elements, core_elements(last));
  const int64_t chunk_inputs = order.in_features() / order.n(0) * plan.chunk * s;
  int64_t& slot = layout.slot_elements;
  layout.x = place(slot, backward ? chunk_inputs : order.in_features() * s);
  layout.y = place(slot, backward ? order.out_features() * s
                                  : order.out_features() / order.m(last) * plan.block * s);
  if (backward) layout.dx = place(slot, chunk_inputs);
  layout.partial.assign(cores, 0);
  layout.partial_gradient.assign(cores, 0);
  int64_t left = plan.chunk;
  int64_t right = order.out_features() / order.m(0) / order.m(last) * plan.block * s;
  int64_t to_transpose = 0;
  for (int64_t k = 1; k <= last; ++k) {
    // T_k: [chunk, n_2 .. n_k] [r_k] [m_{k+1} .. block, samples]; k counts from 1 here.
    const int64_t elements = left * order.left_rank(k) * right;
    layout.partial[k] = place(slot, elements);
    if (backward) layout.partial_gradient[k] = place(slot, elements);
    if (k == last) break;
    left *= order.n(k);
    right /= order.m(k);
    to_transpose =
        std::max(to_transpose, right * std::min(kTransposedRows, order.n(k) * order.right_rank(k)));
  }
  if (backward) {
    layout.transposed = place(slot, to_transpose);
    for (int64_t k = 0; k < cores; ++k) {
      layout.gradient.push_back(place(layout.gradient_elements, core_elements(k)));
    }
  }
  return layout;
}

FusedPlan MakeFusedPlan(const TtShape& shape, int64_t batch, int64_t slots, int64_t real_bytes,
                        FusedPass pass, int64_t samples, int64_t block, int64_t chunk,
                        bool mirrored, const FusedMachine& machine) {
  return MakePlan(FusedOrder(shape, mirrored), mirrored, batch, slots, real_bytes, pass, samples,
                  block, chunk, machine);
}

FusedPlan PlanFused(const TtShape& shape, int64_t batch, int64_t threads, int64_t real_bytes,
                    FusedPass pass, const FusedMachine& machine) {
  const int64_t spare = std::max<int64_t>(0, shape.dense_parameters() - shape.parameters());
  const int64_t limit = pass == FusedPass::kForward ? spare : 2 * spare;
  const int64_t lanes = std::max<int64_t>(1, machine.vector_bytes / real_bytes);
  FusedPlan best;
  bool best_fits = false;
  for (bool mirrored : {false, true}) {
    const TtShape order = FusedOrder(shape, mirrored);
    // Where neither order has less to do.
    if (mirrored && order.sequential_macs_per_row() >= shape.sequential_macs_per_row()) break;
    for (int64_t samples : {4 * lanes, 2 * lanes, lanes, int64_t{1}}) {
      if (samples > 1 && samples >= 2 * lanes && samples / 2 >= batch) continue;
      for (int64_t block : EvenParts(order.m(order.cores() - 1))) {
        for (int64_t chunk : EvenParts(order.n(0))) {
          for (int64_t slots = threads; slots > 0; slots /= 2) {
            const FusedPlan plan = MakePlan(order, mirrored, batch, slots, real_bytes, pass,
                                            samples, block, chunk, machine);
            const bool fits = plan.scratch_elements() <= limit;
            const bool better = fits != best_fits ? fits
                                : fits            ? plan.cycles < best.cycles
                                       : plan.scratch_elements() < best.scratch_elements();
            if (best.slot_elements == 0 || better) {
              best = plan;
              best_fits = fits;
            }
          }
        }
      }
    }
  }
  return best;
}

}  // namespace ttbench
