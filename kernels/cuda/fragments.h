// The operands of a warp's product of one row block (16 rows) and one column block (8 columns), for
// each precision. With g = lane / 4 and q = lane % 4 a lane sums rows g and g + 8 at columns 2q and
// 2q + 1, as mma.sync does (PTX ISA, "Warp-level matrix instructions").
//
// A product may take its depths in any order that both operands share. Products with cores take
// them so that a lane's are neighbours, which it loads at once; the cores are packed accordingly.
#pragma once

#include "kernels/cuda/fused_cuda_params.h"

namespace ttbench {

struct alignas(8) Words2 {
  uint32_t word[2];
};
struct alignas(16) Words4 {
  uint32_t word[4];
};

// For each precision:
//   Stored         an element of a tensor, of an intermediate or of a packed core
//   Left, Right    a lane's part of the operands
//   kColumns       columns of a column block that a lane loads; Column(lane, i) is the i-th
//   PackedRow, PackedDepth   where element i of a packed block (16 rows x StepDepth) comes from;
//                  PackedIndex(row, depth) is i
//   LoadLeft       of a packed block that begins at element `at`, by ctx.LoadGlobal or LoadShared
//   LoadRight      of columns at `offset`, bytes, StepDepth depths from `depth` on; those from
//                  `end` on are zero and not read
//   SumLeft, SumRight   the operands of a sum over columns c .. c + StepDepth - 1 of two
//                  matrices [column][..]; columns from `end` on are zero and not read. offset: of
//                  element `first` of column 0; elements from `limit` on are those at limit - 1.
//   Multiply       sum += left * right
template <CudaPrecision kPrecision>
struct Fragments;

template <>
struct Fragments<CudaPrecision::kFloat32> {
  using Stored = float;
  static constexpr int kStep = StepDepth(CudaPrecision::kFloat32);
  static constexpr int kColumns = 2;
  struct Left {
    float value[2][kStep];  // Of rows g and g + 8.
  };
  struct Right {
    float value[2][kStep];  // Of columns 2q and 2q + 1.
  };

  static TTBENCH_DEVICE Stored Round(float value) { return value; }
  static TTBENCH_DEVICE int Column(int lane, int i) { return 2 * (lane % 4) + i; }
  static TTBENCH_HOST_DEVICE int PackedRow(int i) { return i / kStep; }
  static TTBENCH_HOST_DEVICE int PackedDepth(int i) { return i % kStep; }
  static TTBENCH_HOST_DEVICE int PackedIndex(int row, int depth) { return row * kStep + depth; }

  template <bool kResident, typename Context, typename Packed>
  static TTBENCH_DEVICE Left LoadLeft(Context& ctx, Packed packed, int64_t at, int lane) {
    Left left;
    TTBENCH_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int64_t from = at + (lane / 4 + 8 * i) * kStep;
      Words4 words;
      if constexpr (kResident) {
        words = ctx.template LoadShared<Words4>(static_cast<int>(from) * 4);
      } else {
        words = ctx.template LoadGlobal<Words4>(packed, from);
      }
      TTBENCH_UNROLL
      for (int d = 0; d < kStep; ++d) left.value[i][d] = FloatOf(words.word[d]);
    }
    return left;
  }

  template <typename Context>
  static TTBENCH_DEVICE Right LoadRight(Context& ctx, const int (&offset)[kColumns], int depth,
                                        int end, int) {
    Right right;
    TTBENCH_UNROLL
    for (int i = 0; i < 2; ++i) {
      if (depth + kStep <= end) {
        const Words4 words = ctx.template LoadShared<Words4>(offset[i] + depth * 4);
        TTBENCH_UNROLL
        for (int d = 0; d < kStep; ++d) right.value[i][d] = FloatOf(words.word[d]);
      } else {
        TTBENCH_UNROLL
        for (int d = 0; d < kStep; ++d) {
          right.value[i][d] =
              depth + d < end ? ctx.template LoadShared<float>(offset[i] + (depth + d) * 4) : 0;
        }
      }
    }
    return right;
  }

  template <typename Context>
  static TTBENCH_DEVICE Left SumLeft(Context& ctx, int offset, int pitch, int first, int limit,
                                     int c, int end, int lane) {
    Left left;
    TTBENCH_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int row = first + lane / 4 + 8 * i;
      const int at = offset + (row < limit ? row : limit - 1) * 4;
      TTBENCH_UNROLL
      for (int d = 0; d < kStep; ++d) {
        left.value[i][d] =
            c + d < end ? ctx.template LoadShared<float>(at + (c + d) * pitch * 4) : 0;
      }
    }
    return left;
  }

  template <typename Context>
  static TTBENCH_DEVICE Right SumRight(Context& ctx, int offset, int pitch, int first, int limit,
                                       int c, int end, int lane) {
    Right right;
    const int column = first + 2 * (lane % 4);
    TTBENCH_UNROLL
    for (int d = 0; d < kStep; ++d) {
      if (c + d >= end) {
        right.value[0][d] = right.value[1][d] = 0;
        continue;
      }
      const int at = offset + (c + d) * pitch * 4;
      if (column + 1 < limit) {
        const Words2 pair = ctx.template LoadShared<Words2>(at + column * 4);
        right.value[0][d] = FloatOf(pair.word[0]);
        right.value[1][d] = FloatOf(pair.word[1]);
      } else {
        right.value[0][d] = right.value[1][d] =
            ctx.template LoadShared<float>(at + (limit - 1) * 4);
      }
    }
    return right;
  }

  template <typename Context>
  static TTBENCH_DEVICE void Multiply(Context&, float (&sum)[4], const Left& left,
                                      const Right& right) {
    TTBENCH_UNROLL
    for (int d = 0; d < kStep; ++d) {
      TTBENCH_UNROLL
      for (int i = 0; i < 4; ++i) sum[i] += left.value[i / 2][d] * right.value[i % 2][d];
    }
  }
};

// What both tensor-core precisions share: Left is four words, Right two.
struct TensorCoreOperands {
  static constexpr int kColumns = 1;
  struct Left {
    uint32_t value[4];
  };
  struct Right {
    uint32_t value[2];
  };
  static TTBENCH_DEVICE int Column(int lane, int) { return lane / 4; }

  // 16 bytes for each lane, in their order.
  template <int kBytes, bool kResident, typename Context, typename Packed>
  static TTBENCH_DEVICE Left LoadWords(Context& ctx, Packed packed, int64_t at, int lane) {
    const int64_t from = at + lane * (16 / kBytes);
    Words4 words;
    if constexpr (kResident) {
      words = ctx.template LoadShared<Words4>(static_cast<int>(from) * kBytes);
    } else {
      words = ctx.template LoadGlobal<Words4>(packed, from);
    }
    return {{words.word[0], words.word[1], words.word[2], words.word[3]}};
  }
};

template <>
struct Fragments<CudaPrecision::kTf32> : TensorCoreOperands {
  using Stored = float;
  static constexpr int kStep = StepDepth(CudaPrecision::kTf32);

  static TTBENCH_DEVICE Stored Round(float value) { return RoundToTf32(value); }
  // Depths q and q + 4 of the instruction are depths 2q and 2q + 1 of the step.
  static TTBENCH_HOST_DEVICE int PackedRow(int i) { return i / 16 + 8 * (i % 2); }
  static TTBENCH_HOST_DEVICE int PackedDepth(int i) { return i / 4 % 4 * 2 + i % 4 / 2; }
  static TTBENCH_HOST_DEVICE int PackedIndex(int row, int depth) {
    return row % 8 * 16 + depth / 2 * 4 + depth % 2 * 2 + row / 8;
  }

  template <bool kResident, typename Context, typename Packed>
  static TTBENCH_DEVICE Left LoadLeft(Context& ctx, Packed packed, int64_t at, int lane) {
    return LoadWords<4, kResident>(ctx, packed, at, lane);
  }

  template <typename Context>
  static TTBENCH_DEVICE Right LoadRight(Context& ctx, const int (&offset)[1], int depth, int end,
                                        int lane) {
    const int d = depth + 2 * (lane % 4);
    if (depth + kStep <= end) {
      const Words2 words = ctx.template LoadShared<Words2>(offset[0] + d * 4);
      return {{words.word[0], words.word[1]}};
    }
    Right right;
    TTBENCH_UNROLL
    for (int i = 0; i < 2; ++i) {
      right.value[i] = d + i < end ? ctx.template LoadShared<uint32_t>(offset[0] + (d + i) * 4) : 0;
    }
    return right;
  }

  template <typename Context>
  static TTBENCH_DEVICE Left SumLeft(Context& ctx, int offset, int pitch, int first, int limit,
                                     int c, int end, int lane) {
    Left left;
    TTBENCH_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = first + lane / 4 + 8 * (i % 2), at = c + lane % 4 + 4 * (i / 2);
      left.value[i] = Element(ctx, offset, pitch, row < limit ? row : limit - 1, at, end);
    }
    return left;
  }

  template <typename Context>
  static TTBENCH_DEVICE Right SumRight(Context& ctx, int offset, int pitch, int first, int limit,
                                       int c, int end, int lane) {
    Right right;
    const int column = first + lane / 4;
    TTBENCH_UNROLL
    for (int i = 0; i < 2; ++i) {
      right.value[i] = Element(ctx, offset, pitch, column < limit ? column : limit - 1,
                               c + lane % 4 + 4 * i, end);
    }
    return right;
  }

  template <typename Context>
  static TTBENCH_DEVICE void Multiply(Context& ctx, float (&sum)[4], const Left& left,
                                      const Right& right) {
    ctx.MmaTf32(sum, left.value, right.value);
  }

 private:
  template <typename Context>
  static TTBENCH_DEVICE uint32_t Element(Context& ctx, int offset, int pitch, int row, int c,
                                         int end) {
    return c < end ? ctx.template LoadShared<uint32_t>(offset + (c * pitch + row) * 4) : 0;
  }
};

template <>
struct Fragments<CudaPrecision::kBfloat16> : TensorCoreOperands {
  using Stored = CudaBfloat16;
  static constexpr int kStep = StepDepth(CudaPrecision::kBfloat16);

  static TTBENCH_DEVICE Stored Round(float value) { return RoundToBfloat16(value); }
  // Depths 2q, 2q + 1, 2q + 8 and 2q + 9 of the instruction are depths 4q .. 4q + 3 of the step.
  static TTBENCH_HOST_DEVICE int PackedRow(int i) { return i / 32 + 8 * (i / 2 % 2); }
  static TTBENCH_HOST_DEVICE int PackedDepth(int i) {
    return i / 8 % 4 * 4 + i % 8 / 4 * 2 + i % 2;
  }
  static TTBENCH_HOST_DEVICE int PackedIndex(int row, int depth) {
    return row % 8 * 32 + depth / 4 * 8 + depth % 4 / 2 * 4 + row / 8 * 2 + depth % 2;
  }

  template <bool kResident, typename Context, typename Packed>
  static TTBENCH_DEVICE Left LoadLeft(Context& ctx, Packed packed, int64_t at, int lane) {
    return LoadWords<2, kResident>(ctx, packed, at, lane);
  }

  template <typename Context>
  static TTBENCH_DEVICE Right LoadRight(Context& ctx, const int (&offset)[1], int depth, int end,
                                        int lane) {
    const int d = depth + 4 * (lane % 4);
    if (depth + kStep <= end) {
      const Words2 words = ctx.template LoadShared<Words2>(offset[0] + d * 2);
      return {{words.word[0], words.word[1]}};
    }
    Right right;
    TTBENCH_UNROLL
    for (int i = 0; i < 2; ++i) {
      right.value[i] = Pair(Element(ctx, offset[0], 1, 0, d + 2 * i, end),
                            Element(ctx, offset[0], 1, 0, d + 2 * i + 1, end));
    }
    return right;
  }

  template <typename Context>
  static TTBENCH_DEVICE Left SumLeft(Context& ctx, int offset, int pitch, int first, int limit,
                                     int c, int end, int lane) {
    Left left;
    TTBENCH_UNROLL
    for (int i = 0; i < 4; ++i) {
      int row = first + lane / 4 + 8 * (i % 2);
      row = row < limit ? row : limit - 1;
      const int at = c + 2 * (lane % 4) + 8 * (i / 2);
      left.value[i] = Pair(Element(ctx, offset, pitch, row, at, end),
                           Element(ctx, offset, pitch, row, at + 1, end));
    }
    return left;
  }

  template <typename Context>
  static TTBENCH_DEVICE Right SumRight(Context& ctx, int offset, int pitch, int first, int limit,
                                       int c, int end, int lane) {
    Right right;
    int column = first + lane / 4;
    column = column < limit ? column : limit - 1;
    TTBENCH_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int at = c + 2 * (lane % 4) + 8 * i;
      right.value[i] = Pair(Element(ctx, offset, pitch, column, at, end),
                            Element(ctx, offset, pitch, column, at + 1, end));
    }
    return right;
  }

  template <typename Context>
  static TTBENCH_DEVICE void Multiply(Context& ctx, float (&sum)[4], const Left& left,
                                      const Right& right) {
    ctx.MmaBf16(sum, left.value, right.value);
  }

 private:
  static TTBENCH_DEVICE uint32_t Pair(uint32_t low, uint32_t high) { return low | (high << 16); }
  template <typename Context>
  static TTBENCH_DEVICE uint32_t Element(Context& ctx, int offset, int pitch, int row, int c,
                                         int end) {
    if (c >= end) return 0;
    return ctx.template LoadShared<CudaBfloat16>(offset + (c * pitch + row) * 2).bits;
  }
};

}  // namespace ttbench
