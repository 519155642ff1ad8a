// The bodies of the CUDA panel kernels, for nvcc and for the emulation, as in fused_body.h.
//
// Multiply: a thread block takes many rows of x and a block of outputs, whose sums stay in
// registers. For each panel: x's part and R's come by asynchronous copies, one panel ahead; the
// panel is rebuilt into shared memory in the order of the fragments; every warp multiplies its rows
// of the panel by its columns of x. Rebuilding takes r multiply-adds for an element of the panel,
// multiplying one for each row of x.
// Gradient: a thread block forms a panel of dW in registers, from x and dy of its part of the
// batch, puts it into shared memory and projects it on both joined cores. Every partial sum is
// written once, by one thread; SumPanels adds them in order, so that results repeat to the bit.
#pragma once

#include "kernels/cuda/panel_cuda_params.h"
#include "kernels/cuda/tensor_access.h"
#include "kernels/cuda/warp_tile.h"

namespace ttbench {

template <typename Context, typename Stored>
struct PanelCudaTensors {
  template <typename T>
  using Global = typename Context::template Global<T>;
  Global<const Stored> x, packed;
  Global<Stored> y;         // Multiply.
  Global<const Stored> dy;  // Gradient, like the next.
  Global<float> partial;
};

template <typename Context, CudaPrecision kPrecision>
class PanelBody {
 public:
  using Fragment = Fragments<kPrecision>;
  using Stored = typename Fragment::Stored;
  using Tensors = PanelCudaTensors<Context, Stored>;

  TTBENCH_DEVICE PanelBody(Context& ctx, const PanelCudaParams& params, const Tensors& tensors)
      : ctx_(ctx),
        multiply_(params.multiply),
        gradient_(params.gradient),
        tensors_(tensors),
        lane_(ctx.Thread() % 32),
        warp_(ctx.Thread() / 32),
        warps_(ctx.Threads() / 32) {}

  TTBENCH_DEVICE void Multiply() {
    const PanelMultiply& work = multiply_;
    // What lies beyond a panel's rows and depths stays zero.
    for (int i = ctx_.Thread() * 16; i < work.panel_bytes; i += ctx_.Threads() * 16) {
      ctx_.StoreShared(work.panel_offset + i, Words4{});
    }
    const int row = warp_ % work.row_tiles * kTileRows, column = warp_ / work.row_tiles * kColumns;
    int64_t unit = ctx_.Block();
    int stage = 0, right_stage = 0;
    if (unit < work.units) StartPanel(unit, 0, stage, right_stage);
    for (; unit < work.units; unit += ctx_.Blocks()) {
      const int block = static_cast<int>(unit % work.out_blocks);
      const int samples = Samples(work, unit / work.out_blocks);
      Sums sums = {};
      TTBENCH_ROLLED
      for (int panel = 0; panel < work.panels; ++panel) {
        FinishRows(work.x, work.x_offset[stage], samples);
        ctx_.Barrier();
        const int right = right_stage;
        const bool more = panel + 1 < work.panels;
        const int64_t next = more ? unit : unit + ctx_.Blocks();
        if (next < work.units) {
          // R's part serves all of L's inputs in turn.
          const int next_panel = more ? panel + 1 : 0;
          if (next_panel % work.left.in_tiles == 0) right_stage ^= 1;
          StartPanel(next, next_panel, stage ^ 1, right_stage);
        }
        Rebuild(panel, block, right);
        ctx_.Barrier();
        if (column < samples) {
          const int steps = (work.depth + Fragment::kStep - 1) / Fragment::kStep;
          MultiplyWarpTile<kPrecision, true, kColumnBlocks>(
              ctx_, tensors_.packed, work.panel_offset / kBytes + row * steps * Fragment::kStep,
              row + kRowBlock < work.rows, work.depth, work.x_offset[stage], work.x.pitch, column,
              samples, lane_, sums);
        }
        stage ^= 1;
      }
      WriteY(unit, block, row, column, samples, sums);
    }
  }

  TTBENCH_DEVICE void Gradient() {
    const PanelGradient& work = gradient_;
    const int row = warp_ % work.row_tiles * kTileRows, column = warp_ / work.row_tiles * kColumns;
    for (int64_t unit = ctx_.Block(); unit < work.units; unit += ctx_.Blocks()) {
      const int split = static_cast<int>(unit % work.splits);
      const int panel = static_cast<int>(unit / work.splits);
      const int left = panel % work.left.parts(), right = panel / work.left.parts();
      const int64_t end = work.steps * (split + 1) / work.splits;
      int64_t step = work.steps * split / work.splits;
      int stage = 0;
      if (step < end) StartStep(step, left, right, stage);
      Sums sums = {};
      for (; step < end; ++step) {
        const int samples = Samples(work, step);
        FinishRows(work.x, work.x_offset[stage], samples);
        FinishRows(work.dy, work.dy_offset[stage], samples);
        ctx_.Barrier();
        if (step + 1 < end) StartStep(step + 1, left, right, stage ^ 1);
        if (column < work.columns) {
          SumWarpTile<kPrecision, kColumnBlocks>(
              ctx_, {work.x_offset[stage], work.x.pitch, row, work.rows},
              {work.dy_offset[stage], work.dy.pitch, column, work.columns}, 0,
              (samples + Fragment::kStep - 1) / Fragment::kStep, samples, lane_, sums);
        }
        stage ^= 1;
      }
      ctx_.Barrier();
      StorePanel(row, column, sums);
      ctx_.Barrier();
      const int64_t left_set = int64_t{right} * work.splits + split;
      const int64_t right_set = int64_t{left} * work.splits + split;
      Project(work.right, right, work.left, work.by_left_offset, work.by_left_pitch,
              work.left_partial + left_set * work.left_size +
                  int64_t{left} * work.left.pairs() * work.rank);
      Project(work.left, left, work.right, work.by_right_offset, work.by_right_pitch,
              work.right_partial + right_set * work.right_size +
                  int64_t{right} * work.right.pairs() * work.rank);
      ctx_.Barrier();
    }
  }

 private:
  template <typename T>
  using Global = typename Context::template Global<T>;
  static constexpr int kBytes = sizeof(Stored);
  static constexpr int kColumnBlocks = ProductColumnBlocks(kPrecision);
  static constexpr int kColumns = kColumnBlocks * kColumnBlock;
  using Sums = WarpSums<kColumnBlocks>;

  // Rows of tile or step `tile`.
  template <typename Work>
  static TTBENCH_DEVICE int Samples(const Work& work, int64_t tile) {
    const int64_t left = work.batch - tile * work.samples;
    return static_cast<int>(left < work.samples ? left : work.samples);
  }

  // Calls visit(offset in the tensor, offset in the tile, in elements) for each of this thread's
  // vectors of `samples` rows.
  template <typename Visit>
  TTBENCH_DEVICE void ForEachVector(const PanelTileMap& map, int samples,
                                    const Visit& visit) const {
    const int count = static_cast<int>(map.per_row.divisor) * samples;
    TTBENCH_ROLLED
    for (int i = ctx_.Thread(); i < count; i += ctx_.Threads()) {
      uint32_t in_row, in_run;
      const uint32_t sample = map.per_row.Divide(i, &in_row);
      const uint32_t run = map.run.Divide(in_row, &in_run);
      visit(sample * map.features + run * map.run_stride + static_cast<int>(in_run) * map.vector,
            static_cast<int>(sample) * map.pitch + static_cast<int>(in_row) * map.vector);
    }
  }

  TTBENCH_DEVICE void StartRows(const PanelTileMap& map, Global<const Stored> tensor,
                                int64_t first_row, int samples, int left, int right, int offset) {
    const int64_t first =
        first_row * map.features + left * map.left_stride + right * map.right_stride;
    ForEachVector(map, samples, [&](int64_t from, int to) {
      StartVector<Stored>(ctx_, offset + to * kBytes, tensor, first + from, map.vector * kBytes);
    });
  }

  // What this thread copied has come, and is rounded where products ask for it.
  TTBENCH_DEVICE void FinishRows(const PanelTileMap& map, int offset, int samples) {
    ctx_.WaitForCopies();
    if constexpr (kPrecision == CudaPrecision::kTf32) {
      ForEachVector(map, samples, [&](int64_t, int at) {
        TTBENCH_ROLLED
        for (int i = 0; i < map.vector; ++i) RoundShared(ctx_, offset + (at + i) * kBytes);
      });
    }
  }

  TTBENCH_DEVICE void StartPanel(int64_t unit, int panel, int stage, int right_stage) {
    const PanelMultiply& work = multiply_;
    const int64_t tile = unit / work.out_blocks;
    const int left = panel % work.left.in_tiles, right = panel / work.left.in_tiles;
    StartRows(work.x, tensors_.x, tile * work.samples, Samples(work, tile), left, right,
              work.x_offset[stage]);
    if (left > 0) return;
    constexpr int kVector = 16 / kBytes;
    const int block = static_cast<int>(unit % work.out_blocks);
    const int part = right * work.right.out_tiles + block % work.right.out_tiles;
    const int64_t from = work.right.packed + int64_t{part} * work.right.packed_elements;
    TTBENCH_ROLLED
    for (int i = ctx_.Thread(); i < work.right.packed_elements / kVector; i += ctx_.Threads()) {
      ctx_.template CopyAsync<16>(work.right_offset[right_stage] + i * 16, tensors_.packed,
                                  from + i * kVector);
    }
  }

  TTBENCH_DEVICE void Rebuild(int panel, int block, int right_stage) {
    const PanelMultiply& work = multiply_;
    constexpr int kRebuildColumns = kRebuildColumnBlocks * kColumnBlock;
    const int part =
        panel % work.left.in_tiles * work.left.out_tiles + block / work.right.out_tiles;
    const int64_t packed = work.left.packed + int64_t{part} * work.left.packed_elements;
    const int rows = work.left.pairs(), columns = work.right.pairs();
    const int steps = (work.rank + Fragment::kStep - 1) / Fragment::kStep;
    const int row_tiles = (rows + kTileRows - 1) / kTileRows;
    const int column_tiles = (columns + kRebuildColumns - 1) / kRebuildColumns;
    TTBENCH_ROLLED
    for (int tile = warp_; tile < row_tiles * column_tiles; tile += warps_) {
      const int row = tile % row_tiles * kTileRows, column = tile / row_tiles * kRebuildColumns;
      WarpSums<kRebuildColumnBlocks> sums = {};
      MultiplyWarpTile<kPrecision, false, kRebuildColumnBlocks, true>(
          ctx_, tensors_.packed, packed + row * steps * Fragment::kStep, row + kRowBlock < rows,
          work.rank, work.right_offset[right_stage], work.right_pitch, column, columns, lane_,
          sums);
      ForEachSum<kRebuildColumnBlocks>(row, rows, column, columns, sums,
                                       [&](int p, int q, float sum) { StoreRebuilt(p, q, sum); });
    }
  }

  TTBENCH_DEVICE void StoreRebuilt(int p, int q, float sum) {
    const PanelMultiply& work = multiply_;
    uint32_t left_in, right_in;
    const uint32_t left_out = work.left.in.Divide(p, &left_in);
    const uint32_t right_out = work.right.in.Divide(q, &right_in);
    const int row = static_cast<int>(left_out) * work.right.out_tile + static_cast<int>(right_out);
    const int depth = static_cast<int>(left_in) * work.right.in_tile + static_cast<int>(right_in);
    const int steps = (work.depth + Fragment::kStep - 1) / Fragment::kStep;
    const int fragment = row / kRowBlock * steps + depth / Fragment::kStep;
    const int at = fragment * kRowBlock * Fragment::kStep +
                   Fragment::PackedIndex(row % kRowBlock, depth % Fragment::kStep);
    ctx_.StoreShared(work.panel_offset + at * kBytes, Fragment::Round(sum));
  }

  // Calls visit(row, column, sum) for each of this lane's sums that is one.
  template <int kBlocks, typename Visit>
  TTBENCH_DEVICE void ForEachSum(int row, int rows, int column, int columns,
                                 const WarpSums<kBlocks>& sums, const Visit& visit) const {
    TTBENCH_UNROLL
    for (int n = 0; n < kBlocks; ++n) {
      TTBENCH_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int c = column + n * kColumnBlock + 2 * (lane_ % 4) + j;
        if (c >= columns) continue;
        TTBENCH_UNROLL
        for (int m = 0; m < kTileRowBlocks; ++m) {
          TTBENCH_UNROLL
          for (int i = 0; i < 2; ++i) {
            const int r = row + m * kRowBlock + 8 * i + lane_ / 4;
            if (r < rows) visit(r, c, sums[m][n][2 * i + j]);
          }
        }
      }
    }
  }

  TTBENCH_DEVICE void WriteY(int64_t unit, int block, int row, int column, int samples,
                             const Sums& sums) {
    const PanelMultiply& work = multiply_;
    const int left = block / work.right.out_tiles, right = block % work.right.out_tiles;
    const int64_t first = unit / work.out_blocks * work.samples * work.out_features +
                          int64_t{left} * work.left.out_tile * work.right_features +
                          int64_t{right} * work.right.out_tile;
    ForEachSum<kColumnBlocks>(row, work.rows, column, samples, sums, [&](int r, int c, float sum) {
      uint32_t right_out;
      const uint32_t left_out = work.right_out.Divide(r, &right_out);
      const int64_t to = first + c * work.out_features +
                         static_cast<int64_t>(left_out) * work.right_features + right_out;
      if constexpr (kBytes == 4) {
        ctx_.StoreGlobal(tensors_.y, to, sum);
      } else {
        ctx_.StoreGlobal(tensors_.y, to, RoundToBfloat16(sum));
      }
    });
  }

  TTBENCH_DEVICE void StartStep(int64_t step, int left, int right, int stage) {
    const PanelGradient& work = gradient_;
    const int samples = Samples(work, step);
    const int64_t row = step * work.samples;
    StartRows(work.x, tensors_.x, row, samples, left / work.left.out_tiles,
              right / work.right.out_tiles, work.x_offset[stage]);
    StartRows(work.dy, tensors_.dy, row, samples, left % work.left.out_tiles,
              right % work.right.out_tiles, work.dy_offset[stage]);
  }

  TTBENCH_DEVICE void StorePanel(int row, int column, const Sums& sums) {
    const PanelGradient& work = gradient_;
    ForEachSum<kColumnBlocks>(
        row, work.rows, column, work.columns, sums, [&](int i, int j, float sum) {
          uint32_t right_in, right_out;
          const uint32_t left_in = work.right_in.Divide(i, &right_in);
          const uint32_t left_out = work.right_out.Divide(j, &right_out);
          const int p = static_cast<int>(left_out) * work.left.in_tile + static_cast<int>(left_in);
          const int q =
              static_cast<int>(right_out) * work.right.in_tile + static_cast<int>(right_in);
          const Stored value = Fragment::Round(sum);
          ctx_.StoreShared(work.by_left_offset + (p * work.by_left_pitch + q) * kBytes, value);
          ctx_.StoreShared(work.by_right_offset + (q * work.by_right_pitch + p) * kBytes, value);
        });
  }

  // partial[to + column * rank + a] = sum over d of core[a, d] * panel[column][d], d over the pairs
  // of part `part` of `core`, columns over those of `onto`.
  TTBENCH_DEVICE void Project(const PanelPart& core, int part, const PanelPart& onto, int offset,
                              int pitch, int64_t to) {
    const int rank = gradient_.rank, depth = core.pairs(), columns = onto.pairs();
    const int64_t packed = core.packed + int64_t{part} * core.packed_elements;
    const int steps = (depth + Fragment::kStep - 1) / Fragment::kStep;
    const int row_tiles = (rank + kTileRows - 1) / kTileRows;
    const int column_tiles = (columns + kColumns - 1) / kColumns;
    TTBENCH_ROLLED
    for (int tile = warp_; tile < row_tiles * column_tiles; tile += warps_) {
      const int row = tile % row_tiles * kTileRows, column = tile / row_tiles * kColumns;
      Sums sums = {};
      MultiplyWarpTile<kPrecision, false, kColumnBlocks>(
          ctx_, tensors_.packed, packed + int64_t{row} * steps * Fragment::kStep,
          row + kRowBlock < rank, depth, offset, pitch, column, columns, lane_, sums);
      ForEachSum<kColumnBlocks>(row, rank, column, columns, sums, [&](int a, int c, float sum) {
        ctx_.StoreGlobal(tensors_.partial, to + int64_t{c} * rank + a, sum);
      });
    }
  }

  Context& ctx_;
  const PanelMultiply& multiply_;
  const PanelGradient& gradient_;
  const Tensors& tensors_;
  const int lane_, warp_, warps_;
};

// Calls visit(i) for each of this thread's of `count` elements.
template <typename Context, typename Visit>
TTBENCH_DEVICE void ForEachOwn(const Context& ctx, int64_t count, const Visit& visit) {
  for (int64_t i = ctx.Block() * ctx.Threads() + ctx.Thread(); i < count;
       i += ctx.Blocks() * ctx.Threads()) {
    visit(i);
  }
}

// The cores' values, in float32.
template <typename Context, typename Stored>
TTBENCH_DEVICE void WidenCores(Context& ctx, const PanelCudaParams& params,
                               const FusedCudaCores<Context, const Stored>& cores,
                               typename Context::template Global<float> values) {
  for (int k = 0; k < params.cores; ++k) {
    const int64_t begin = params.core_begin[k];
    ForEachOwn(ctx, params.core_begin[k + 1] - begin, [&](int64_t i) {
      ctx.StoreGlobal(values, begin + i,
                      ToFloat(ctx.template LoadGlobal<Stored>(cores.core[k], i)));
    });
  }
}

// The cores' gradients, from float32.
template <typename Context, typename Stored>
TTBENCH_DEVICE void NarrowGradients(Context& ctx, const PanelCudaParams& params,
                                    typename Context::template Global<const float> values,
                                    const FusedCudaCores<Context, Stored>& dcores) {
  for (int k = 0; k < params.cores; ++k) {
    const int64_t begin = params.core_begin[k];
    ForEachOwn(ctx, params.core_begin[k + 1] - begin, [&](int64_t i) {
      const float value = ctx.template LoadGlobal<float>(values, params.gradients + begin + i);
      if constexpr (sizeof(Stored) == 4) {
        ctx.StoreGlobal(dcores.core[k], i, value);
      } else {
        ctx.StoreGlobal(dcores.core[k], i, RoundToBfloat16(value));
      }
    });
  }
}

template <typename Context>
TTBENCH_DEVICE void JoinOne(Context& ctx, const PanelJoin& join,
                            typename Context::template Global<float> values) {
  ForEachOwn(ctx, join.elements(), [&](int64_t at) {
    int rest = static_cast<int>(at);
    const int b = rest % join.core_rank;
    rest /= join.core_rank;
    const int core_out = rest % join.core_out;
    rest /= join.core_out;
    const int out = rest % join.out_modes;
    rest /= join.out_modes;
    const int core_in = rest % join.core_in;
    const int lead_in = rest / join.core_in;  // (c, i)
    const int64_t left = join.left + int64_t{lead_in * join.out_modes + out} * join.rank;
    const int64_t core =
        join.core + int64_t{core_in * join.core_out + core_out} * join.core_rank + b;
    const int64_t stride = int64_t{join.core_in * join.core_out} * join.core_rank;
    float sum = 0;
    for (int a = 0; a < join.rank; ++a) {
      sum += ctx.LoadStored(values, left + a) * ctx.LoadStored(values, core + a * stride);
    }
    ctx.StoreGlobal(values, join.out + at, sum);
  });
}

// Both gradients of a join, from that of its result.
template <typename Context>
TTBENCH_DEVICE void JoinOneGradient(Context& ctx, const PanelJoin& join, int64_t gradients,
                                    typename Context::template Global<float> values) {
  const int lead_in = join.lead * join.in;
  // Of out[(c, i), i', j, j', 0].
  const auto out_at = [&](int ci, int core_in, int out, int core_out) {
    return gradients + join.out +
           int64_t{((ci * join.core_in + core_in) * join.out_modes + out) * join.core_out +
                   core_out} *
               join.core_rank;
  };
  ForEachOwn(ctx, int64_t{join.left_elements()} + join.core_elements(), [&](int64_t at) {
    float sum = 0;
    if (at < join.left_elements()) {
      const int a = static_cast<int>(at) % join.rank, pair = static_cast<int>(at) / join.rank;
      const int out = pair % join.out_modes, ci = pair / join.out_modes;
      int64_t core = join.core + int64_t{a} * join.core_in * join.core_out * join.core_rank;
      for (int core_in = 0; core_in < join.core_in; ++core_in) {
        for (int core_out = 0; core_out < join.core_out; ++core_out) {
          const int64_t from = out_at(ci, core_in, out, core_out);
          for (int b = 0; b < join.core_rank; ++b, ++core) {
            sum += ctx.LoadStored(values, core) * ctx.LoadStored(values, from + b);
          }
        }
      }
      ctx.StoreGlobal(values, gradients + join.left + at, sum);
      return;
    }
    int rest = static_cast<int>(at - join.left_elements());
    const int64_t to = gradients + join.core + rest;
    const int b = rest % join.core_rank;
    rest /= join.core_rank;
    const int core_out = rest % join.core_out;
    rest /= join.core_out;
    const int core_in = rest % join.core_in, a = rest / join.core_in;
    for (int ci = 0; ci < lead_in; ++ci) {
      for (int out = 0; out < join.out_modes; ++out) {
        sum +=
            ctx.LoadStored(values, join.left + int64_t{ci * join.out_modes + out} * join.rank + a) *
            ctx.LoadStored(values, out_at(ci, core_in, out, core_out) + b);
      }
    }
    ctx.StoreGlobal(values, to, sum);
  });
}

// A step of both joined cores.
template <typename Context>
TTBENCH_DEVICE void JoinCores(Context& ctx, const PanelJoins& joins,
                              typename Context::template Global<float> values) {
  for (int i = 0; i < joins.count; ++i) JoinOne(ctx, joins.join[i], values);
}
template <typename Context>
TTBENCH_DEVICE void JoinGradients(Context& ctx, const PanelJoins& joins, int64_t gradients,
                                  typename Context::template Global<float> values) {
  for (int i = 0; i < joins.count; ++i) JoinOneGradient(ctx, joins.join[i], gradients, values);
}

// Where the values of pair `pair` of part `part` begin.
TTBENCH_HOST_DEVICE int64_t PairValues(const PanelPack& pack, int part, int pair) {
  const int in = part / pack.part.out_tiles * pack.part.in_tile + pair % pack.part.in_tile;
  const int out = part % pack.part.out_tiles * pack.part.out_tile + pair / pack.part.in_tile;
  return pack.values + in * pack.stride_in + out * pack.stride_out;
}

// Packs the joined cores as the panel kernels read them; what fills up is zero.
template <CudaPrecision kPrecision, typename Context, typename Stored>
TTBENCH_DEVICE void PackPanels(Context& ctx, const PanelCudaParams& params,
                               typename Context::template Global<const float> values,
                               typename Context::template Global<Stored> packed) {
  using Fragment = Fragments<kPrecision>;
  constexpr int kBlock = kRowBlock * Fragment::kStep;
  for (int n = 0; n < params.packs; ++n) {
    const PanelPack& pack = params.pack[n];
    const int pairs = pack.part.pairs();
    const int depths = pack.layout == PanelPack::kPairsByRank ? pack.rank : pairs;
    const int steps = (depths + Fragment::kStep - 1) / Fragment::kStep;
    ForEachOwn(ctx, int64_t{pack.part.packed_elements} * pack.part.parts(), [&](int64_t i) {
      const int part = static_cast<int>(i / pack.part.packed_elements);
      const int rest = static_cast<int>(i % pack.part.packed_elements);
      int pair, a;
      if (pack.layout == PanelPack::kColumns) {
        pair = rest / pack.pitch;
        a = rest % pack.pitch;
      } else {
        const int block = rest / kBlock, in_block = rest % kBlock;
        const int row = block / steps * kRowBlock + Fragment::PackedRow(in_block);
        const int depth = block % steps * Fragment::kStep + Fragment::PackedDepth(in_block);
        pair = pack.layout == PanelPack::kPairsByRank ? row : depth;
        a = pack.layout == PanelPack::kPairsByRank ? depth : row;
      }
      float value = 0;
      if (pair < pairs && a < pack.rank) {
        value = ctx.template LoadGlobal<float>(values,
                                               PairValues(pack, part, pair) + a * pack.stride_a);
      }
      ctx.StoreGlobal(packed, pack.part.packed + i, Fragment::Round(value));
    });
  }
}

// The joined cores' gradients: the partial sums, added in their order. Those of the last two packs,
// L's and R's.
template <typename Context>
TTBENCH_DEVICE void SumPanels(Context& ctx, const PanelCudaParams& params,
                              typename Context::template Global<const float> partial,
                              typename Context::template Global<float> values) {
  const PanelGradient& gradient = params.gradient;
  for (int side = 0; side < 2; ++side) {
    const PanelPack& pack = params.pack[params.packs - 2 + side];
    const int64_t first = side == 0 ? gradient.left_partial : gradient.right_partial;
    const int64_t size = side == 0 ? gradient.left_size : gradient.right_size;
    const int64_t sets =
        int64_t{side == 0 ? gradient.right.parts() : gradient.left.parts()} * gradient.splits;
    ForEachOwn(ctx, size, [&](int64_t i) {
      float sum = 0;
      for (int64_t set = 0; set < sets; ++set) {
        sum += ctx.template LoadGlobal<float>(partial, first + set * size + i);
      }
      const int a = static_cast<int>(i % pack.rank), rest = static_cast<int>(i / pack.rank);
      const int pairs = pack.part.pairs();
      ctx.StoreGlobal(
          values,
          params.gradients + PairValues(pack, rest / pairs, rest % pairs) + a * pack.stride_a, sum);
    });
  }
}

}  // namespace ttbench
