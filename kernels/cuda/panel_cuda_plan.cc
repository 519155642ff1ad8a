#include "kernels/cuda/panel_cuda_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cuda/cuda_layout.h"

namespace ttbench {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();

// The model's guesses beside those of cuda_cost.cc. A tile of a warp whose sums stay in registers
// takes fewer instructions and cycles beside its steps; a thread that adds up partial sums waits so
// many cycles for each; joining, a thread for each element, runs at an eighth of the FMA peak.
constexpr double kHeldTileInstructions = 60, kHeldTileCycles = 100;
constexpr double kPartialCycles = 100, kJoinFraction = 0.125;
constexpr double kMoveInstructions = 25, kResultInstructions = 12, kPanelInstructions = 30;

// Panels larger than these are not tried: sums of y fill the registers, and steps are deep enough.
constexpr int64_t kMostRows = 256, kMostDepth = 128;

CudaWork Held(CudaWork work) {
  work.output_accesses = 0;
  work.tile_instructions = kHeldTileInstructions;
  work.tile_cycles = kHeldTileCycles;
  return work;
}

// Modes of a joined core, and where its values are.
struct Joined {
  int64_t n = 1, m = 1, values = 0;
  int64_t stride_a = 1, stride_n = 1, stride_m = 1;
};

class Planner {
 public:
  Planner(const TtShape& shape, int64_t batch, CudaPrecision precision, CudaPass pass,
          const CudaDevice& device, int64_t cut)
      : shape_(shape),
        device_(device),
        batch_(batch),
        backward_(pass == CudaPass::kBackward),
        bytes_(StoredBytes(precision)),
        rank_(shape.right_rank(cut - 1)) {
    plan_.pass = pass;
    plan_.precision = precision;
    plan_.cut = cut;
  }

  const std::string& reason() const { return reason_; }
  // Modes of L and R that a product contracts, and those of its results.
  int64_t left_in() const { return exchanged() ? left_.m : left_.n; }
  int64_t left_out() const { return exchanged() ? left_.n : left_.m; }
  int64_t right_in() const { return exchanged() ? right_.m : right_.n; }
  int64_t right_out() const { return exchanged() ? right_.n : right_.m; }
  const Joined& left() const { return left_; }
  const Joined& right() const { return right_; }

  // Lays the joins out; false if they have more elements than the kernels count.
  bool Join() {
    PanelCudaParams& params = plan_.params;
    params.cores = static_cast<int32_t>(shape_.cores());
    for (int64_t k = 0; k < shape_.cores(); ++k) {
      params.core_begin[k + 1] = CheckedAdd(params.core_begin[k], Product(shape_.CoreSizes(k)));
    }
    plan_.value_elements = params.core_begin[shape_.cores()];
    left_ = JoinGroup(0, plan_.cut);
    right_ = JoinGroup(plan_.cut, shape_.cores());
    left_.stride_m = rank_;
    left_.stride_n = left_.m * rank_;
    right_.stride_a = right_.n * right_.m;
    right_.stride_n = right_.m;
    if (plan_.value_elements > kLargest) {
      reason_ = "the joined cores have more elements than the kernel counts";
      return false;
    }
    params.gradients = plan_.value_elements;
    return true;
  }

  bool SetMultiply(const PanelCudaTile& tile, int64_t grid) {
    PanelMultiply work;
    PanelCudaLaunch launch;
    launch.tile = tile;
    work.left = Part(left_in(), left_out(), tile.left_in, tile.left_out);
    work.right = Part(right_in(), right_out(), tile.right_in, tile.right_out);
    const int64_t rows = tile.left_out * tile.right_out, depth = tile.left_in * tile.right_in;
    const int64_t step = StepDepth(plan_.precision), columns = Columns();
    const int64_t out_blocks = int64_t{work.left.out_tiles} * work.right.out_tiles;
    const int64_t panels = int64_t{work.left.in_tiles} * work.right.in_tiles;
    launch.threads = 32 * CeilDiv(rows, kTileRows) * CeilDiv(tile.samples, columns);
    const int64_t left_packed = RoundUp(work.left.pairs(), kRowBlock) * RoundUp(rank_, step);
    const int64_t right_pitch = Pitch(plan_.precision, rank_);
    const int64_t right_packed = CheckedMul(work.right.pairs(), right_pitch);
    const int64_t panel_bytes = RoundUp(rows, kRowBlock) * RoundUp(depth, step) * bytes_;
    const int64_t x_pitch = Pitch(plan_.precision, depth);
    const int64_t x_bytes = CheckedMul(tile.samples, x_pitch * bytes_);
    launch.shared_bytes = 2 * x_bytes + 2 * right_packed * bytes_ + panel_bytes;
    if (!Fits(launch) || Past(std::max({out_blocks, panels, left_packed}))) return false;
    work.batch = batch_;
    work.out_features = CheckedMul(left_out(), right_out());
    work.samples = static_cast<int32_t>(tile.samples);
    work.out_blocks = static_cast<int32_t>(out_blocks);
    work.panels = static_cast<int32_t>(panels);
    work.units = CheckedMul(CeilDiv(batch_, tile.samples), out_blocks);
    work.rank = static_cast<int32_t>(rank_);
    work.left.packed_elements = static_cast<int32_t>(left_packed);
    work.right.packed_elements = static_cast<int32_t>(right_packed);
    work.rows = static_cast<int32_t>(rows);
    work.depth = static_cast<int32_t>(depth);
    work.right_out = FastDivisor(tile.right_out);
    work.right_features = static_cast<int32_t>(right_out());
    work.x = Map(left_in(), right_in(), tile.left_in, tile.right_in);
    work.row_tiles = static_cast<int32_t>(CeilDiv(rows, kTileRows));
    work.right_pitch = static_cast<int32_t>(right_pitch);
    work.panel_bytes = static_cast<int32_t>(panel_bytes);
    int64_t at = 0;
    for (int stage = 0; stage < 2; ++stage) {
      work.x_offset[stage] = static_cast<int32_t>(at);
      at += x_bytes;
      work.right_offset[stage] = static_cast<int32_t>(at);
      at += right_packed * bytes_;
    }
    work.panel_offset = static_cast<int32_t>(at);
    SetGrid(work.units, grid, launch);
    EstimateMultiply(work, launch);
    plan_.params.multiply = work;
    plan_.multiply = launch;
    return true;
  }

  bool SetGradient(const PanelCudaTile& tile, int64_t grid) {
    PanelGradient work;
    PanelCudaLaunch launch;
    launch.tile = tile;
    work.left = Part(left_.n, left_.m, tile.left_in, tile.left_out);
    work.right = Part(right_.n, right_.m, tile.right_in, tile.right_out);
    const int64_t rows = tile.left_in * tile.right_in, columns = tile.left_out * tile.right_out;
    const int64_t step = StepDepth(plan_.precision);
    const int64_t panels = CheckedMul(work.left.parts(), work.right.parts());
    launch.threads = 32 * CeilDiv(rows, kTileRows) * CeilDiv(columns, Columns());
    const int64_t left_pairs = work.left.pairs(), right_pairs = work.right.pairs();
    const int64_t left_packed = RoundUp(rank_, kRowBlock) * RoundUp(left_pairs, step);
    const int64_t right_packed = RoundUp(rank_, kRowBlock) * RoundUp(right_pairs, step);
    work.x = Map(left_.n, right_.n, tile.left_in, tile.right_in);
    work.dy = Map(left_.m, right_.m, tile.left_out, tile.right_out);
    const int64_t x_bytes = CheckedMul(tile.samples, work.x.pitch * bytes_);
    const int64_t dy_bytes = CheckedMul(tile.samples, work.dy.pitch * bytes_);
    const int64_t by_left_pitch = Pitch(plan_.precision, right_pairs);
    const int64_t by_right_pitch = Pitch(plan_.precision, left_pairs);
    const int64_t by_left_bytes = left_pairs * by_left_pitch * bytes_;
    const int64_t by_right_bytes = right_pairs * by_right_pitch * bytes_;
    launch.shared_bytes = std::max(2 * (x_bytes + dy_bytes), by_left_bytes + by_right_bytes);
    if (!Fits(launch) || Past(std::max({panels, left_packed, right_packed}))) return false;
    work.batch = batch_;
    work.steps = CeilDiv(batch_, tile.samples);
    work.units = CheckedMul(panels, tile.splits);
    work.samples = static_cast<int32_t>(tile.samples);
    work.splits = static_cast<int32_t>(tile.splits);
    work.rank = static_cast<int32_t>(rank_);
    work.left.packed_elements = static_cast<int32_t>(left_packed);
    work.right.packed_elements = static_cast<int32_t>(right_packed);
    work.rows = static_cast<int32_t>(rows);
    work.columns = static_cast<int32_t>(columns);
    work.right_in = FastDivisor(tile.right_in);
    work.right_out = FastDivisor(tile.right_out);
    work.row_tiles = static_cast<int32_t>(CeilDiv(rows, kTileRows));
    for (int stage = 0; stage < 2; ++stage) {
      work.x_offset[stage] = static_cast<int32_t>(stage * (x_bytes + dy_bytes));
      work.dy_offset[stage] = static_cast<int32_t>(work.x_offset[stage] + x_bytes);
    }
    work.by_left_pitch = static_cast<int32_t>(by_left_pitch);
    work.by_right_offset = static_cast<int32_t>(by_left_bytes);
    work.by_right_pitch = static_cast<int32_t>(by_right_pitch);
    work.left_size = CheckedMul(left_.n * left_.m, rank_);
    work.right_size = CheckedMul(right_.n * right_.m, rank_);
    work.right_partial = CheckedMul(CheckedMul(work.right.parts(), tile.splits), work.left_size);
    SetGrid(work.units, grid, launch);
    EstimateGradient(work, launch);
    plan_.params.gradient = work;
    plan_.gradient = launch;
    return true;
  }

  PanelCudaPlan Finish() {
    PanelCudaParams& params = plan_.params;
    AddPack(PanelPack::kPairsByRank, left_, exchanged(), params.multiply.left);
    AddPack(PanelPack::kColumns, right_, exchanged(), params.multiply.right);
    double partial_sets = 0;
    if (backward_) {
      PanelGradient& work = params.gradient;
      AddPack(PanelPack::kRankByPairs, left_, false, work.left);
      AddPack(PanelPack::kRankByPairs, right_, false, work.right);
      const int64_t left_sets = int64_t{work.right.parts()} * work.splits;
      const int64_t right_sets = int64_t{work.left.parts()} * work.splits;
      partial_sets = static_cast<double>(std::max(left_sets, right_sets));
      plan_.partial_elements =
          CheckedAdd(work.right_partial, CheckedMul(right_sets, work.right_size));
    }
    double join_macs = 0;
    for (const PanelJoins& joins : plan_.joins) {
      for (int32_t i = 0; i < joins.count; ++i) {
        join_macs += static_cast<double>(joins.join[i].elements()) * joins.join[i].rank;
      }
    }
    // The backward takes both gradients of each join too.
    plan_.aside_seconds =
        (backward_ ? 3 : 1) * 2 * join_macs / (device_.float32_flops * kJoinFraction) +
        4 * static_cast<double>(plan_.partial_elements) / device_.l2_bytes_per_s +
        partial_sets * kPartialCycles / device_.clock_hz;
    plan_.seconds = plan_.multiply.seconds + plan_.gradient.seconds + plan_.aside_seconds;
    return plan_;
  }

  const PanelCudaLaunch& multiply() const { return plan_.multiply; }
  const PanelCudaLaunch& gradient() const { return plan_.gradient; }

 private:
  bool exchanged() const { return backward_; }
  int64_t Columns() const { return ProductColumnBlocks(plan_.precision) * kColumnBlock; }

  // Cores first .. end - 1 from the left, a step each.
  Joined JoinGroup(int64_t first, int64_t end) {
    Joined joined;
    joined.n = shape_.n(first);
    joined.m = shape_.m(first);
    joined.values = plan_.params.core_begin[first];
    for (int64_t k = first + 1; k < end; ++k) {
      PanelJoin join;
      join.left = joined.values;
      join.core = plan_.params.core_begin[k];
      join.out = plan_.value_elements;
      const int64_t elements = CheckedMul(
          CheckedMul(shape_.left_rank(first), shape_.right_rank(k)),
          CheckedMul(CheckedMul(joined.n, shape_.n(k)), CheckedMul(joined.m, shape_.m(k))));
      plan_.value_elements = CheckedAdd(plan_.value_elements, elements);
      join.lead = static_cast<int32_t>(shape_.left_rank(first));
      join.in = static_cast<int32_t>(joined.n);
      join.out_modes = static_cast<int32_t>(joined.m);
      join.rank = static_cast<int32_t>(shape_.left_rank(k));
      join.core_in = static_cast<int32_t>(shape_.n(k));
      join.core_out = static_cast<int32_t>(shape_.m(k));
      join.core_rank = static_cast<int32_t>(shape_.right_rank(k));
      const size_t step = static_cast<size_t>(k - first - 1);
      if (plan_.joins.size() <= step) plan_.joins.emplace_back();
      PanelJoins& joins = plan_.joins[step];
      joins.join[joins.count++] = join;
      joined.n *= shape_.n(k);
      joined.m *= shape_.m(k);
      joined.values = join.out;
    }
    return joined;
  }

  PanelPart Part(int64_t in, int64_t out, int64_t in_tile, int64_t out_tile) const {
    PanelPart part;
    part.in_tile = static_cast<int32_t>(in_tile);
    part.out_tile = static_cast<int32_t>(out_tile);
    part.in_tiles = static_cast<int32_t>(in / in_tile);
    part.out_tiles = static_cast<int32_t>(out / out_tile);
    part.in = FastDivisor(in_tile);
    return part;
  }

  PanelTileMap Map(int64_t left, int64_t right, int64_t left_tile, int64_t right_tile) const {
    PanelTileMap map;
    map.features = CheckedMul(left, right);
    map.left_stride = left_tile * right;
    map.right_stride = right_tile;
    // With all of R's modes in the tile, the runs of neighbouring modes of L are one.
    const int64_t run = right_tile == right ? left_tile * right : right_tile;
    int64_t vector = 16 / bytes_;
    while (run % vector != 0) vector /= 2;
    map.run_stride = right;
    map.vector = static_cast<int32_t>(vector);
    map.run = FastDivisor(run / vector);
    map.per_row = FastDivisor(left_tile * right_tile / vector);
    map.pitch = static_cast<int32_t>(Pitch(plan_.precision, left_tile * right_tile));
    return map;
  }

  bool Fits(const PanelCudaLaunch& launch) {
    if (launch.threads > kPanelCudaThreads) {
      reason_ = "a panel takes " + std::to_string(launch.threads) + " threads";
      return false;
    }
    if (launch.shared_bytes > device_.shared_bytes_per_block) {
      reason_ = "a panel takes " + std::to_string(launch.shared_bytes) +
                " bytes of shared memory, " + device_.name + " has " +
                std::to_string(device_.shared_bytes_per_block);
      return false;
    }
    return true;
  }

  bool Past(int64_t count) {
    if (count <= kLargest) return false;
    reason_ = "the layer has more panels than the kernel counts";
    return true;
  }

  void SetGrid(int64_t units, int64_t grid, PanelCudaLaunch& launch) const {
    launch.occupancy = Occupancy(device_, launch.threads, kPanelCudaRegisters, launch.shared_bytes);
    const int64_t held = device_.multiprocessors * launch.occupancy.blocks;
    launch.grid = grid > 0 ? grid : std::max<int64_t>(1, std::min(units, held));
  }

  void AddPack(PanelPack::Layout layout, const Joined& joined, bool exchange, PanelPart& part) {
    PanelPack& pack = plan_.params.pack[plan_.params.packs++];
    part.packed = plan_.packed_elements;
    plan_.packed_elements =
        CheckedAdd(plan_.packed_elements, CheckedMul(part.parts(), part.packed_elements));
    pack.layout = layout;
    pack.rank = static_cast<int32_t>(rank_);
    pack.pitch = static_cast<int32_t>(Pitch(plan_.precision, rank_));
    pack.part = part;
    pack.values = joined.values;
    pack.stride_a = joined.stride_a;
    pack.stride_in = exchange ? joined.stride_m : joined.stride_n;
    pack.stride_out = exchange ? joined.stride_n : joined.stride_m;
  }

  // The kernel's time, of `units` alike and of moving `tensor_bytes` once.
  void SetSeconds(CudaUnitModel& model, int64_t units, double tensor_bytes,
                  PanelCudaLaunch& launch) const {
    const double active = static_cast<double>(
        std::min(launch.occupancy.blocks, CeilDiv(launch.grid, device_.multiprocessors)));
    const double rounds = static_cast<double>(CeilDiv(units, launch.grid));
    launch.seconds =
        std::max(model.Seconds(rounds, active), tensor_bytes / device_.memory_bytes_per_s);
  }

  void EstimateMultiply(const PanelMultiply& work, PanelCudaLaunch& launch) const {
    FusedCudaCost& unit = launch.unit;
    CudaUnitModel model(plan_.precision, device_, launch.threads, &unit);
    const double panels = work.panels, samples = work.samples;
    const double bytes = static_cast<double>(bytes_), rows = work.rows, depth = work.depth;
    const CudaWork rebuild = ProductWork(plan_.precision, work.left.pairs(), work.right.pairs(),
                                         work.rank, kRebuildColumnBlocks, false);
    model.AddWork(rebuild, panels);
    model.AddWork(Held(ProductWork(plan_.precision, rows, samples, depth,
                                   ProductColumnBlocks(plan_.precision), false)),
                  panels);
    const double vectors = static_cast<double>(work.x.per_row.divisor) * samples;
    model.AddMove(vectors, work.x.vector * bytes, kMoveInstructions, panels, false);
    const double right_loads = panels / work.left.in_tiles;
    const double right_bytes = work.right.packed_elements * bytes;
    model.AddMove(right_bytes / 16, 16, kMoveInstructions, right_loads, false);
    model.AddMove(rows * samples, 0, kResultInstructions, 1, false);
    model.WaitForCopies(panels);
    unit.l2_bytes =
        panels * (rebuild.left_bytes + samples * depth * bytes) + right_loads * right_bytes;
    const double in = static_cast<double>(work.x.features);
    const double out = static_cast<double>(work.out_features);
    unit.memory_bytes = samples * bytes * (in / work.out_blocks + rows);
    SetSeconds(model, work.units, static_cast<double>(batch_) * bytes * (in + out), launch);
  }

  void EstimateGradient(const PanelGradient& work, PanelCudaLaunch& launch) const {
    FusedCudaCost& unit = launch.unit;
    CudaUnitModel model(plan_.precision, device_, launch.threads, &unit);
    const double bytes = static_cast<double>(bytes_), samples = work.samples;
    const double rows = work.rows, columns = work.columns;
    const double steps = static_cast<double>(CeilDiv(work.steps, work.splits));
    const int blocks = ProductColumnBlocks(plan_.precision);
    model.AddWork(Held(SumWork(plan_.precision, rows, columns, samples, blocks, 1)), steps);
    for (const PanelTileMap* map : {&work.x, &work.dy}) {
      const double vectors = static_cast<double>(map->per_row.divisor) * samples;
      model.AddMove(vectors, map->vector * bytes, kMoveInstructions, steps, false);
    }
    model.WaitForCopies(steps);
    const double left = work.left.pairs(), right = work.right.pairs();
    model.AddMove(rows * columns, 4 * bytes, kPanelInstructions, 1, true);
    unit.l2_bytes = steps * samples * (rows + columns) * bytes + 4 * work.rank * (left + right);
    for (const auto& [onto, depth] : {std::pair(left, right), std::pair(right, left)}) {
      const CudaWork project = ProductWork(plan_.precision, work.rank, onto, depth, blocks, false);
      model.AddWork(project, 1);
      unit.l2_bytes += project.left_bytes;
    }
    const double in = static_cast<double>(work.x.features);
    const double out = static_cast<double>(work.dy.features);
    const double moved = static_cast<double>(batch_) * bytes * (in + out);
    unit.memory_bytes = moved / static_cast<double>(work.units);
    SetSeconds(model, work.units, moved, launch);
  }

  const TtShape& shape_;
  const CudaDevice& device_;
  int64_t batch_;
  bool backward_;
  int64_t bytes_, rank_;
  Joined left_, right_;
  PanelCudaPlan plan_;
  std::string reason_;
};

// Calls visit(left tile, right tile) for each two divisors whose product is at most `most`.
template <typename Visit>
void ForEachTile(int64_t left, int64_t right, int64_t most, const Visit& visit) {
  for (int64_t left_tile : Divisors(left)) {
    if (left_tile > most) break;
    for (int64_t right_tile : Divisors(right)) {
      if (left_tile * right_tile > most) break;
      visit(left_tile, right_tile);
    }
  }
}

// The cut's plan of least estimated time.
std::optional<PanelCudaPlan> PlanCut(Planner& planner, int64_t batch, CudaPass pass) {
  std::optional<PanelCudaTile> multiply, gradient;
  double multiply_seconds = 0, gradient_seconds = 0;
  ForEachTile(planner.left_in(), planner.right_in(), kMostDepth, [&](int64_t a, int64_t b) {
    ForEachTile(planner.left_out(), planner.right_out(), kMostRows, [&](int64_t c, int64_t d) {
      for (int64_t samples : {8, 16, 32, 64, 96, 128, 192, 256, 384}) {
        if (samples > 8 && samples >= 2 * batch) break;
        const PanelCudaTile tile{a, c, b, d, samples, 1};
        if (!planner.SetMultiply(tile, 0)) break;
        const double seconds = planner.multiply().seconds;
        if (multiply && seconds >= multiply_seconds) continue;
        multiply = tile;
        multiply_seconds = seconds;
      }
    });
  });
  if (!multiply || !planner.SetMultiply(*multiply, 0)) return std::nullopt;
  if (pass == CudaPass::kForward) return planner.Finish();
  const Joined &left = planner.left(), &right = planner.right();
  ForEachTile(left.n, right.n, kMostRows, [&](int64_t a, int64_t b) {
    ForEachTile(left.m, right.m, kMostRows, [&](int64_t c, int64_t d) {
      for (int64_t samples : {16, 32, 64}) {
        for (int64_t splits : {1, 2, 4, 8, 16}) {
          const PanelCudaTile tile{a, c, b, d, samples, splits};
          if (!planner.SetGradient(tile, 0)) return;
          // With what its partial sums take.
          Planner whole = planner;
          const double seconds = whole.Finish().seconds;
          if (gradient && seconds >= gradient_seconds) continue;
          gradient = tile;
          gradient_seconds = seconds;
        }
      }
    });
  });
  if (!gradient || !planner.SetGradient(*gradient, 0)) return std::nullopt;
  return planner.Finish();
}

}  // namespace

std::optional<PanelCudaPlan> MakePanelCudaPlan(const TtShape& shape, int64_t batch,
                                               CudaPrecision precision, CudaPass pass,
                                               const CudaDevice& device, int64_t cut,
                                               const PanelCudaTile& multiply,
                                               const PanelCudaTile& gradient, int64_t grid,
                                               std::string* reason) {
  try {
    Planner planner(shape, batch, precision, pass, device, cut);
    if (planner.Join() && planner.SetMultiply(multiply, grid) &&
        (pass == CudaPass::kForward || planner.SetGradient(gradient, grid))) {
      return planner.Finish();
    }
    if (reason != nullptr) *reason = planner.reason();
  } catch (const ShapeError& error) {  // A size past 64 bits.
    if (reason != nullptr) *reason = error.what();
  }
  return std::nullopt;
}

std::optional<PanelCudaPlan> PlanPanelCuda(const TtShape& shape, int64_t batch,
                                           CudaPrecision precision, CudaPass pass,
                                           const CudaDevice& device, std::string* reason) {
  std::optional<PanelCudaPlan> best;
  for (int64_t cut = 1; cut < shape.cores(); ++cut) {
    try {
      Planner planner(shape, batch, precision, pass, device, cut);
      const auto plan = planner.Join() ? PlanCut(planner, batch, pass) : std::nullopt;
      if (!plan && reason != nullptr) *reason = planner.reason();
      if (plan && (!best || plan->seconds < best->seconds)) best = plan;
    } catch (const ShapeError& error) {
      if (reason != nullptr) *reason = error.what();
    }
  }
  return best;
}

std::optional<CudaLayerPlan> PlanCudaLayer(const TtShape& shape, int64_t batch,
                                           CudaPrecision precision, CudaPass pass,
                                           const CudaDevice& device, std::string* reason) {
  auto fused = PlanFusedCuda(shape, batch, precision, pass, device, reason);
  auto panel = PlanPanelCuda(shape, batch, precision, pass, device, fused ? nullptr : reason);
  if (!fused && !panel) return std::nullopt;
  if (!panel || (fused && fused->seconds <= panel->seconds)) return *std::move(fused);
  return *std::move(panel);
}

const char* KernelName(const CudaLayerPlan& plan) {
  return std::holds_alternative<FusedCudaPlan>(plan) ? "fused" : "panel";
}

}  // namespace ttbench
