// The bodies of the fused CUDA kernels, written once: nvcc compiles them over DeviceContext, and
// the tests run them over EmulatedContext, block by block on the host.
//
// Forward, a thread block does for each of its (tile, block of m_K), and each chunk of n_1:
//   x's chunk comes by asynchronous copies; cores K .. 2 in turn take it to T_1 in shared memory;
//   core 1 adds to the sums of y, which are written out after the last chunk. The next x comes
//   while cores K-1 .. 1 work.
// Backward, for each of its (tile, chunk of n_1), and each block of m_K:
//   the intermediates are computed again and all kept; then, from core 1 to core K, the core's
//   gradient and dT_k, which takes the place of T_{k-1}; core K adds to the sums of dx.
// A block's sums of the cores' gradients are its own; SumGradients adds them in the blocks' order,
// so that results repeat to the bit.
#pragma once

#include "kernels/cuda/fused_cuda_params.h"
#include "kernels/cuda/tensor_access.h"
#include "kernels/cuda/warp_tile.h"

namespace ttbench {

template <typename Context, typename Stored>
struct FusedCudaTensors {
  template <typename T>
  using Global = typename Context::template Global<T>;
  Global<const Stored> x, packed;
  Global<Stored> y;         // Forward.
  Global<const Stored> dy;  // Backward, like the rest.
  Global<Stored> dx;
  Global<float> partial;  // partial_elements for each block of the grid.
};

template <typename Context, CudaPrecision kPrecision>
class FusedBody {
 public:
  using Fragment = Fragments<kPrecision>;
  using Stored = typename Fragment::Stored;
  using Tensors = FusedCudaTensors<Context, Stored>;

  TTBENCH_DEVICE FusedBody(Context& ctx, const FusedCudaParams& params, const Tensors& tensors)
      : ctx_(ctx),
        params_(params),
        tensors_(tensors),
        lane_(ctx.Thread() % 32),
        warp_(ctx.Thread() / 32),
        warps_(ctx.Threads() / 32) {}

  TTBENCH_DEVICE void Forward() {
    LoadResidentCores(params_.products);
    int64_t unit = ctx_.Block();
    StartX(unit / params_.blocks, 0);
    for (; unit < params_.units; unit += ctx_.Blocks()) {
      const int64_t tile = unit / params_.blocks;
      const int block = static_cast<int>(unit % params_.blocks);
      const int samples = Samples(tile);
      for (int chunk = 0; chunk < params_.chunks; ++chunk) {
        FinishX(samples);
        ctx_.Barrier();
        const int last = params_.cores - 1;
        Contract<false>(params_.products[last], block, samples, true);
        ctx_.Barrier();
        // x is used up.
        if (chunk + 1 < params_.chunks) {
          StartX(tile, chunk + 1);
        } else if (unit + ctx_.Blocks() < params_.units) {
          StartX((unit + ctx_.Blocks()) / params_.blocks, 0);
        }
        for (int k = last - 1; k >= 1; --k) {
          Contract<false>(params_.products[k], 0, samples, true);
          ctx_.Barrier();
        }
        Contract<true>(params_.products[0], chunk, samples, chunk == 0);
      }
      ctx_.Barrier();
      WriteSums(params_.y, params_.y_offset, tile, block, tensors_.y, params_.out_features);
    }
    ctx_.WaitForCopies();  // Of the cores, if the batch is empty.
  }

  TTBENCH_DEVICE void Backward() {
    LoadResidentCores(params_.products);
    LoadResidentCores(params_.back);
    for (int k = 0; k < params_.cores; ++k) ZeroGradient(params_.gradients[k]);
    int64_t unit = ctx_.Block();
    StartX(unit / params_.chunks, static_cast<int>(unit % params_.chunks));
    for (; unit < params_.units; unit += ctx_.Blocks()) {
      const int64_t tile = unit / params_.chunks;
      const int chunk = static_cast<int>(unit % params_.chunks);
      const int samples = Samples(tile), last = params_.cores - 1;
      FinishX(samples);
      for (int block = 0; block < params_.blocks; ++block) {
        LoadDy(tile, block);
        ctx_.Barrier();
        for (int k = last; k >= 1; --k) {
          Contract<false>(params_.products[k], k == last ? block : 0, samples, true);
          ctx_.Barrier();
        }
        for (int k = 0; k < last; ++k) {
          const int part = k == 0 ? chunk : 0;
          AddGradient(params_.gradients[k], part, samples);
          Contract<false>(params_.back[k], part, samples, true);
          ctx_.Barrier();
        }
        AddGradient(params_.gradients[last], block, samples);
        Contract<true>(params_.back[last], block, samples, block == 0);
      }
      ctx_.Barrier();
      // x is used up.
      const int64_t next = unit + ctx_.Blocks();
      if (next < params_.units) {
        StartX(next / params_.chunks, static_cast<int>(next % params_.chunks));
      }
      WriteSums(params_.dx, params_.dx_offset, tile, chunk, tensors_.dx, params_.in_features);
    }
    ctx_.WaitForCopies();  // Of the cores, if the batch is empty.
    for (int k = 0; k < params_.cores; ++k) WriteGradient(params_.gradients[k]);
  }

 private:
  template <typename T>
  using Global = typename Context::template Global<T>;
  static constexpr int kBytes = sizeof(Stored);
  static constexpr int kColumnBlocks = ProductColumnBlocks(kPrecision);
  static constexpr int kColumns = kColumnBlocks * kColumnBlock;
  using Sums = WarpSums<kColumnBlocks>;
  using GradientSums = WarpSums<kGradientColumnBlocks>;

  TTBENCH_DEVICE int Samples(int64_t tile) const {
    const int64_t left = params_.batch - tile * params_.samples;
    return static_cast<int>(left < params_.samples ? left : params_.samples);
  }

  // Cores come with the first x.
  TTBENCH_DEVICE void LoadResidentCores(const CudaProduct* products) {
    constexpr int kVector = 16 / kBytes;
    for (int k = 0; k < params_.cores; ++k) {
      const CudaProduct& product = products[k];
      if (product.resident < 0) continue;
      for (int i = ctx_.Thread(); i < product.packed_elements / kVector; i += ctx_.Threads()) {
        ctx_.template CopyAsync<16>(product.resident + i * 16, tensors_.packed,
                                    product.packed + i * kVector);
      }
    }
  }

  // Calls visit(offset in a tensor of `features` a row, offset in shared memory, in elements) for
  // each vector of this thread.
  template <typename Visit>
  TTBENCH_DEVICE void ForEachVector(const CudaTileMap& map, int64_t tile, int part,
                                    int64_t features, const Visit& visit) const {
    const int count = map.count * Samples(tile);
    const int64_t first = tile * params_.samples * features + part * map.part_stride;
    for (int i = ctx_.Thread(); i < count; i += ctx_.Threads()) {
      uint32_t rest, column;
      const uint32_t sample = map.per_sample.Divide(i, &rest);
      const uint32_t run = map.run.Divide(rest, &column);
      const int64_t global = first + sample * features + run * map.run_stride +
                             static_cast<int64_t>(column) * map.vector;
      int shared = static_cast<int>(sample) * map.sample_stride;
      for (int d = 0; d < map.digits; ++d) {
        uint32_t digit;
        rest = map.digit[d].Divide(rest, &digit);
        shared += static_cast<int>(digit) * map.stride[d];
      }
      visit(global, shared);
    }
  }

  TTBENCH_DEVICE void StartX(int64_t tile, int chunk) {
    const int bytes = params_.x.vector * kBytes;
    ForEachVector(params_.x, tile, chunk, params_.in_features, [&](int64_t from, int to) {
      StartVector<Stored>(ctx_, params_.x_offset + to * kBytes, tensors_.x, from, bytes);
    });
  }

  // What this thread copied of the tile's x has come, and is rounded where products ask for it.
  TTBENCH_DEVICE void FinishX(int samples) {
    ctx_.WaitForCopies();
    if constexpr (kPrecision == CudaPrecision::kTf32) {
      // The places are the same in every tile and chunk.
      const int64_t tile = samples == params_.samples ? 0 : params_.batch / params_.samples;
      ForEachVector(params_.x, tile, 0, 0, [&](int64_t, int at) {
        for (int i = 0; i < params_.x.vector; ++i) {
          RoundShared(ctx_, params_.x_offset + (at + i) * kBytes);
        }
      });
    }
  }

  TTBENCH_DEVICE void LoadDy(int64_t tile, int block) {
    ForEachVector(params_.dy, tile, block, params_.out_features, [&](int64_t from, int to) {
      const Stored value = ctx_.template LoadGlobal<Stored>(tensors_.dy, from);
      ctx_.StoreShared(params_.dy_offset + to * kBytes, Fragment::Round(ToFloat(value)));
    });
  }

  // Of y or dx. Vectors are of 1, 2 or 4 sums.
  TTBENCH_DEVICE void WriteSums(const CudaTileMap& map, int offset, int64_t tile, int part,
                                Global<Stored> tensor, int64_t features) {
    ForEachVector(map, tile, part, features, [&](int64_t to, int from) {
      if (map.vector == 4) {
        const Words4 sums = ctx_.template LoadShared<Words4>(offset + from * 4);
        if constexpr (kBytes == 4) {
          ctx_.StoreGlobal(tensor, to, sums);
        } else {
          Words2 pairs;
          TTBENCH_UNROLL
          for (int i = 0; i < 2; ++i) {
            const uint32_t low = RoundToBfloat16(FloatOf(sums.word[2 * i])).bits;
            const uint32_t high = RoundToBfloat16(FloatOf(sums.word[2 * i + 1])).bits;
            pairs.word[i] = low | (high << 16);
          }
          ctx_.StoreGlobal(tensor, to, pairs);
        }
        return;
      }
      for (int i = 0; i < map.vector; ++i) {
        const float sum = ctx_.template LoadShared<float>(offset + (from + i) * 4);
        if constexpr (kBytes == 4) {
          ctx_.StoreGlobal(tensor, to + i, sum);
        } else {
          ctx_.StoreGlobal(tensor, to + i, RoundToBfloat16(sum));
        }
      }
    });
  }

  // Part `part` of the product, for `samples` samples. Into sums of float32 (kSums), or into an
  // intermediate. `first`: sets the sums instead of adding to them.
  template <bool kSums>
  TTBENCH_DEVICE void Contract(const CudaProduct& product, int part, int samples, bool first) {
    const int columns = product.columns * samples;
    const int row_tiles = (product.rows + kTileRows - 1) / kTileRows;
    const int column_tiles = (columns + kColumns - 1) / kColumns;
    for (int tile = warp_; tile < row_tiles * column_tiles; tile += warps_) {
      const int row = tile % row_tiles * kTileRows, column = tile / row_tiles * kColumns;
      Sums sums = {};
      if (product.resident >= 0) {
        MultiplyTile<true>(product, product.resident / kBytes + part * product.packed_part, row,
                           column, columns, sums);
      } else {
        MultiplyTile<false>(product,
                            product.packed + static_cast<int64_t>(part) * product.packed_part, row,
                            column, columns, sums);
      }
      StoreTile<kSums>(product, row, column, columns, first, sums);
    }
  }

  template <bool kResident>
  TTBENCH_DEVICE void MultiplyTile(const CudaProduct& product, int64_t packed, int row, int column,
                                   int columns, Sums& sums) {
    const int steps = (product.depth + Fragment::kStep - 1) / Fragment::kStep;
    const int64_t at = packed + static_cast<int64_t>(row) * steps * Fragment::kStep;
    MultiplyWarpTile<kPrecision, kResident, kColumnBlocks>(
        ctx_, tensors_.packed, at, row + kRowBlock < product.rows, product.depth, product.from,
        product.from_pitch, column, columns, lane_, sums);
  }

  template <bool kSums>
  TTBENCH_DEVICE void StoreTile(const CudaProduct& product, int row, int column, int columns,
                                bool first, const Sums& sums) {
    const int lanes = static_cast<int>(product.lanes.divisor);
    const int rank = static_cast<int>(product.rank.divisor);
    TTBENCH_UNROLL
    for (int n = 0; n < kColumnBlocks; ++n) {
      TTBENCH_UNROLL
      for (int j = 0; j < 2; ++j) {
        const int c = column + n * kColumnBlock + 2 * (lane_ % 4) + j;
        if (c >= columns) continue;
        uint32_t l, joined;
        const uint32_t o = product.joined.Divide(product.lanes.Divide(c, &l), &joined);
        const int column_to = static_cast<int>(o * product.heights * lanes + l) * product.to_pitch +
                              static_cast<int>(joined) * rank;
        TTBENCH_UNROLL
        for (int m = 0; m < kTileRowBlocks; ++m) {
          TTBENCH_UNROLL
          for (int i = 0; i < 2; ++i) {
            const int r = row + m * kRowBlock + 8 * i + lane_ / 4;
            if (r >= product.rows) continue;
            uint32_t a;
            const uint32_t h = product.rank.Divide(r, &a);
            const int to =
                column_to + static_cast<int>(h) * lanes * product.to_pitch + static_cast<int>(a);
            const float sum = sums[m][n][2 * i + j];
            if constexpr (kSums) {
              const int offset = product.to + to * 4;
              ctx_.StoreShared(offset, first ? sum : ctx_.template LoadShared<float>(offset) + sum);
            } else {
              ctx_.StoreShared(product.to + to * kBytes, Fragment::Round(sum));
            }
          }
        }
      }
    }
  }

  // Every element of a core's gradient is summed by one thread from beginning to end.
  TTBENCH_DEVICE void AddGradient(const CudaGradient& gradient, int part, int samples) {
    constexpr int kStep = Fragment::kStep;
    constexpr int kGradientColumns = kGradientColumnBlocks * kColumnBlock;
    const int columns = gradient.columns * samples;
    const int steps = (columns + kStep - 1) / kStep;
    const int row_tiles = (gradient.rows + kTileRows - 1) / kTileRows;
    const int depth_tiles = (gradient.depth + kGradientColumns - 1) / kGradientColumns;
    for (int item = warp_; item < row_tiles * depth_tiles * gradient.splits; item += warps_) {
      const int row = item % row_tiles * kTileRows;
      const int depth = item / row_tiles % depth_tiles * kGradientColumns;
      const int split = item / row_tiles / depth_tiles;
      const int begin = steps * split / gradient.splits,
                end = steps * (split + 1) / gradient.splits;
      GradientSums sums = {};
      SumWarpTile<kPrecision, kGradientColumnBlocks>(
          ctx_, {gradient.left, gradient.left_pitch, row, gradient.rows},
          {gradient.right, gradient.right_pitch, depth, gradient.depth}, begin, end, columns, lane_,
          sums);
      const int to = split * gradient.size + (row + part * gradient.row_part) * gradient.pitch +
                     depth + part * gradient.depth_part;
      AddSums(gradient, row, depth, to, sums);
    }
  }

  TTBENCH_DEVICE void AddSums(const CudaGradient& gradient, int row, int depth, int to,
                              const GradientSums& sums) {
    TTBENCH_UNROLL
    for (int m = 0; m < kTileRowBlocks; ++m) {
      TTBENCH_UNROLL
      for (int n = 0; n < kGradientColumnBlocks; ++n) {
        TTBENCH_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int r = m * kRowBlock + 8 * (i / 2) + lane_ / 4;
          const int d = n * kColumnBlock + 2 * (lane_ % 4) + i % 2;
          if (row + r >= gradient.rows || depth + d >= gradient.depth) continue;
          const int at = to + r * gradient.pitch + d;
          if (gradient.resident >= 0) {
            const int offset = gradient.resident + at * 4;
            ctx_.StoreShared(offset, ctx_.template LoadShared<float>(offset) + sums[m][n][i]);
          } else {
            const int64_t index = Partial(gradient) + at;
            ctx_.StoreGlobal(tensors_.partial, index,
                             ctx_.LoadStored(tensors_.partial, index) + sums[m][n][i]);
          }
        }
      }
    }
  }

  TTBENCH_DEVICE int64_t Partial(const CudaGradient& gradient) const {
    return ctx_.Block() * params_.partial_elements + gradient.partial;
  }

  TTBENCH_DEVICE void ZeroGradient(const CudaGradient& gradient) {
    for (int i = ctx_.Thread(); i < gradient.splits * gradient.size; i += ctx_.Threads()) {
      if (gradient.resident >= 0) {
        ctx_.StoreShared(gradient.resident + i * 4, 0.0f);
      } else {
        ctx_.StoreGlobal(tensors_.partial, Partial(gradient) + i, 0.0f);
      }
    }
  }

  TTBENCH_DEVICE void WriteGradient(const CudaGradient& gradient) {
    if (gradient.resident < 0) return;
    for (int i = ctx_.Thread(); i < gradient.splits * gradient.size; i += ctx_.Threads()) {
      ctx_.StoreGlobal(tensors_.partial, Partial(gradient) + i,
                       ctx_.template LoadShared<float>(gradient.resident + i * 4));
    }
  }

  Context& ctx_;
  const FusedCudaParams& params_;
  const Tensors& tensors_;
  const int lane_, warp_, warps_;
};

// Packs the cores as the products want them, in blocks of a row block by a step's depths. Rows and
// depths beyond a core's own are zero.
template <CudaPrecision kPrecision, typename Context, typename Stored>
TTBENCH_DEVICE void PackCores(Context& ctx, const FusedCudaParams& params,
                              const FusedCudaCores<Context, const Stored>& cores,
                              typename Context::template Global<Stored> packed) {
  using Fragment = Fragments<kPrecision>;
  constexpr int kBlock = kRowBlock * Fragment::kStep;
  for (int list = 0; list < 2; ++list) {
    for (int k = 0; k < params.cores; ++k) {
      const CudaProduct& product = list == 0 ? params.products[k] : params.back[k];
      const CudaCoreStrides& strides = params.core_strides[k];
      const int steps = (product.depth + Fragment::kStep - 1) / Fragment::kStep;
      const bool back = list == 1;
      for (int64_t i = ctx.Block() * ctx.Threads() + ctx.Thread(); i < product.packed_elements;
           i += ctx.Blocks() * ctx.Threads()) {
        const int part = static_cast<int>(i / product.packed_part);
        const int rest = static_cast<int>(i % product.packed_part);
        const int block = rest / kBlock, in_block = rest % kBlock;
        const int row = block / steps * kRowBlock + Fragment::PackedRow(in_block);
        const int depth = block % steps * Fragment::kStep + Fragment::PackedDepth(in_block);
        float value = 0;
        if (row < product.rows && depth < product.depth) {
          const int rank = static_cast<int>(product.rank.divisor);
          const int row_mode = row / rank + part * product.row_mode_part;
          const int depth_mode = depth / product.depth_rank + part * product.depth_mode_part;
          const int row_rank = row % rank, depth_rank = depth % product.depth_rank;
          const int64_t from = (back ? depth_rank : row_rank) * strides.a +
                               (back ? row_mode : depth_mode) * strides.n +
                               (back ? depth_mode : row_mode) * strides.m +
                               (back ? row_rank : depth_rank) * strides.b;
          value = ToFloat(ctx.template LoadGlobal<Stored>(cores.core[params.layer_core[k]], from));
        }
        ctx.StoreGlobal(packed, product.packed + i, Fragment::Round(value));
      }
    }
  }
}

// Adds the sums of `blocks` thread blocks, in their order, and writes the layer's core gradients.
template <CudaPrecision kPrecision, typename Context, typename Stored>
TTBENCH_DEVICE void SumGradients(Context& ctx, const FusedCudaParams& params, int64_t blocks,
                                 typename Context::template Global<const float> partial,
                                 const FusedCudaCores<Context, Stored>& dcores) {
  for (int k = 0; k < params.cores; ++k) {
    const CudaGradient& gradient = params.gradients[k];
    const CudaCoreStrides& strides = params.core_strides[k];
    for (int64_t i = ctx.Block() * ctx.Threads() + ctx.Thread(); i < gradient.size;
         i += ctx.Blocks() * ctx.Threads()) {
      float sum = 0;
      for (int64_t block = 0; block < blocks; ++block) {
        for (int split = 0; split < gradient.splits; ++split) {
          sum += ctx.template LoadGlobal<float>(
              partial, block * params.partial_elements + gradient.partial +
                           static_cast<int64_t>(split) * gradient.size + i);
        }
      }
      const int row = static_cast<int>(i / gradient.pitch);
      const int depth = static_cast<int>(i % gradient.pitch);
      const int a_size = static_cast<int>(params.products[k].rank.divisor);
      const int b_size = params.products[k].depth_rank;
      const int64_t to = row % a_size * strides.a + depth / b_size * strides.n +
                         row / a_size * strides.m + depth % b_size * strides.b;
      if constexpr (sizeof(Stored) == 4) {
        ctx.StoreGlobal(dcores.core[params.layer_core[k]], to, sum);
      } else {
        ctx.StoreGlobal(dcores.core[params.layer_core[k]], to, RoundToBfloat16(sum));
      }
    }
  }
}

}  // namespace ttbench
