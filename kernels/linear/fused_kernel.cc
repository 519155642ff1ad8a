#include "kernels/linear/fused_kernel.h"

#include <algorithm>
#include <array>
#include <utility>

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

// For each element of a tensor of the modes, last mode innermost, its place in the tensor with the
// modes in reverse order.
std::vector<int32_t> ReversedPlaces(const Modes& modes) {
  std::vector<int32_t> places = {0};
  int64_t stride = 1;
  for (const int64_t mode : modes) {
    std::vector<int32_t> longer;
    longer.reserve(places.size() * mode);
    for (const int32_t place : places) {
      for (int64_t i = 0; i < mode; ++i) {
        longer.push_back(place + static_cast<int32_t>(i * stride));
      }
    }
    places = std::move(longer);
    stride *= mode;
  }
  return places;
}

}  // namespace

// Has memory that is wanted soon brought near, a few lines with each product: a tile is moved in
// one go, faster than memory follows.
class Prefetch {
 public:
  using Ranges = std::array<std::pair<const void*, int64_t>, 3>;  // Each with its bytes.

  Prefetch() = default;  // Of nothing.
  Prefetch(const Ranges& ranges, int64_t steps) {
    int64_t lines = 0;
    for (size_t i = 0; i < ranges.size(); ++i) {
      next_[i] = static_cast<const char*>(ranges[i].first);
      end_[i] = next_[i] + ranges[i].second;
      lines += ranges[i].second / kLine;
    }
    lines_per_step_ = lines / std::max<int64_t>(steps, 1) + 1;
  }

  void Step() {
    int64_t left = lines_per_step_;
    for (size_t i = 0; i < next_.size(); ++i) {
      for (; left > 0 && next_[i] < end_[i]; --left, next_[i] += kLine) {
        __builtin_prefetch(next_[i], 0, 2);
      }
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  std::array<const char*, 3> next_ = {}, end_ = {};
  int64_t lines_per_step_ = 0;
};

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
  if (plan_.mirrored) {
    Modes in(order_.in_modes().rbegin(), order_.in_modes().rend());
    Modes out(order_.out_modes().rbegin(), order_.out_modes().rend());
    if (backward) in.back() = chunk;
    out.front() = block;
    products.x_places = ReversedPlaces(in);
    products.y_places = ReversedPlaces(out);
  }
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
void FusedKernel<Element>::ForEachRunOfX(int64_t chunk_begin, int64_t chunk,
                                         const Visit& visit) const {
  const int64_t in = order_.in_features(), n = order_.n(0);
  if (!plan_.mirrored || chunk == n) return visit(chunk_begin * (in / n), chunk * (in / n), 0);
  for (int64_t i = 0; i < in / n; ++i) visit(i * n + chunk_begin, chunk, i * chunk);
}

template <typename Element>
template <typename Visit>
void FusedKernel<Element>::ForEachRunOfY(int64_t block_begin, int64_t block,
                                         const Visit& visit) const {
  const int64_t out = order_.out_features(), m = order_.out_modes().back();
  if (plan_.mirrored || block == m) return visit(block_begin * (out / m), block * (out / m), 0);
  for (int64_t j = 0; j < out / m; ++j) visit(j * m + block_begin, block, j * block);
}

template <typename Element>
void FusedKernel<Element>::PackX(const Products& products, const Element* x, int64_t rows,
                                 int64_t chunk_begin, Real* tile) const {
  const int64_t in = order_.in_features(), s = plan_.samples;
  // The forward takes all of x at once.
  const int64_t chunk = plan_.pass == FusedPass::kForward ? order_.n(0) : products.chunk;
  ForEachRunOfX(chunk_begin, chunk, [&](int64_t from, int64_t columns, int64_t to) {
    if (plan_.mirrored) {
      PackTile(x + from, in, rows, columns, s, products.x_places.data() + to, tile);
    } else {
      PackTile(x + from, in, rows, columns, s, tile + to * s);
    }
  });
}

template <typename Element>
void FusedKernel<Element>::UnpackX(const Products& products, const Real* tile, int64_t rows,
                                   int64_t chunk_begin, Element* x) const {
  const int64_t in = order_.in_features(), s = plan_.samples;
  ForEachRunOfX(chunk_begin, products.chunk, [&](int64_t to, int64_t columns, int64_t from) {
    if (plan_.mirrored) {
      UnpackTile(tile, s, products.x_places.data() + from, columns, rows, x + to, in);
    } else {
      UnpackTile(tile + from * s, s, columns, rows, x + to, in);
    }
  });
}

template <typename Element>
void FusedKernel<Element>::PackY(const Products& products, const Element* y, int64_t rows,
                                 int64_t block_begin, Real* tile) const {
  const int64_t out = order_.out_features(), s = plan_.samples;
  ForEachRunOfY(block_begin, products.block, [&](int64_t from, int64_t columns, int64_t to) {
    if (plan_.mirrored) {
      PackTile(y + from, out, rows, columns, s, products.y_places.data() + to, tile);
    } else {
      PackTile(y + from, out, rows, columns, s, tile + to * s);
    }
  });
}

template <typename Element>
void FusedKernel<Element>::UnpackY(const Products& products, const Real* tile, int64_t rows,
                                   int64_t block_begin, Element* y) const {
  const int64_t out = order_.out_features(), s = plan_.samples;
  ForEachRunOfY(block_begin, products.block, [&](int64_t to, int64_t columns, int64_t from) {
    if (plan_.mirrored) {
      UnpackTile(tile, s, products.y_places.data() + from, columns, rows, y + to, out);
    } else {
      UnpackTile(tile + from * s, s, columns, rows, y + to, out);
    }
  });
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
Prefetch FusedKernel<Element>::PrefetchBeside(int64_t row, const Element* x, const Element* dy,
                                              const Element* out) const {
  const int64_t s = plan_.samples, in = order_.in_features(), width = order_.out_features();
  const int64_t element = sizeof(Element);
  const FusedMachine& machine = ThisFusedMachine();
  // From a nearby cache they come soon enough. (What share of the L3 is ours, no system tells.)
  if (plan_.batch * (in + width) * element <= 4 * machine.l2_bytes) return Prefetch();
  const int64_t rows = std::min(s, plan_.batch - row);
  const int64_t next = row + s, next_rows = std::clamp<int64_t>(plan_.batch - next, 0, s);
  const bool backward = plan_.pass == FusedPass::kBackward;
  const int64_t out_width = backward ? in : width;
  const Prefetch::Ranges ranges = {{
      {x + next * in, next_rows * in * element},
      {backward ? dy + next * width : nullptr, backward ? next_rows * width * element : 0},
      {out + row * out_width, rows * out_width * element},
  }};
  int64_t bytes = 0;
  for (const auto& range : ranges) bytes += range.second;
  // They must not push out what the products work on.
  if (bytes > machine.l2_bytes / 2) return Prefetch();
  // The products of ContractChunk.
  int64_t steps = 0, outer = plan_.chunk;
  for (int64_t k = 1; k < order_.cores(); ++k) {
    if (k < order_.cores() - 1 || s > 1) steps += outer;
    outer *= k < order_.cores() - 1 ? order_.n(k) : 1;
  }
  return Prefetch(ranges, steps * plan_.chunks * plan_.blocks);
}

template <typename Element>
void FusedKernel<Element>::ContractChunk(const Products& products, int64_t block_index,
                                         const Real* x, Real* slot, const Scratch& scratch,
                                         Prefetch& prefetch) const {
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
    for (int64_t o = 0; o < outer; ++o) {
      products.last(core, x + o * from_stride, to + o * to_stride);
      prefetch.Step();
    }
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
      prefetch.Step();
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
  Prefetch prefetch;
  for (int64_t unit = UnitBegin(slot_index); unit < UnitBegin(slot_index + 1); ++unit) {
    const int64_t tile = unit / plan_.blocks, block_index = unit % plan_.blocks;
    const int64_t row = tile * s, rows = std::min(s, plan_.batch - row);
    if (tile != packed_tile) {
      PackX(products_.front(), x + row * in, rows, 0, x_tile);
      prefetch = PrefetchBeside(row, x, nullptr, y);
      packed_tile = tile;
    }
    const int64_t block = std::min(plan_.block, m - block_index * plan_.block);
    for (int64_t i = 0; i < order_.n(0); i += plan_.chunk) {
      const Products& products = ProductsOf(std::min(plan_.chunk, order_.n(0) - i), block);
      ContractChunk(products, block_index, x_tile + i * (in / order_.n(0)) * s, slot, scratch,
                    prefetch);
      const Real* core = scratch.packed + layout_.core[0] + i * order_.right_rank(0);
      (i == 0 ? products.first : products.first_more)(core, slot + layout_.partial[1], y_block);
    }
    UnpackY(ProductsOf(plan_.chunk, block), y_block, rows, block_index * plan_.block,
            y + row * out);
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
  Prefetch prefetch;
  for (int64_t unit = UnitBegin(slot_index); unit < UnitBegin(slot_index + 1); ++unit) {
    const int64_t tile = unit / plan_.chunks, i = unit % plan_.chunks * plan_.chunk;
    const int64_t row = tile * s, rows = std::min(s, plan_.batch - row);
    const int64_t chunk = std::min(plan_.chunk, order_.n(0) - i);
    if (tile != packed_tile) {
      packed_tile = tile;
      prefetch = PrefetchBeside(row, x, dy, dx);
      for (int64_t b = 0; b < plan_.blocks; ++b) {
        const int64_t block = std::min(plan_.block, m - b * plan_.block);
        PackY(ProductsOf(chunk, block), dy + row * out, rows, b * plan_.block,
              slot + layout_.y + b * block_stride);
      }
    }
    const Products& some_products = ProductsOf(chunk, plan_.block);
    PackX(some_products, x + row * in, rows, i, x_chunk);
    for (int64_t b = 0; b < plan_.blocks; ++b) {
      const int64_t block = std::min(plan_.block, m - b * plan_.block);
      const Products& products = ProductsOf(chunk, block);
      ContractChunk(products, b, x_chunk, slot, scratch, prefetch);

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
    UnpackX(some_products, dx_chunk, rows, i, dx + row * in);
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
