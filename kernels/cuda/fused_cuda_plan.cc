#include "kernels/cuda/fused_cuda_plan.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/cuda/cuda_layout.h"

namespace ttbench {
namespace {

// The layer that a plan contracts from its last core to its first.
TtShape Order(const TtShape& shape, bool mirrored) {
  if (!mirrored) return shape;
  const auto reversed = [](const Modes& modes) { return Modes(modes.rbegin(), modes.rend()); };
  return TtShape(reversed(shape.in_modes()), reversed(shape.out_modes()), reversed(shape.ranks()));
}

// Lays a plan out, or says why it cannot be.
class Planner {
 public:
  Planner(const TtShape& shape, int64_t batch, CudaPrecision precision, CudaPass pass,
          const CudaDevice& device, bool mirrored, const FusedCudaTile& tile)
      : order_(Order(shape, mirrored)),
        device_(device),
        backward_(pass == CudaPass::kBackward),
        stored_bytes_(StoredBytes(precision)),
        last_(shape.cores() - 1) {
    plan_.pass = pass;
    plan_.precision = precision;
    plan_.mirrored = mirrored;
    plan_.tile = tile;
    plan_.tiles = CeilDiv(batch, tile.samples);
    params().batch = batch;
    params().in_features = order_.in_features();
    params().out_features = order_.out_features();
    params().cores = static_cast<int32_t>(order_.cores());
    params().samples = static_cast<int32_t>(tile.samples);
    params().chunks = static_cast<int32_t>(order_.n(0) / tile.chunk);
    params().blocks = static_cast<int32_t>(order_.m(last_) / tile.block);
    params().units = CheckedMul(plan_.tiles, backward_ ? params().chunks : params().blocks);
  }

  std::optional<FusedCudaPlan> Make(int64_t grid, std::string* reason) {
    if (!LayOut()) {
      if (reason != nullptr) *reason = reason_;
      return std::nullopt;
    }
    plan_.occupancy = Occupancy(
        device_, plan_.tile.threads,
        backward_ ? kFusedCudaBackwardRegisters : kFusedCudaForwardRegisters, plan_.shared_bytes);
    plan_.carveout_percent = std::min<int64_t>(
        100,
        CeilDiv(100 * plan_.occupancy.blocks * (plan_.shared_bytes + device_.reserved_shared_bytes),
                device_.shared_bytes_per_multiprocessor));
    plan_.grid = grid > 0
                     ? grid
                     : std::max<int64_t>(1, std::min(params().units, device_.multiprocessors *
                                                                         plan_.occupancy.blocks));
    EstimateSeconds();
    return plan_;
  }

 private:
  FusedCudaParams& params() { return plan_.params; }
  const FusedCudaParams& params() const { return plan_.params; }

  // The modes of a unit of work: those of the order, but for the chunk and the block.
  int64_t n(int64_t k) const { return k == 0 ? plan_.tile.chunk : order_.n(k); }
  int64_t m(int64_t k) const { return k == last_ ? plan_.tile.block : order_.m(k); }
  // n_1 .. n_{k-1} and m_{k+1} .. m_K of a unit.
  int64_t Outer(int64_t k) const {
    int64_t product = 1;
    for (int64_t i = 0; i < k; ++i) product = CheckedMul(product, n(i));
    return product;
  }
  int64_t Lanes(int64_t k) const {
    int64_t product = 1;
    for (int64_t i = k + 1; i <= last_; ++i) product = CheckedMul(product, m(i));
    return product;
  }
  int64_t Columns(int64_t k) const { return CheckedMul(Outer(k), Lanes(k)); }
  int64_t PitchOf(int64_t depth) const { return Pitch(plan_.precision, depth); }
  int64_t Depth(int64_t k) const { return n(k) * order_.right_rank(k); }
  int64_t BackDepth(int64_t k) const { return m(k) * order_.left_rank(k); }
  // Bytes of product k's operand T_k, and of dT_{k-1}, with which back[k] begins.
  int64_t OperandBytes(int64_t k) const { return MatrixBytes(k, Depth(k)); }
  int64_t BackOperandBytes(int64_t k) const { return MatrixBytes(k, BackDepth(k)); }
  int64_t MatrixBytes(int64_t k, int64_t depth) const {
    return CheckedMul(CheckedMul(Columns(k), plan_.tile.samples), PitchOf(depth) * stored_bytes_);
  }

  // Takes `bytes` of shared memory and returns where they begin.
  int32_t Take(int64_t bytes) {
    const int64_t at = shared_bytes_;
    shared_bytes_ = CheckedAdd(shared_bytes_, RoundUp(bytes, 16));
    return static_cast<int32_t>(std::min<int64_t>(at, std::numeric_limits<int32_t>::max()));
  }

  bool LayOut() {
    for (int64_t k = 0; k <= last_; ++k) {
      // All that a unit touches is counted in 32 bits.
      constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
      const int64_t core = CheckedMul(RoundUp(order_.m(k) * order_.left_rank(k), 64),
                                      RoundUp(order_.n(k) * order_.right_rank(k), 64));
      if (CheckedMul(core, kFusedCudaThreads / 32) > kLargest) {
        const int64_t layer_core = plan_.mirrored ? last_ - k : k;
        reason_ =
            "core " + std::to_string(layer_core + 1) + " has more elements than the kernel counts";
        return false;
      }
    }
    TakeShared();
    if (shared_bytes_ > device_.shared_bytes_per_block) {
      reason_ = "a tile takes " + std::to_string(shared_bytes_) + " bytes of shared memory, " +
                device_.name + " has " + std::to_string(device_.shared_bytes_per_block);
      return false;
    }
    plan_.shared_bytes = shared_bytes_;
    SetProducts();
    SetResidents();
    if (shared_bytes_ > device_.shared_bytes_per_block) {
      reason_ = "the cores do not fit into shared memory beside a tile";
      return false;
    }
    plan_.shared_bytes = shared_bytes_;
    SetMaps();
    SetCoreStrides();
    return true;
  }

  // Where x, the intermediates and the sums are.
  void TakeShared() {
    operands_.assign(last_ + 1, 0);
    back_operands_.assign(last_ + 1, 0);
    operands_[last_] = params().x_offset = Take(OperandBytes(last_));
    if (!backward_) {
      // T_k is used up when T_{k-2} is written.
      int64_t bytes[2] = {0, 0};
      for (int64_t k = 0; k < last_; ++k) {
        bytes[k % 2] = std::max(bytes[k % 2], OperandBytes(k));
      }
      const int32_t at[2] = {Take(bytes[0]), Take(bytes[1])};
      for (int64_t k = 0; k < last_; ++k) operands_[k] = at[k % 2];
      params().y_offset = Take(CheckedMul(plan_.tile.samples * order_.m(0), Lanes(0) * 4));
      return;
    }
    // dT_k takes the place of T_{k-1}, which has served core k-1's gradient by then: in indices
    // from 0, back operand k that of operand k - 2.
    for (int64_t k = 0; k < last_; ++k) {
      const bool shared = k + 2 <= last_;
      operands_[k] = Take(std::max(OperandBytes(k), shared ? BackOperandBytes(k + 2) : 0));
      if (shared) back_operands_[k + 2] = operands_[k];
    }
    back_operands_[0] = params().dy_offset = Take(BackOperandBytes(0));
    back_operands_[1] = Take(BackOperandBytes(1));
    params().dx_offset = Take(CheckedMul(plan_.tile.samples * Outer(last_), order_.n(last_) * 4));
  }

  void SetProducts() {
    for (int64_t k = 0; k <= last_; ++k) {
      CudaProduct& product = params().products[k];
      product.rows = static_cast<int32_t>(m(k) * order_.left_rank(k));
      product.depth = static_cast<int32_t>(Depth(k));
      product.columns = static_cast<int32_t>(Columns(k));
      product.from = operands_[k];
      product.from_pitch = static_cast<int32_t>(PitchOf(Depth(k)));
      product.to = k == 0 ? params().y_offset : operands_[k - 1];
      product.to_pitch = k == 0 ? 1 : static_cast<int32_t>(PitchOf(Depth(k - 1)));
      product.heights = static_cast<int32_t>(m(k));
      product.rank = FastDivisor(order_.left_rank(k));
      product.lanes = FastDivisor(Lanes(k));
      product.joined = FastDivisor(k == 0 ? 1 : n(k - 1));
      product.depth_rank = static_cast<int32_t>(order_.right_rank(k));
      product.row_mode_part = k == last_ ? static_cast<int32_t>(plan_.tile.block) : 0;
      product.depth_mode_part = k == 0 ? static_cast<int32_t>(plan_.tile.chunk) : 0;
      SetPacked(k, product);
    }
    if (!backward_) return;
    for (int64_t k = 0; k <= last_; ++k) {
      CudaProduct& back = params().back[k];
      back.rows = static_cast<int32_t>(Depth(k));
      back.depth = static_cast<int32_t>(BackDepth(k));
      back.columns = static_cast<int32_t>(Columns(k));
      back.from = back_operands_[k];
      back.from_pitch = static_cast<int32_t>(PitchOf(BackDepth(k)));
      back.to = k == last_ ? params().dx_offset : back_operands_[k + 1];
      back.to_pitch = k == last_ ? 1 : static_cast<int32_t>(PitchOf(BackDepth(k + 1)));
      back.heights = static_cast<int32_t>(n(k));
      back.rank = FastDivisor(order_.right_rank(k));
      back.lanes = FastDivisor(k == last_ ? 1 : Lanes(k + 1));
      back.joined = FastDivisor(k == last_ ? 1 : m(k + 1));
      back.depth_rank = static_cast<int32_t>(order_.left_rank(k));
      back.row_mode_part = k == 0 ? static_cast<int32_t>(plan_.tile.chunk) : 0;
      back.depth_mode_part = k == last_ ? static_cast<int32_t>(plan_.tile.block) : 0;
      SetPacked(k, back);
      SetGradient(k);
    }
  }

  void SetPacked(int64_t k, CudaProduct& product) {
    const int64_t parts = k == 0 ? params().chunks : k == last_ ? params().blocks : int64_t{1};
    const int64_t part =
        RoundUp(product.rows, kRowBlock) * RoundUp(product.depth, StepDepth(plan_.precision));
    product.packed = plan_.packed_elements;
    product.packed_part = static_cast<int32_t>(part);
    product.packed_elements = part * parts;
    plan_.packed_elements = CheckedAdd(plan_.packed_elements, product.packed_elements);
  }

  void SetGradient(int64_t k) {
    CudaGradient& gradient = params().gradients[k];
    gradient.rows = static_cast<int32_t>(BackDepth(k));
    gradient.depth = static_cast<int32_t>(Depth(k));
    gradient.columns = static_cast<int32_t>(Columns(k));
    gradient.left = back_operands_[k];
    gradient.left_pitch = static_cast<int32_t>(PitchOf(BackDepth(k)));
    gradient.right = operands_[k];
    gradient.right_pitch = static_cast<int32_t>(PitchOf(Depth(k)));
    gradient.pitch = static_cast<int32_t>(order_.n(k) * order_.right_rank(k));
    gradient.row_part = k == last_ ? gradient.rows : 0;
    gradient.depth_part = k == 0 ? gradient.depth : 0;
    gradient.size = static_cast<int32_t>(order_.m(k) * order_.left_rank(k) * gradient.pitch);
    // As many sums as give every warp work.
    const int64_t tiles = CeilDiv(gradient.rows, kTileRows) *
                          CeilDiv(gradient.depth, kGradientColumnBlocks * kColumnBlock);
    const int64_t steps =
        CeilDiv(gradient.columns * plan_.tile.samples, StepDepth(plan_.precision));
    gradient.splits =
        static_cast<int32_t>(std::clamp<int64_t>(plan_.tile.threads / 32 / tiles, 1, steps));
    gradient.partial = params().partial_elements;
    params().partial_elements += int64_t{gradient.splits} * gradient.size;
  }

  void SetResidents() {
    if (plan_.tile.resident_cores) {
      for (CudaProduct* products : {params().products, params().back}) {
        for (int64_t k = 0; k <= last_; ++k) {
          if (products[k].packed_elements == 0) continue;
          products[k].resident = Take(products[k].packed_elements * stored_bytes_);
        }
      }
    }
    if (plan_.tile.resident_gradients) {
      for (int64_t k = 0; k <= last_; ++k) {
        CudaGradient& gradient = params().gradients[k];
        gradient.resident = Take(int64_t{gradient.splits} * gradient.size * 4);
      }
    }
  }

  // `sizes`: of the part's modes, in the plan's order; `strides`: theirs in shared memory.
  // `part_mode`: the mode of the order that is cut, of `whole` in the layer. A vector is of at most
  // `vector` elements.
  CudaTileMap MakeMap(std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t part_mode,
                      int64_t whole, int64_t sample_stride, int64_t vector) const {
    CudaTileMap map;
    if (plan_.mirrored) {
      std::reverse(sizes.begin(), sizes.end());
      std::reverse(strides.begin(), strides.end());
      part_mode = last_ - part_mode;
    }
    // In global memory the part is runs of the cut mode and the modes within it.
    int64_t count = 1, within = 1;
    for (int64_t i = 0; i <= last_; ++i) {
      count *= sizes[i];
      if (i > part_mode) within *= sizes[i];
    }
    const int64_t part_stride = sizes[part_mode] * within;
    map.part_stride = part_stride;
    map.run_stride = whole * within;
    // Vectors along the fastest mode, if shared memory has it fastest as well.
    if (strides[last_] != 1) vector = 1;
    while (sizes[last_] % vector != 0) vector /= 2;
    sizes[last_] /= vector;
    strides[last_] *= vector;
    map.vector = static_cast<int32_t>(vector);
    map.count = static_cast<int32_t>(count / map.vector);
    map.per_sample = FastDivisor(map.count);
    map.run = FastDivisor(part_stride / map.vector);
    map.sample_stride = static_cast<int32_t>(sample_stride);
    for (int64_t i = last_; i >= 0; --i) {
      if (map.digits > 0) {
        // A mode that goes on where the last one ends.
        const int64_t before = map.digit[map.digits - 1].divisor;
        if (strides[i] == before * map.stride[map.digits - 1]) {
          map.digit[map.digits - 1] = FastDivisor(before * sizes[i]);
          continue;
        }
      }
      map.digit[map.digits] = FastDivisor(sizes[i]);
      map.stride[map.digits] = static_cast<int32_t>(strides[i]);
      ++map.digits;
    }
    return map;
  }

  void SetMaps() {
    std::vector<int64_t> in, out;
    for (int64_t k = 0; k <= last_; ++k) {
      in.push_back(n(k));
      out.push_back(m(k));
    }
    const auto row_major = [](const std::vector<int64_t>& sizes, size_t end, int64_t stride) {
      std::vector<int64_t> strides(sizes.size(), 1);
      for (size_t i = end; i-- > 0;) {
        strides[i] = stride;
        stride *= sizes[i];
      }
      return strides;
    };
    // x: [n_1 .. n_{K-1}][n_K].
    const int64_t x_pitch = PitchOf(Depth(last_));
    std::vector<int64_t> strides = row_major(in, last_, x_pitch);
    params().x = MakeMap(in, strides, 0, order_.n(0), Outer(last_) * x_pitch, 16 / stored_bytes_);
    params().y =
        MakeMap(out, row_major(out, last_ + 1, 1), last_, order_.m(last_), m(0) * Lanes(0), 4);
    if (!backward_) return;
    params().dx =
        MakeMap(in, row_major(in, last_ + 1, 1), 0, order_.n(0), Outer(last_) * n(last_), 4);
    // dy: [m_2 .. m_K][m_1].
    const int64_t dy_pitch = PitchOf(BackDepth(0));
    strides = row_major(out, last_ + 1, dy_pitch);
    strides[0] = 1;
    params().dy = MakeMap(out, strides, last_, order_.m(last_), Lanes(0) * dy_pitch, 1);
  }

  void SetCoreStrides() {
    for (int64_t k = 0; k <= last_; ++k) {
      const int64_t layer_core = plan_.mirrored ? last_ - k : k;
      params().layer_core[k] = static_cast<int32_t>(layer_core);
      CudaCoreStrides& strides = params().core_strides[k];
      // The layer's core is [left rank, n, m, right rank].
      const int64_t right = plan_.mirrored ? order_.left_rank(k) : order_.right_rank(k);
      strides.m = right;
      strides.n = right * order_.m(k);
      strides.a = strides.n * order_.n(k);
      strides.b = 1;
      if (plan_.mirrored) std::swap(strides.a, strides.b);
    }
  }

  void AddProduct(const CudaProduct& product, bool sums, double times) {
    const CudaWork work = ProductWork(plan_.precision, product.rows,
                                      static_cast<double>(product.columns) * plan_.tile.samples,
                                      product.depth, ProductColumnBlocks(plan_.precision), sums);
    Model().AddWork(work, times);
    // Cores that are not resident stay in L1 if there is room beside shared memory.
    if (product.resident >= 0) return;
    const int64_t room = device_.l1_and_shared_bytes - plan_.occupancy.blocks * plan_.shared_bytes;
    if (plan_.packed_elements * stored_bytes_ > room / 2) {
      plan_.unit.l2_bytes += times * work.left_bytes;
    }
  }

  void AddGradientWork(const CudaGradient& gradient, double times) {
    const CudaWork work = SumWork(plan_.precision, gradient.rows, gradient.depth,
                                  static_cast<double>(gradient.columns) * plan_.tile.samples,
                                  kGradientColumnBlocks, gradient.splits);
    Model().AddWork(work, times);
    if (gradient.resident < 0) {
      plan_.unit.l2_bytes += times * 8 * work.rows * work.columns * gradient.splits;
    }
  }

  // Of a part of a tensor.
  void AddMove(const CudaTileMap& map, double times) {
    Model().AddMove(static_cast<double>(map.count) * plan_.tile.samples, map.vector * 4,
                    20 + 5 * map.digits, times, true);
  }

  CudaUnitModel Model() {
    return CudaUnitModel(plan_.precision, device_, plan_.tile.threads, &plan_.unit);
  }

  void EstimateSeconds() {
    const double chunks = params().chunks, blocks = params().blocks;
    const double bytes = static_cast<double>(stored_bytes_);
    const double samples = static_cast<double>(plan_.tile.samples);
    const double in = static_cast<double>(params().in_features);
    const double out = static_cast<double>(params().out_features);
    // Forward, a unit meets all chunks; backward, all blocks.
    const double times = backward_ ? blocks : chunks;
    for (int64_t k = 0; k <= last_; ++k) {
      // The forward's last product is not computed again.
      if (!backward_ || k > 0) AddProduct(params().products[k], k == 0, times);
      if (!backward_) continue;
      AddProduct(params().back[k], k == last_, times);
      AddGradientWork(params().gradients[k], times);
    }
    if (backward_) {
      AddMove(params().x, 1);
      AddMove(params().dy, blocks);
      AddMove(params().dx, 1);
    } else {
      AddMove(params().x, chunks);
      AddMove(params().y, 1);
    }
    FusedCudaCost& unit = plan_.unit;
    unit.memory_bytes = backward_ ? samples * bytes * (2 * in + out) / chunks
                                  : samples * bytes * (in + out) / blocks;

    const double active = static_cast<double>(
        std::min(plan_.occupancy.blocks, CeilDiv(plan_.grid, device_.multiprocessors)));
    const double rounds = static_cast<double>(CeilDiv(params().units, plan_.grid));
    const double work_seconds = Model().Seconds(rounds, active);
    const double tensor_bytes =
        static_cast<double>(params().batch) * bytes * (backward_ ? 2 * in + out : in + out);
    // Once for each block of the grid: resident cores, and sums that are written and read again.
    const double packed = plan_.tile.resident_cores ? plan_.packed_elements * bytes : 0;
    const double sums = 2.0 * 4 * static_cast<double>(plan_.partial_elements());
    plan_.seconds = std::max(work_seconds, tensor_bytes / device_.memory_bytes_per_s) +
                    (packed * static_cast<double>(plan_.grid) + sums) / device_.l2_bytes_per_s;
  }

  TtShape order_;
  const CudaDevice& device_;
  bool backward_;
  int64_t stored_bytes_, last_;
  FusedCudaPlan plan_;
  int64_t shared_bytes_ = 0;
  std::vector<int32_t> operands_, back_operands_;
  std::string reason_;
};

}  // namespace

std::optional<FusedCudaPlan> MakeFusedCudaPlan(const TtShape& shape, int64_t batch,
                                               CudaPrecision precision, CudaPass pass,
                                               const CudaDevice& device, bool mirrored,
                                               const FusedCudaTile& tile, int64_t grid,
                                               std::string* reason) {
  try {
    return Planner(shape, batch, precision, pass, device, mirrored, tile).Make(grid, reason);
  } catch (const ShapeError& error) {  // A size past 64 bits.
    if (reason != nullptr) *reason = error.what();
    return std::nullopt;
  }
}

std::optional<FusedCudaPlan> PlanFusedCuda(const TtShape& shape, int64_t batch,
                                           CudaPrecision precision, CudaPass pass,
                                           const CudaDevice& device, std::string* reason) {
  std::optional<FusedCudaPlan> best;
  for (bool mirrored : {false, true}) {
    const TtShape order = Order(shape, mirrored);
    for (int64_t chunk : Divisors(order.n(0))) {
      for (int64_t block : Divisors(order.m(order.cores() - 1))) {
        for (int64_t samples = 1; samples <= 64 && (samples == 1 || samples < 2 * batch);
             samples *= 2) {
          FusedCudaTile tile{samples, chunk, block, 128, false, false};
          // Larger tiles of these modes do not fit either.
          if (!MakeFusedCudaPlan(shape, batch, precision, pass, device, mirrored, tile, 0,
                                 best ? nullptr : reason)) {
            break;
          }
          for (int64_t threads : {int64_t{128}, kFusedCudaThreads}) {
            for (bool cores : {false, true}) {
              for (bool gradients : {false, true}) {
                if (gradients && pass == CudaPass::kForward) continue;
                tile.threads = threads;
                tile.resident_cores = cores;
                tile.resident_gradients = gradients;
                const auto plan =
                    MakeFusedCudaPlan(shape, batch, precision, pass, device, mirrored, tile);
                if (plan && (!best || plan->seconds < best->seconds)) best = plan;
              }
            }
          }
        }
      }
    }
  }
  return best;
}

}  // namespace ttbench
