// The arithmetic of the fused kernel: products of small row-major matrices, and the moves between
// row-major tensors and tiles. No LibTorch; nothing here allocates.
//
// Products with a contiguous innermost dimension ("lanes") come from LIBXSMM, which generates code
// for the exact sizes on CPUs with AVX-512 or AVX2; elsewhere, and for the contraction over lanes
// that LIBXSMM has no kernel for, from loops on vector types, compiled for AVX-512, AVX2 and the
// compiler's baseline and chosen when the program runs.
#pragma once

#include <cstdint>

namespace ttbench {

// bfloat16 as stored: the upper half of a float32.
struct BFloat16 {
  uint16_t bits;
};

// C[rows, lanes] = A[rows, depth] T[depth, lanes], or += with `accumulate`. The innermost dimension
// of T and C is contiguous; that of A as well, unless transposed_a: then A is stored [depth, rows].
// Leading dimensions count elements.
struct GemmShape {
  int64_t rows = 0, lanes = 0, depth = 0;
  int64_t lda = 0, ldt = 0, ldc = 0;
  bool transposed_a = false;
  bool accumulate = false;
};

// Real: float or double.
template <typename Real>
class SmallGemm {
 public:
  SmallGemm() = default;
  // portable: the vector loops even where LIBXSMM has a kernel.
  explicit SmallGemm(const GemmShape& shape, bool portable = false);

  void operator()(const Real* a, const Real* t, Real* c) const {
    if (kernel_ != nullptr) {
      kernel_(t, a, c);
    } else {
      loops_(shape_, a, t, c);
    }
  }
  const char* name() const { return kernel_ != nullptr ? "LIBXSMM" : "vector loops"; }

 private:
  GemmShape shape_;
  void (*kernel_)(const Real* t, const Real* a, Real* c, ...) = nullptr;
  void (*loops_)(const GemmShape&, const Real* a, const Real* t, Real* c) = nullptr;
};

// C[p, q] += sum over o < outer, l < lanes of P[o, p, l] Q[o, q, l]: both innermost dimensions are
// contiguous. C has leading dimension ldc.
struct DotShape {
  int64_t p_rows = 0, q_rows = 0, lanes = 0, outer = 1;
  int64_t ldp = 0, ldq = 0, ldc = 0;
  int64_t p_outer_stride = 0, q_outer_stride = 0;
};
template <typename Real>
void DotGemm(const DotShape& shape, const Real* p, const Real* q, Real* c);

// tile[column, i] = rows[i, column] for i < count; 0 for count <= i < width. Row i starts at
// rows + i * ld, column j of the tile at tile + j * tile_ld.
template <typename Element, typename Real>
void PackTile(const Element* rows, int64_t ld, int64_t count, int64_t columns, int64_t width,
              Real* tile, int64_t tile_ld);
// rows[i, column] = tile[column, i] for i < count.
template <typename Element, typename Real>
void UnpackTile(const Real* tile, int64_t tile_ld, int64_t columns, int64_t count, Element* rows,
                int64_t ld);

// The same where the tile is [columns, width] with its rows in another order: column j of the rows
// is row place[j] of the tile.
template <typename Element, typename Real>
void PackTile(const Element* rows, int64_t ld, int64_t count, int64_t columns, int64_t width,
              const int32_t* place, Real* tile);
template <typename Element, typename Real>
void UnpackTile(const Real* tile, int64_t width, const int32_t* place, int64_t columns,
                int64_t count, Element* rows, int64_t ld);

// The same where the tile is [columns, width].
template <typename Element, typename Real>
void PackTile(const Element* rows, int64_t ld, int64_t count, int64_t columns, int64_t width,
              Real* tile) {
  PackTile(rows, ld, count, columns, width, tile, width);
}

// Elements in a vector register of this CPU, as far as the loops and LIBXSMM use it.
template <typename Real>
int64_t VectorLanes();

}  // namespace ttbench
