#include "kernels/linear/fused_kernel.h"

#include <algorithm>
#include <array>

namespace ttbench {
namespace {

float Widen(float value) { return value; }
double Widen(double value) { return value; }
float Widen(BFloat16 value) {
  float wide;
  PackTile(&value, 1, 1, 1, 1, &wide);
  return wide;
}

void Narrow(float value, float* to) { *to = value; }
void Narrow(double value, double* to) { *to = value; }
void Narrow(float value, BFloat16* to) { UnpackTile(&value, 1, 1, 1, to, 1); }

}  // namespace

template <typename Element>
FusedKernel<Element>::FusedKernel(const TtShape& shape, const FusedPlan& plan, bool portable)
    : plan_(plan),
      order_(FusedOrder(shape, plan.mirrored)),
      layout_(LayOutFused(order_, plan, sizeof(Real))),
      portable_(portable) {
  const int64_t last_block = order_.m(order_.cores() - 1) - (plan.blocks - 1) * plan.block;
  const int64_t last_chunk = order_.n(0) - (plan.chunks - 1) * plan.chunk;
  for (int64_t chunk : {plan.chunk, last_chunk}) {
    for (int64_t block : {plan.block, last_block}) {
      const bool made =
          std::any_of(products_.begin(), products_.end(), [&](const Products& products) {
            return products.chunk == chunk && products.block == block;
          });
      if (!made) products_.push_back(MakeProducts(chunk, block));
    }
  }
}

template <typename Element>
typename FusedKernel<Element>::Products FusedKernel<Element>::MakeProducts(int64_t chunk,
                                                                           int64_t block) const {
  const int64_t last = order_.cores() - 1, s = plan_.samples;
  const bool backward = plan_.pass == FusedPass::kBackward;
  auto gemm = [&](int64_t rows, int64_t lanes, int64_t depth, int64_t lda, bool accumulate,
                  bool transposed_a = false) {
    return SmallGemm<Real>({rows, lanes, depth, lda, lanes, lanes, transposed_a, accumulate},
                           portable_);
  };
  Products products;
  products.chunk = chunk;
  products.block = block;
  int64_t outer = chunk;
  for (int64_t k = 1; k < last; ++k) outer *= order_.n(k);
  const int64_t last_rows = order_.left_rank(last) * block, n = order_.n(last);
  products.last = s == 1 ? gemm(outer, last_rows, n, n, false) : gemm(last_rows, s, n, n, false);
  if (backward) {
    for (bool more : {false, true}) {
      (more ? products.last_back_more : products.last_back) =
          s == 1 ? gemm(outer, n, last_rows, last_rows, more)
                 : gemm(n, s, last_rows, n, more, true);
    }
    if (s == 1) {
      products.last_gradient =
          SmallGemm<Real>({last_rows, n, outer, last_rows, n, n, true, true}, portable_);
    }
  }
  products.middle.resize(last);
  products.middle_back.resize(last);
  products.middle_gradient.resize(last);
  int64_t right = block * s;
  for (int64_t k = last - 1; k >= 1; --k) {
    outer /= order_.n(k);
    const int64_t rows = order_.left_rank(k) * order_.m(k);
    const int64_t depth = order_.n(k) * order_.right_rank(k);
    products.middle[k] = gemm(rows, right, depth, depth, false);
    if (backward) {
      products.middle_back[k] = gemm(depth, right, rows, depth, false, true);
      auto& gradient = products.middle_gradient[k];
      gradient.transposed = TransposedGradientPays(depth, right * outer);
      if (gradient.transposed) {
        auto part = [&](int64_t lanes) {
          return SmallGemm<Real>({rows, lanes, right, right, lanes, depth, false, true}, portable_);
        };
        gradient.full = part(std::min(depth, kTransposedRows));
        gradient.rest = part(depth % kTransposedRows);
      } else {
        gradient.dot = {rows,  depth, right,        outer,        right,
                        right, depth, rows * right, depth * right};
      }
    }
    right *= order_.m(k);
  }
  const int64_t first_rows = chunk * order_.right_rank(0);
  const int64_t first_lda = order_.n(0) * order_.right_rank(0);
  if (backward) {
    products.first_back = gemm(first_rows, right, order_.m(0), first_lda, false, true);
  } else {
    products.first = gemm(order_.m(0), right, first_rows, first_lda, false);
    products.first_more = gemm(order_.m(0), right, first_rows, first_lda, true);
  }
  return products;
}

template <typename Element>
const typename FusedKernel<Element>::Products& FusedKernel<Element>::ProductsOf(
    int64_t chunk, int64_t block) const {
  return *std::find_if(products_.begin(), products_.end(), [&](const Products& products) {
    return products.chunk == chunk && products.block == block;
  });
}

template <typename Element>
const char* FusedKernel<Element>::gemm_name() const {
  return products_.front().last.name();
}

template <typename Element>
template <typename Visit>
void FusedKernel<Element>::ForEachRun(int64_t k, int64_t part, int64_t parts,
                                      const Visit& visit) const {
  const int64_t r = order_.left_rank(k), n = order_.n(k), m = order_.m(k), q = order_.right_rank(k);
  const int64_t block = k == order_.cores() - 1 ? plan_.block : m;
  for (int64_t row = r * n * part / parts; row < r * n * (part + 1) / parts; ++row) {
    const int64_t a = row / n, i = row % n;
    for (int64_t j0 = 0; j0 < m; j0 += block) {
      const int64_t width = std::min(block, m - j0), base = j0 * r * n * q;
      for (int64_t j = 0; j < width; ++j) {
        const int64_t offset = plan_.mirrored ? (i * m + j0 + j) * r + a : (row * m + j0 + j) * q;
        visit(offset, plan_.mirrored ? n * m * r : 1, base + ((a * width + j) * n + i) * q,
              base + (i * q * r + a) * width + j, r * width);
      }
    }
  }
}

template <typename Element>
template <typename Visit>
void FusedKernel<Element>::ForEachMirroredRun(const Modes& modes, const Modes& part, int64_t offset,
                                              const Visit& visit) const {
  // The first mode of order_ is contiguous in a row, and the last one in a tile.
  const size_t count = modes.size();
  std::array<int64_t, kMaxCores> stride, index = {};
  int64_t product = 1, runs = 1;
  for (size_t k = 0; k < count; ++k) {
    stride[k] = product;
    product *= modes[k];
    if (k > 0) runs *= part[k];
  }
  for (int64_t run = 0; run < runs; ++run) {
    visit(offset, part[0], run * plan_.samples, runs * plan_.samples);
    for (size_t k = count - 1; k > 0; --k) {
      offset += stride[k];
      if (++index[k] < part[k]) break;
      offset -= part[k] * stride[k];
      index[k] = 0;
    }
  }
}

template <typename Element>
template <typename Visit>
void FusedKernel<Element>::ForEachRunOfX(int64_t begin, int64_t chunk, const Visit& visit) const {
  if (plan_.mirrored) {
    Modes part = order_.in_modes();
    part.front() = chunk;
    return ForEachMirroredRun(order_.in_modes(), part, begin, visit);
  }
  const int64_t row_inputs = order_.in_features() / order_.n(0);
  visit(begin * row_inputs, chunk * row_inputs, 0, plan_.samples);
}

template <typename Element>
template <typename Visit>
void FusedKernel<Element>::ForEachRunOfY(int64_t begin, int64_t block, const Visit& visit) const {
  const int64_t out = order_.out_features(), m = order_.out_modes().back();
  if (plan_.mirrored) {
    Modes part = order_.out_modes();
    part.back() = block;
    return ForEachMirroredRun(order_.out_modes(), part, begin * (out / m), visit);
  }
  if (plan_.blocks == 1) return visit(0, out, 0, plan_.samples);
  for (int64_t j = 0; j < out / m; ++j) {
    visit(j * m + begin, block, j * block * plan_.samples, plan_.samples);
  }
}

template <typename Element>
void FusedKernel<Element>::PackCores(int64_t part, int64_t parts,
                                     const std::vector<const Element*>& cores,
                                     const Scratch& scratch) const {
  for (int64_t k = 0; k < order_.cores(); ++k) {
    const Element* core = cores[CoreOf(k)];
    const int64_t q = order_.right_rank(k);
    if (layout_.core[k] >= 0) {
      Real* packed = scratch.packed + layout_.core[k];
      ForEachRun(k, part, parts, [=](int64_t from, int64_t step, int64_t to, int64_t, int64_t) {
        for (int64_t b = 0; b < q; ++b) packed[to + b] = Widen(core[from + b * step]);
      });
    }
    if (k == order_.cores() - 1 && layout_.last_transposed >= 0) {
      Real* packed = scratch.packed + layout_.last_transposed;
      ForEachRun(k, part, parts,
                 [=](int64_t from, int64_t step, int64_t, int64_t to, int64_t stride) {
                   for (int64_t b = 0; b < q; ++b)
                     packed[to + b * stride] = Widen(core[from + b * step]);
                 });
    }
  }
}

template <typename Element>
void FusedKernel<Element>::ContractChunk(const Products& products, int64_t block_index,
                                         const Real* x, Real* slot, const Scratch& scratch) const {
  const int64_t last = order_.cores() - 1, s = plan_.samples;
  const int64_t core_offset = block_index * plan_.block * order_.left_rank(last) * order_.n(last);
  int64_t outer = products.chunk;
  for (int64_t k = 1; k < last; ++k) outer *= order_.n(k);
  Real* to = slot + layout_.partial[last];
  if (s == 1) {
    products.last(x, scratch.packed + layout_.last_transposed + core_offset, to);
  } else {
    const Real* core = scratch.packed + layout_.core[last] + core_offset;
    const int64_t from_stride = order_.n(last) * s;
    const int64_t to_stride = order_.left_rank(last) * products.block * s;
    for (int64_t o = 0; o < outer; ++o)
      products.last(core, x + o * from_stride, to + o * to_stride);
  }
  int64_t right = products.block * s;
  for (int64_t k = last - 1; k >= 1; --k) {
    outer /= order_.n(k);
    const Real* from = to;
    to = slot + layout_.partial[k];
    const Real* core = scratch.packed + layout_.core[k];
    const int64_t from_stride = order_.n(k) * order_.right_rank(k) * right;
    const int64_t to_stride = order_.left_rank(k) * order_.m(k) * right;
    for (int64_t o = 0; o < outer; ++o) {
      products.middle[k](core, from + o * from_stride, to + o * to_stride);
    }
    right *= order_.m(k);
  }
}

template <typename Element>
void FusedKernel<Element>::Forward(int64_t slot_index, const Element* x, Element* y,
                                   const Scratch& scratch) const {
  const int64_t last = order_.cores() - 1, s = plan_.samples;
  const int64_t in = order_.in_features(), out = order_.out_features();
  const int64_t m = order_.m(last);
  Real* slot = scratch.slots + slot_index * plan_.slot_elements;
  Real* x_tile = slot + layout_.x;
  Real* y_block = slot + layout_.y;
  int64_t packed_tile = -1;
  for (int64_t unit = UnitBegin(slot_index); unit < UnitBegin(slot_index + 1); ++unit) {
    const int64_t tile = unit / plan_.blocks, block_index = unit % plan_.blocks;
    const int64_t row = tile * s, rows = std::min(s, plan_.batch - row);
    if (tile != packed_tile) {
      ForEachRunOfX(0, order_.n(0), [&](int64_t from, int64_t columns, int64_t to, int64_t ld) {
        PackTile(x + row * in + from, in, rows, columns, s, x_tile + to, ld);
      });
      packed_tile = tile;
    }
    const int64_t block = std::min(plan_.block, m - block_index * plan_.block);
    for (int64_t i = 0; i < order_.n(0); i += plan_.chunk) {
      const Products& products = ProductsOf(std::min(plan_.chunk, order_.n(0) - i), block);
      ContractChunk(products, block_index, x_tile + i * (in / order_.n(0)) * s, slot, scratch);
      const Real* core = scratch.packed + layout_.core[0] + i * order_.right_rank(0);
      (i == 0 ? products.first : products.first_more)(core, slot + layout_.partial[1], y_block);
    }
    ForEachRunOfY(block_index * plan_.block, block,
                  [&](int64_t to, int64_t columns, int64_t from, int64_t ld) {
                    UnpackTile(y_block + from, ld, columns, rows, y + row * out + to, out);
                  });
  }
}

template <typename Element>
void FusedKernel<Element>::Backward(int64_t slot_index, const Element* x, const Element* dy,
                                    Element* dx, const Scratch& scratch) const {
  const int64_t last = order_.cores() - 1, s = plan_.samples;
  const int64_t in = order_.in_features(), out = order_.out_features();
  const int64_t m = order_.m(last);
  const int64_t first_depth = order_.n(0) * order_.right_rank(0);
  Real* slot = scratch.slots + slot_index * plan_.slot_elements;
  Real* gradients = scratch.gradients + slot_index * plan_.gradient_elements;
  std::fill_n(gradients, plan_.gradient_elements, Real(0));
  Real* x_chunk = slot + layout_.x;
  Real* dx_chunk = slot + layout_.dx;
  Real* transposed = slot + layout_.transposed;
  const int64_t block_stride = out / m * plan_.block * s;
  int64_t packed_tile = -1;
  for (int64_t unit = UnitBegin(slot_index); unit < UnitBegin(slot_index + 1); ++unit) {
    const int64_t tile = unit / plan_.chunks, i = unit % plan_.chunks * plan_.chunk;
    const int64_t row = tile * s, rows = std::min(s, plan_.batch - row);
    const int64_t chunk = std::min(plan_.chunk, order_.n(0) - i);
    if (tile != packed_tile) {
      packed_tile = tile;
      for (int64_t b = 0; b < plan_.blocks; ++b) {
        const int64_t block = std::min(plan_.block, m - b * plan_.block);
        Real* dy_block = slot + layout_.y + b * block_stride;
        ForEachRunOfY(b * plan_.block, block,
                      [&](int64_t from, int64_t columns, int64_t to, int64_t ld) {
                        PackTile(dy + row * out + from, out, rows, columns, s, dy_block + to, ld);
                      });
      }
    }
    ForEachRunOfX(i, chunk, [&](int64_t from, int64_t columns, int64_t to, int64_t ld) {
      PackTile(x + row * in + from, in, rows, columns, s, x_chunk + to, ld);
    });
    for (int64_t b = 0; b < plan_.blocks; ++b) {
      const int64_t block = std::min(plan_.block, m - b * plan_.block);
      const Products& products = ProductsOf(chunk, block);
      ContractChunk(products, b, x_chunk, slot, scratch);

      const Real* dy_block = slot + layout_.y + b * block_stride;
      int64_t right = out / m / order_.m(0) * block * s;
      Real* gradient = slot + layout_.partial_gradient[1];
      products.first_back(scratch.packed + layout_.core[0] + i * order_.right_rank(0), dy_block,
                          gradient);
      DotShape dot{
          order_.m(0), chunk * order_.right_rank(0), right, 1, right, right, first_depth, 0, 0};
      DotGemm(dot, dy_block, slot + layout_.partial[1],
              gradients + layout_.gradient[0] + i * order_.right_rank(0));

      int64_t outer = chunk;
      for (int64_t k = 1; k < last; ++k) {
        right /= order_.m(k);
        const int64_t p_rows = order_.left_rank(k) * order_.m(k);
        const int64_t q_rows = order_.n(k) * order_.right_rank(k);
        const Real* p = gradient;
        const Real* q = slot + layout_.partial[k + 1];
        gradient = slot + layout_.partial_gradient[k + 1];
        const Real* core = scratch.packed + layout_.core[k];
        for (int64_t o = 0; o < outer; ++o) {
          products.middle_back[k](core, p + o * p_rows * right, gradient + o * q_rows * right);
        }
        const auto& how = products.middle_gradient[k];
        Real* sum = gradients + layout_.gradient[k];
        if (how.transposed) {
          for (int64_t o = 0; o < outer; ++o) {
            for (int64_t j = 0; j < q_rows; j += kTransposedRows) {
              const int64_t columns = std::min(kTransposedRows, q_rows - j);
              PackTile(q + (o * q_rows + j) * right, right, columns, right, columns, transposed);
              const bool full = columns == std::min(q_rows, kTransposedRows);
              (full ? how.full : how.rest)(p + o * p_rows * right, transposed, sum + j);
            }
          }
        } else {
          DotGemm(how.dot, p, q, sum);
        }
        outer *= order_.n(k);
      }

      const int64_t n = order_.n(last), p_rows = order_.left_rank(last) * block;
      const int64_t core_offset = b * plan_.block * order_.left_rank(last) * n;
      const auto& back = b == 0 ? products.last_back : products.last_back_more;
      Real* sum = gradients + layout_.gradient[last] + core_offset;
      if (s == 1) {
        back(gradient, scratch.packed + layout_.core[last] + core_offset, dx_chunk);
        products.last_gradient(gradient, x_chunk, sum);
      } else {
        const Real* core = scratch.packed + layout_.core[last] + core_offset;
        for (int64_t o = 0; o < outer; ++o) {
          back(core, gradient + o * p_rows * s, dx_chunk + o * n * s);
        }
        DotGemm({p_rows, n, s, outer, s, s, n, p_rows * s, n * s}, gradient, x_chunk, sum);
      }
    }
    ForEachRunOfX(i, chunk, [&](int64_t to, int64_t columns, int64_t from, int64_t ld) {
      UnpackTile(dx_chunk + from, ld, columns, rows, dx + row * in + to, in);
    });
  }
}

template <typename Element>
void FusedKernel<Element>::WriteCoreGradients(int64_t part, int64_t parts, const Scratch& scratch,
                                              const std::vector<Element*>& dcores) const {
  for (int64_t k = 0; k < order_.cores(); ++k) {
    const Real* first = scratch.gradients + layout_.gradient[k];
    Element* dcore = dcores[CoreOf(k)];
    const int64_t q = order_.right_rank(k);
    ForEachRun(k, part, parts, [&](int64_t to, int64_t step, int64_t from, int64_t, int64_t) {
      for (int64_t b = 0; b < q; ++b) {
        Real sum = first[from + b];
        for (int64_t slot = 1; slot < plan_.slots; ++slot) {
          sum += first[slot * plan_.gradient_elements + from + b];
        }
        Narrow(sum, &dcore[to + b * step]);
      }
    });
  }
}

template class FusedKernel<float>;
template class FusedKernel<double>;
template class FusedKernel<BFloat16>;

}  // namespace ttbench
