// The fused kernel on raw pointers: runs a FusedPlan. No LibTorch, and no allocation of elements:
// the caller brings the scratch.
//
// x is [B, N] and y is [B, M], row-major; core k is [r_{k-1}, n_k, m_k, r_k], row-major. Element:
// float, double or BFloat16, as stored; sums are in float or double.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/linear/fused_plan.h"
#include "kernels/linear/small_gemm.h"
#include "kernels/shape.h"

namespace ttbench {

class Prefetch;

template <typename Element>
class FusedKernel {
 public:
  using Real = std::conditional_t<std::is_same_v<Element, double>, double, float>;

  // `portable`: no generated code.
  FusedKernel(const TtShape& shape, const FusedPlan& plan, bool portable = false);

  const FusedPlan& plan() const { return plan_; }

  // Scratch of the plan's sizes: packed_elements; slots * slot_elements; slots * gradient_elements.
  struct Scratch {
    Real* packed = nullptr;
    Real* slots = nullptr;
    Real* gradients = nullptr;
  };

  // In this order, each for all its parts or slots, in any order or at once. Part `part` of
  // `parts`.
  void PackCores(int64_t part, int64_t parts, const std::vector<const Element*>& cores,
                 const Scratch& scratch) const;
  void Forward(int64_t slot, const Element* x, Element* y, const Scratch& scratch) const;
  // Writes dx, and leaves the slot's sums of the cores' gradients in the scratch.
  void Backward(int64_t slot, const Element* x, const Element* dy, Element* dx,
                const Scratch& scratch) const;
  // Sums over the slots, in their order.
  void WriteCoreGradients(int64_t part, int64_t parts, const Scratch& scratch,
                          const std::vector<Element*>& dcores) const;

  // Whose code the products are: "LIBXSMM" or "vector loops".
  const char* gemm_name() const;

 private:
  // The products of one size of chunk and of block.
  struct Products {
    int64_t chunk = 0, block = 0;
    // Mirrored: the rows of the tile at which the columns of a chunk of x, and of a block of y,
    // stand.
    std::vector<int32_t> x_places, y_places;
    SmallGemm<Real> last, first, first_more;                // Forward: cores K and 1.
    std::vector<SmallGemm<Real>> middle;                    // Forward: core k; 1 <= k < K - 1.
    SmallGemm<Real> last_back, last_back_more, first_back;  // The same for x's gradient.
    std::vector<SmallGemm<Real>> middle_back;
    SmallGemm<Real> last_gradient;  // Single samples only.
    struct MiddleGradient {
      bool transposed = false;
      SmallGemm<Real> full, rest;  // Of kTransposedRows columns, and of what is left.
      DotShape dot;
    };
    std::vector<MiddleGradient> middle_gradient;
  };

  Products MakeProducts(int64_t chunk, int64_t block) const;
  const Products& ProductsOf(int64_t chunk, int64_t block) const;
  // T_{K-1} .. T_1 of a chunk of a tile and a block of m_K.
  void ContractChunk(const Products& products, int64_t block_index, const Real* x, Real* slot,
                     const Scratch& scratch, Prefetch& prefetch) const;
  // What is moved next to each product of a tile of `rows` rows from `row` on: in the forward the
  // next rows of x and these of y, in the backward the next of x and dy and these of dx. `out` is y
  // or dx.
  Prefetch PrefetchBeside(int64_t row, const Element* x, const Element* dy,
                          const Element* out) const;
  // Calls visit(offset in the core, its stride there, offset in the packed core, offset in the
  // transposed, its stride there) for each run of r_k elements of the part, contiguous in the
  // packed core.
  template <typename Visit>
  void ForEachRun(int64_t k, int64_t part, int64_t parts, const Visit& visit) const;
  // The layer's core that is core k of order_.
  int64_t CoreOf(int64_t k) const { return plan_.mirrored ? order_.cores() - 1 - k : k; }
  // Between `rows` rows of x or y and a tile: of x a chunk (forward: all of it), of y a block, with
  // their sizes as in `products`.
  void PackX(const Products& products, const Element* x, int64_t rows, int64_t chunk_begin,
             Real* tile) const;
  void UnpackX(const Products& products, const Real* tile, int64_t rows, int64_t chunk_begin,
               Element* x) const;
  void PackY(const Products& products, const Element* y, int64_t rows, int64_t block_begin,
             Real* tile) const;
  void UnpackY(const Products& products, const Real* tile, int64_t rows, int64_t block_begin,
               Element* y) const;
  // Calls visit(offset in a row, columns, where the run begins among the part's columns) for each
  // run of columns that are contiguous in a row.
  template <typename Visit>
  void ForEachRunOfX(int64_t chunk_begin, int64_t chunk, const Visit& visit) const;
  template <typename Visit>
  void ForEachRunOfY(int64_t block_begin, int64_t block, const Visit& visit) const;
  int64_t UnitBegin(int64_t slot) const { return plan_.units() * slot / plan_.slots; }

  FusedPlan plan_;
  TtShape order_;  // Contracted from its last core to its first.
  FusedLayout layout_;
  bool portable_;
  std::vector<Products> products_;
};

}  // namespace ttbench
