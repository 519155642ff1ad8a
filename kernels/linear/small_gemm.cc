#include "kernels/linear/small_gemm.h"

#include <libxsmm.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#define TTBENCH_INLINE inline __attribute__((always_inline))

namespace ttbench {
namespace {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
#define TTBENCH_ISA avx512
#define TTBENCH_VECTOR_BYTES 64
#define TTBENCH_TILE_ROWS 6
#define TTBENCH_TILE_VECTORS 4
#define TTBENCH_DOT_ROWS 4
#include "kernels/linear/small_gemm_loops.inc"
#undef TTBENCH_ISA
#undef TTBENCH_VECTOR_BYTES
#undef TTBENCH_TILE_ROWS
#undef TTBENCH_TILE_VECTORS
#undef TTBENCH_DOT_ROWS
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define TTBENCH_ISA avx2
#define TTBENCH_VECTOR_BYTES 32
#define TTBENCH_TILE_ROWS 6
#define TTBENCH_TILE_VECTORS 2
#define TTBENCH_DOT_ROWS 3
#include "kernels/linear/small_gemm_loops.inc"
#undef TTBENCH_ISA
#undef TTBENCH_VECTOR_BYTES
#undef TTBENCH_TILE_ROWS
#undef TTBENCH_TILE_VECTORS
#undef TTBENCH_DOT_ROWS
#pragma GCC pop_options
#define TTBENCH_HAS_X86_SETS
#endif

#define TTBENCH_ISA baseline
#define TTBENCH_VECTOR_BYTES 16
#define TTBENCH_TILE_ROWS 6
#define TTBENCH_TILE_VECTORS 2
#define TTBENCH_DOT_ROWS 3
#include "kernels/linear/small_gemm_loops.inc"

// The best set of loops that this CPU runs.
template <typename Real>
struct Loops {
  int64_t lanes;
  void (*gemm)(const GemmShape&, const Real*, const Real*, Real*);
  void (*dot)(const DotShape&, const Real*, const Real*, Real*);
  void (*transpose)(const Real*, int64_t, int64_t, int64_t, Real*, int64_t);
  void (*scatter)(const Real*, int64_t, int64_t, int64_t, const int32_t*, Real*, int64_t);
  void (*gather)(const Real*, int64_t, const int32_t*, int64_t, int64_t, Real*, int64_t);
};

template <typename Real>
const Loops<Real>& BestLoops() {
  static const Loops<Real> loops = [] {
#if defined(TTBENCH_HAS_X86_SETS)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
      return Loops<Real>{avx512::Simd<Real>::kLanes, avx512::Gemm<Real>,    avx512::Dot<Real>,
                         avx512::Transpose<Real>,    avx512::Scatter<Real>, avx512::Gather<Real>};
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      return Loops<Real>{avx2::Simd<Real>::kLanes, avx2::Gemm<Real>,    avx2::Dot<Real>,
                         avx2::Transpose<Real>,    avx2::Scatter<Real>, avx2::Gather<Real>};
    }
#endif
    return Loops<Real>{baseline::Simd<Real>::kLanes, baseline::Gemm<Real>,
                       baseline::Dot<Real>,          baseline::Transpose<Real>,
                       baseline::Scatter<Real>,      baseline::Gather<Real>};
  }();
  return loops;
}

float ToReal(BFloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float real;
  std::memcpy(&real, &bits, sizeof real);
  return real;
}

// Rounds to nearest, ties to even; NaN stays NaN.
BFloat16 ToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return {0x7fc0};
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

}  // namespace

template <typename Real>
SmallGemm<Real>::SmallGemm(const GemmShape& shape, bool portable)
    : shape_(shape), loops_(BestLoops<Real>().gemm) {
  if (portable || shape.rows == 0 || shape.lanes == 0 || shape.depth == 0) return;
  constexpr int64_t kLargest = std::numeric_limits<libxsmm_blasint>::max();
  for (int64_t size : {shape.rows, shape.lanes, shape.depth, shape.lda, shape.ldt, shape.ldc}) {
    if (size > kLargest) return;
  }
  // Column-major, C^T[lanes, rows] = T^T[lanes, depth] A^T[depth, rows].
  const auto m = static_cast<libxsmm_blasint>(shape.lanes);
  const auto n = static_cast<libxsmm_blasint>(shape.rows);
  const auto k = static_cast<libxsmm_blasint>(shape.depth);
  const auto ldt = static_cast<libxsmm_blasint>(shape.ldt);
  const auto lda = static_cast<libxsmm_blasint>(shape.lda);
  const auto ldc = static_cast<libxsmm_blasint>(shape.ldc);
  const Real alpha = 1, beta = shape.accumulate ? 1 : 0;
  const int flags = shape.transposed_a ? LIBXSMM_GEMM_FLAG_TRANS_B : LIBXSMM_GEMM_FLAG_NONE;
  if constexpr (std::is_same_v<Real, float>) {
    kernel_ = libxsmm_smmdispatch(m, n, k, &ldt, &lda, &ldc, &alpha, &beta, &flags, nullptr);
  } else {
    kernel_ = libxsmm_dmmdispatch(m, n, k, &ldt, &lda, &ldc, &alpha, &beta, &flags, nullptr);
  }
}

template <typename Real>
void DotGemm(const DotShape& shape, const Real* p, const Real* q, Real* c) {
  BestLoops<Real>().dot(shape, p, q, c);
}

template <typename Element, typename Real>
void PackTile(const Element* rows, int64_t ld, int64_t count, int64_t columns, int64_t width,
              Real* tile, int64_t tile_ld) {
  if constexpr (std::is_same_v<Element, Real>) {
    if (tile_ld == 1 && count == 1) {
      std::copy_n(rows, columns, tile);
      return;
    }
    BestLoops<Real>().transpose(rows, ld, count, columns, tile, tile_ld);
  } else {
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < count; ++i) tile[j * tile_ld + i] = ToReal(rows[i * ld + j]);
    }
  }
  if (count == width) return;
  for (int64_t j = 0; j < columns; ++j) {
    std::fill_n(tile + j * tile_ld + count, width - count, Real(0));
  }
}

template <typename Element, typename Real>
void UnpackTile(const Real* tile, int64_t tile_ld, int64_t columns, int64_t count, Element* rows,
                int64_t ld) {
  if constexpr (std::is_same_v<Element, Real>) {
    if (tile_ld == 1) {
      std::copy_n(tile, columns, rows);
      return;
    }
    BestLoops<Real>().transpose(tile, tile_ld, columns, count, rows, ld);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < columns; ++j) rows[i * ld + j] = ToBFloat16(tile[j * tile_ld + i]);
    }
  }
}

template <typename Element, typename Real>
void PackTile(const Element* rows, int64_t ld, int64_t count, int64_t columns, int64_t width,
              const int32_t* place, Real* tile) {
  if constexpr (std::is_same_v<Element, Real>) {
    BestLoops<Real>().scatter(rows, ld, count, columns, place, tile, width);
  } else {
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < count; ++i) tile[place[j] * width + i] = ToReal(rows[i * ld + j]);
    }
  }
  if (count == width) return;
  for (int64_t j = 0; j < columns; ++j) {
    std::fill_n(tile + place[j] * width + count, width - count, Real(0));
  }
}

template <typename Element, typename Real>
void UnpackTile(const Real* tile, int64_t width, const int32_t* place, int64_t columns,
                int64_t count, Element* rows, int64_t ld) {
  if constexpr (std::is_same_v<Element, Real>) {
    BestLoops<Real>().gather(tile, width, place, columns, count, rows, ld);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        rows[i * ld + j] = ToBFloat16(tile[place[j] * width + i]);
      }
    }
  }
}

template <typename Real>
int64_t VectorLanes() {
  return BestLoops<Real>().lanes;
}

template class SmallGemm<float>;
template class SmallGemm<double>;
template void DotGemm(const DotShape&, const float*, const float*, float*);
template void DotGemm(const DotShape&, const double*, const double*, double*);
template void PackTile(const float*, int64_t, int64_t, int64_t, int64_t, float*, int64_t);
template void PackTile(const double*, int64_t, int64_t, int64_t, int64_t, double*, int64_t);
template void PackTile(const BFloat16*, int64_t, int64_t, int64_t, int64_t, float*, int64_t);
template void UnpackTile(const float*, int64_t, int64_t, int64_t, float*, int64_t);
template void UnpackTile(const double*, int64_t, int64_t, int64_t, double*, int64_t);
template void UnpackTile(const float*, int64_t, int64_t, int64_t, BFloat16*, int64_t);
template void PackTile(const float*, int64_t, int64_t, int64_t, int64_t, const int32_t*, float*);
template void UnpackTile(const float*, int64_t, const int32_t*, int64_t, int64_t, float*, int64_t);
template void PackTile(const double*, int64_t, int64_t, int64_t, int64_t, const int32_t*, double*);
template void UnpackTile(const double*, int64_t, const int32_t*, int64_t, int64_t, double*,
                         int64_t);
template void PackTile(const BFloat16*, int64_t, int64_t, int64_t, int64_t, const int32_t*, float*);
template void UnpackTile(const float*, int64_t, const int32_t*, int64_t, int64_t, BFloat16*,
                         int64_t);
template int64_t VectorLanes<float>();
template int64_t VectorLanes<double>();

}  // namespace ttbench
