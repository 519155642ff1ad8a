#include "kernels/cuda/gemm_plan.h"

#include <algorithm>
#include <utility>

#include "kernels/linear/core_groups.h"

namespace ttbench {
namespace {

// Slices of a gradient that are summed at the end: enough to fill a GPU, few enough to stay small
// beside the operands.
constexpr int64_t kMaxSlices = 1024;

int64_t AlignUp(int64_t bytes) {
  return CheckedAdd(bytes, kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
}

// The buffers that a step reads and the one it writes.
struct Access {
  std::vector<BufferId> reads;
  BufferId write;
};

Access AccessOf(const Step& step) {
  if (const auto* gemm = std::get_if<GemmStep>(&step)) {
    Access access{{gemm->a.buffer, gemm->b.buffer}, gemm->c.buffer};
    if (gemm->accumulate) access.reads.push_back(gemm->c.buffer);
    return access;
  }
  if (const auto* swap = std::get_if<SwapStep>(&step)) return {{swap->from}, swap->to};
  const auto& sum = std::get<SumStep>(step);
  return {{sum.from}, sum.to};
}

// The first and the last step of a pass that touches a buffer; first > last if none does.
struct Lifetime {
  int64_t first = 0, last = -1;
  bool used() const { return first <= last; }
  bool Meets(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

std::vector<Lifetime> LifetimesIn(const PlanPass& pass, size_t buffers) {
  std::vector<Lifetime> lifetimes(buffers);
  for (size_t i = 0; i < pass.steps.size(); ++i) {
    Access access = AccessOf(pass.steps[i]);
    access.reads.push_back(access.write);
    for (const BufferId id : access.reads) {
      Lifetime& lifetime = lifetimes.at(static_cast<size_t>(id));
      const auto step = static_cast<int64_t>(i);
      if (!lifetime.used()) lifetime.first = step;
      lifetime.last = step;
    }
  }
  return lifetimes;
}

// One of the cores that the running tensor is contracted with.
struct ChainCore {
  int64_t left_rank, n, m, right_rank;
  BufferId matrix;               // H_k
  BufferId matrix_gradient = 0;  // dH_k; set before the backward.
  int64_t rows() const { return left_rank * m; }
  int64_t columns() const { return n * right_rank; }
  int64_t elements() const { return rows() * columns(); }
};

std::string CoreName(int64_t k) { return "G" + std::to_string(k + 1); }

class Builder {
 public:
  Builder(std::string layer, int64_t in, int64_t out, int64_t batch, DType dtype, PlanFor purpose)
      : trains_(purpose == PlanFor::kTraining) {
    if (batch < 1) throw ShapeError("a plan of products needs at least one row of x");
    plan_.layer = std::move(layer) + " b" + std::to_string(batch);
    plan_.dtype = dtype;
    plan_.batch = batch;
    const int64_t x_elements = CheckedMul(batch, in), y_elements = CheckedMul(batch, out);
    x_ = Add("x", Place::kX, x_elements);
    y_ = Add("y", Place::kY, y_elements);
    if (!trains_) return;
    dy_ = Add("dy", Place::kDy, y_elements);
    dx_ = Add("dx", Place::kDx, x_elements);
  }

  bool trains() const { return trains_; }
  BufferId x() const { return x_; }
  BufferId y() const { return y_; }
  BufferId dy() const { return dy_; }
  BufferId dx() const { return dx_; }

  // Adds the parameter, and its gradient where the plan trains.
  BufferId AddParameter(const std::string& name, int64_t elements) {
    const auto index = static_cast<int64_t>(gradients_.size());
    const BufferId id = Add(name, Place::kParameter, elements, index);
    gradients_.push_back(
        trains_ ? Add("d(" + name + ")", Place::kParameterGradient, elements, index) : 0);
    return id;
  }
  BufferId GradientOf(int64_t parameter) const {
    return gradients_[static_cast<size_t>(parameter)];
  }

  BufferId AddScratch(const std::string& name, int64_t elements) {
    return Add(name, Place::kScratch, elements);
  }
  // Kept for the backward, if there is one.
  BufferId AddHeld(const std::string& name, int64_t elements) {
    return Add(name, trains_ ? Place::kHeld : Place::kScratch, elements);
  }
  // Where sums are made before they are rounded: float32 for bfloat16.
  BufferId AddSlices(const std::string& name, int64_t elements) {
    const BufferId id = AddScratch(name, elements);
    if (plan_.dtype == DType::kBFloat16) {
      plan_.buffers.back().dtype = DType::kFloat32;
      CheckedMul(elements, ElementBytes(DType::kFloat32));
    }
    return id;
  }

  void BeginBackward() { pass_ = &plan_.backward; }

  // Splits what one call cannot take.
  void Gemm(const GemmStep& whole) {
    for (int64_t first = 0; first < whole.batch; first += kMaxBatchCount) {
      GemmStep part = whole;
      part.batch = std::min(kMaxBatchCount, whole.batch - first);
      for (Operand* operand : {&part.a, &part.b, &part.c}) Advance(operand, first);
      pass_->steps.push_back(part);
    }
  }
  // The operand from its `matrices`-th matrix on.
  void Advance(Operand* operand, int64_t matrices) const {
    operand->offset_bytes += matrices * operand->batch_stride * ElementBytesOf(operand->buffer);
  }

  void Swap(const std::string& name, BufferId from, BufferId to, int64_t outer, int64_t a,
            int64_t b, int64_t inner) {
    pass_->steps.push_back(SwapStep{name, from, to, outer, a, b, inner});
  }
  void Sum(const std::string& name, BufferId from, BufferId to, int64_t slices, int64_t elements) {
    pass_->steps.push_back(SumStep{name, from, to, slices, elements});
  }

  GemmPlan Finish() {
    int64_t held = 0;
    for (PlanBuffer& buffer : plan_.buffers) {
      if (buffer.place != Place::kHeld) continue;
      buffer.offset_bytes = held;
      held = CheckedAdd(held, AlignUp(buffer.bytes()));
    }
    plan_.held_bytes = held;
    PlaceScratch(&plan_.forward);
    PlaceScratch(&plan_.backward);
    CheckPlan(plan_);
    return std::move(plan_);
  }

 private:
  BufferId Add(const std::string& name, Place place, int64_t elements, int64_t index = 0) {
    CheckedMul(elements, ElementBytes(plan_.dtype));
    plan_.buffers.push_back({name, place, index, plan_.dtype, elements, 0});
    return static_cast<BufferId>(plan_.buffers.size()) - 1;
  }

  int64_t ElementBytesOf(BufferId id) const {
    return ElementBytes(plan_.buffers[static_cast<size_t>(id)].dtype);
  }

  // In the order of first use, each at the lowest offset that is free for its whole life.
  void PlaceScratch(PlanPass* pass) {
    const std::vector<Lifetime> lifetimes = LifetimesIn(*pass, plan_.buffers.size());
    std::vector<size_t> order;
    for (size_t id = 0; id < plan_.buffers.size(); ++id) {
      if (plan_.buffers[id].place == Place::kScratch && lifetimes[id].used()) order.push_back(id);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return lifetimes[a].first < lifetimes[b].first; });
    std::vector<size_t> placed;  // By offset.
    for (const size_t id : order) {
      PlanBuffer& buffer = plan_.buffers[id];
      const int64_t bytes = AlignUp(buffer.bytes());
      int64_t offset = 0;
      for (const size_t other : placed) {
        if (!lifetimes[id].Meets(lifetimes[other])) continue;
        const PlanBuffer& taken = plan_.buffers[other];
        if (CheckedAdd(offset, bytes) <= taken.offset_bytes) break;
        offset = std::max(offset, taken.offset_bytes + AlignUp(taken.bytes()));
      }
      buffer.offset_bytes = offset;
      pass->scratch_bytes = std::max(pass->scratch_bytes, CheckedAdd(offset, bytes));
      placed.insert(std::upper_bound(placed.begin(), placed.end(), offset,
                                     [&](int64_t at, size_t other) {
                                       return at < plan_.buffers[other].offset_bytes;
                                     }),
                    id);
    }
  }

  GemmPlan plan_;
  bool trains_;
  PlanPass* pass_ = &plan_.forward;
  BufferId x_ = 0, y_ = 0, dy_ = 0, dx_ = 0;
  std::vector<BufferId> gradients_;  // Of each parameter.
};

// H of a core [r, n, m, r'] that lies in `core`; the core itself where the swap moves nothing.
BufferId CoreMatrix(Builder* plan, BufferId core, const std::string& name, int64_t left_rank,
                    int64_t n, int64_t m, int64_t right_rank) {
  if (n == 1 || m == 1) return core;
  const BufferId matrix = plan->AddHeld("H of " + name, left_rank * n * m * right_rank);
  plan->Swap("H of " + name, core, matrix, left_rank, n, m, right_rank);
  return matrix;
}

// y from x.
// Returns, for each core, what it is contracted with: `before` in the header.
std::vector<BufferId> ContractForward(Builder* plan, const std::vector<ChainCore>& chain,
                                      int64_t batch) {
  std::vector<BufferId> befores(chain.size());
  int64_t left = batch, right = 1;
  for (const ChainCore& core : chain) left = CheckedMul(left, core.n);
  BufferId before = plan->x();
  for (size_t k = chain.size(); k-- > 0;) {
    const ChainCore& core = chain[k];
    befores[k] = before;
    left /= core.n;
    const int64_t rows = core.rows(), columns = core.columns();
    const std::string name = "T" + std::to_string(k + 1);
    const BufferId after =
        k == 0 ? plan->y() : plan->AddHeld(name, CheckedMul(CheckedMul(left, rows), right));
    GemmStep step;
    step.name = name;
    step.c.buffer = after;
    if (right == 1) {
      step.transpose_b = true;
      step.m = left;
      step.n = rows;
      step.k = columns;
      step.a = {before, 0, columns, 0};
      step.b = {core.matrix, 0, columns, 0};
      step.c.ld = rows;
    } else {
      step.m = rows;
      step.n = right;
      step.k = columns;
      step.batch = left;
      step.a = {core.matrix, 0, columns, 0};
      step.b = {before, 0, right, columns * right};
      step.c.ld = right;
      step.c.batch_stride = rows * right;
    }
    plan->Gemm(step);
    before = after;
    right = CheckedMul(right, core.m);
  }
  return befores;
}

// dH of one core, as the header says.
void CoreGradient(Builder* plan, const ChainCore& core, const std::string& name, BufferId before,
                  BufferId d_after, int64_t left, int64_t right) {
  const int64_t rows = core.rows(), columns = core.columns();
  const std::string gradient = "d(H of " + name + ")";
  GemmStep step;
  step.name = gradient;
  step.m = rows;
  step.n = columns;
  step.c = {core.matrix_gradient, 0, columns, 0};
  if (right == 1) {
    step.transpose_a = true;
    step.k = left;
    step.a = {d_after, 0, rows, 0};
    step.b = {before, 0, columns, 0};
    plan->Gemm(step);
    return;
  }
  step.transpose_b = true;
  if (left == 1) {
    step.k = right;
    step.a = {d_after, 0, right, 0};
    step.b = {before, 0, right, 0};
    plan->Gemm(step);
    return;
  }
  const int64_t operands = CheckedMul(CheckedAdd(rows, columns), right);  // Elements, per `left`.
  if (CheckedMul(rows, columns) < operands) {
    const int64_t slices = std::min(left, kMaxSlices);
    const BufferId parts =
        plan->AddSlices("slices of " + gradient, CheckedMul(slices, core.elements()));
    step.k = right;
    step.a = {d_after, 0, right, rows * right};
    step.b = {before, 0, right, columns * right};
    step.c = {parts, 0, columns, core.elements()};
    for (int64_t first = 0; first < left; first += slices) {
      GemmStep part = step;
      part.batch = std::min(slices, left - first);
      part.accumulate = first > 0;
      plan->Advance(&part.a, first);
      plan->Advance(&part.b, first);
      plan->Gemm(part);
    }
    plan->Sum(gradient, parts, core.matrix_gradient, slices, core.elements());
    return;
  }
  auto transposed = [&](BufferId from, int64_t matrix_rows, const std::string& of) {
    const BufferId to =
        plan->AddScratch(of + ", transposed", CheckedMul(CheckedMul(left, matrix_rows), right));
    plan->Swap(of + ", transposed", from, to, 1, left, matrix_rows, right);
    return to;
  };
  step.k = CheckedMul(left, right);
  step.a = {transposed(d_after, rows, "d(after " + name + ")"), 0, step.k, 0};
  step.b = {transposed(before, columns, "before " + name), 0, step.k, 0};
  plan->Gemm(step);
}

// dx and every dH from dy.
void ContractBackward(Builder* plan, const std::vector<ChainCore>& chain,
                      const std::vector<BufferId>& befores, int64_t batch) {
  int64_t left = batch, right = 1;
  for (const ChainCore& core : chain) right = CheckedMul(right, core.m);
  BufferId d_after = plan->dy();
  for (size_t k = 0; k < chain.size(); ++k) {
    const ChainCore& core = chain[k];
    right /= core.m;
    const int64_t rows = core.rows(), columns = core.columns();
    const bool last = k + 1 == chain.size();
    CoreGradient(plan, core, CoreName(static_cast<int64_t>(k)), befores[k], d_after, left, right);

    const std::string name = "d(T" + std::to_string(k + 2) + ")";
    const BufferId d_before =
        last ? plan->dx() : plan->AddScratch(name, CheckedMul(CheckedMul(left, columns), right));
    GemmStep step;
    step.name = last ? "dx" : name;
    step.c.buffer = d_before;
    step.n = columns;
    step.k = rows;
    if (right == 1) {
      step.m = left;
      step.a = {d_after, 0, rows, 0};
      step.b = {core.matrix, 0, columns, 0};
      step.c.ld = columns;
    } else {
      step.transpose_a = true;
      step.m = columns;
      step.n = right;
      step.batch = left;
      step.a = {core.matrix, 0, columns, 0};
      step.b = {d_after, 0, right, rows * right};
      step.c.ld = right;
      step.c.batch_stride = columns * right;
    }
    plan->Gemm(step);
    d_after = d_before;
    left = CheckedMul(left, core.n);
  }
}

// Cores multiplied from the left into one, as H [(r m_1 .. m_j), (n_1 .. n_j r')].
struct Joined {
  ChainCore core;
  std::vector<BufferId>
      prefixes;  // H of the first core, of the first two, ..; the last is the core's.
};

Joined JoinForward(Builder* plan, const TtShape& shape, const CoreGroup& group,
                   const std::vector<BufferId>& cores) {
  const int64_t first = group.first;
  Joined joined{
      {shape.left_rank(first), shape.n(first), shape.m(first), shape.right_rank(first), 0, 0}, {}};
  ChainCore& all = joined.core;
  std::string name = CoreName(first);
  all.matrix = CoreMatrix(plan, cores[static_cast<size_t>(first)], name, all.left_rank, all.n,
                          all.m, all.right_rank);
  joined.prefixes.push_back(all.matrix);
  for (int64_t k = first + 1; k < group.last; ++k) {
    // [(r m n), r_k] [r_k, (n_k m_k r')], then n and n_k side by side.
    const int64_t n = shape.n(k), m = shape.m(k), rank = all.right_rank;
    GemmStep step;
    name += " " + CoreName(k);
    step.name = name;
    step.m = all.left_rank * all.m * all.n;
    step.n = n * m * shape.right_rank(k);
    step.k = rank;
    step.a = {all.matrix, 0, rank, 0};
    step.b = {cores[static_cast<size_t>(k)], 0, step.n, 0};
    all.right_rank = shape.right_rank(k);
    const int64_t elements = CheckedMul(step.m, step.n);
    const bool moves = all.n * n > 1 && m > 1;
    const BufferId product =
        moves ? plan->AddScratch(name, elements) : plan->AddHeld("H of " + name, elements);
    step.c = {product, 0, step.n, 0};
    plan->Gemm(step);
    all.matrix = product;
    if (moves) {
      all.matrix = plan->AddHeld("H of " + name, elements);
      plan->Swap("H of " + name, product, all.matrix, all.left_rank * all.m, all.n * n, m,
                 all.right_rank);
    }
    all.n *= n;
    all.m *= m;
    joined.prefixes.push_back(all.matrix);
  }
  return joined;
}

// Where dH of the group is to be written: its one core's gradient, or scratch.
BufferId JoinedGradient(Builder* plan, const TtShape& shape, const CoreGroup& group,
                        const ChainCore& joined) {
  const int64_t k = group.first;
  if (group.last - k == 1 && (shape.n(k) == 1 || shape.m(k) == 1)) return plan->GradientOf(k);
  return plan->AddScratch("d(H of the cores from " + CoreName(k) + ")", joined.elements());
}

// The gradients of the group's cores from dH.
void JoinBackward(Builder* plan, const TtShape& shape, const CoreGroup& group,
                  const std::vector<BufferId>& cores, const Joined& joined) {
  ChainCore all = joined.core;
  BufferId gradient = all.matrix_gradient;
  for (int64_t k = group.last - 1; k > group.first; --k) {
    const int64_t n = shape.n(k), m = shape.m(k), rank = shape.left_rank(k);
    all.n /= n;
    all.m /= m;
    const int64_t rows = all.left_rank * all.m * all.n, columns = n * m * all.right_rank;
    const std::string name = "the cores up to " + CoreName(k);
    if (all.n * n > 1 && m > 1) {
      const BufferId product = plan->AddScratch("d(" + name + ")", rows * columns);
      plan->Swap("d(" + name + ")", gradient, product, all.left_rank * all.m, m, all.n * n,
                 all.right_rank);
      gradient = product;
    }
    const BufferId prefix = joined.prefixes[static_cast<size_t>(k - 1 - group.first)];
    GemmStep to_core;
    to_core.name = "d(" + CoreName(k) + ")";
    to_core.transpose_a = true;
    to_core.m = rank;
    to_core.n = columns;
    to_core.k = rows;
    to_core.a = {prefix, 0, rank, 0};
    to_core.b = {gradient, 0, columns, 0};
    to_core.c = {plan->GradientOf(k), 0, columns, 0};
    plan->Gemm(to_core);

    const bool is_core =
        k - 1 == group.first && (shape.n(group.first) == 1 || shape.m(group.first) == 1);
    const BufferId d_prefix =
        is_core ? plan->GradientOf(group.first)
                : plan->AddScratch("d(H of the cores up to " + CoreName(k - 1) + ")", rows * rank);
    GemmStep to_prefix;
    to_prefix.name = "d(H of the cores up to " + CoreName(k - 1) + ")";
    to_prefix.transpose_b = true;
    to_prefix.m = rows;
    to_prefix.n = rank;
    to_prefix.k = columns;
    to_prefix.a = {gradient, 0, columns, 0};
    to_prefix.b = {cores[static_cast<size_t>(k)], 0, columns, 0};
    to_prefix.c = {d_prefix, 0, rank, 0};
    plan->Gemm(to_prefix);
    gradient = d_prefix;
    all.right_rank = rank;
  }
  const int64_t first = group.first;
  if (gradient == plan->GradientOf(first)) return;
  plan->Swap("d(" + CoreName(first) + ")", gradient, plan->GradientOf(first), all.left_rank, all.m,
             all.n, all.right_rank);
}

// Joins each group's cores, and contracts with what is left. Groups of one core join nothing.
GemmPlan PlanGroups(const std::string& form, const TtShape& shape,
                    const std::vector<CoreGroup>& groups, int64_t batch, DType dtype,
                    PlanFor purpose) {
  Builder plan(form + " " + shape.modes_name() + " ranks " + shape.ranks_name(),
               shape.in_features(), shape.out_features(), batch, dtype, purpose);
  std::vector<BufferId> cores;
  for (int64_t k = 0; k < shape.cores(); ++k)
    cores.push_back(plan.AddParameter(CoreName(k), Product(shape.CoreSizes(k))));
  std::vector<Joined> joined;
  std::vector<ChainCore> chain;
  for (const CoreGroup& group : groups) {
    joined.push_back(JoinForward(&plan, shape, group, cores));
    chain.push_back(joined.back().core);
  }
  const std::vector<BufferId> befores = ContractForward(&plan, chain, batch);
  if (plan.trains()) {
    plan.BeginBackward();
    for (size_t i = 0; i < groups.size(); ++i) {
      chain[i].matrix_gradient = JoinedGradient(&plan, shape, groups[i], chain[i]);
      joined[i].core.matrix_gradient = chain[i].matrix_gradient;
    }
    ContractBackward(&plan, chain, befores, batch);
    for (size_t i = 0; i < groups.size(); ++i)
      JoinBackward(&plan, shape, groups[i], cores, joined[i]);
  }
  return plan.Finish();
}

}  // namespace

int64_t GemmPlan::flops() const {
  int64_t sum = 0;
  for (const PlanPass* pass : {&forward, &backward})
    for (const Step& step : pass->steps)
      if (const auto* gemm = std::get_if<GemmStep>(&step)) sum = CheckedAdd(sum, gemm->flops());
  return sum;
}

int64_t GemmPlan::copied_bytes() const {
  int64_t sum = 0;
  for (const PlanPass* pass : {&forward, &backward})
    for (const Step& step : pass->steps)
      if (const auto* swap = std::get_if<SwapStep>(&step))
        sum = CheckedAdd(sum, buffers[static_cast<size_t>(swap->to)].bytes());
  return sum;
}

GemmPlan PlanDense(int64_t out_features, int64_t in_features, int64_t batch, DType dtype,
                   PlanFor purpose) {
  Builder plan("dense " + std::to_string(in_features) + ":" + std::to_string(out_features),
               in_features, out_features, batch, dtype, purpose);
  const BufferId weight = plan.AddParameter("W", CheckedMul(out_features, in_features));
  GemmStep y;
  y.name = "y";
  y.transpose_b = true;
  y.m = batch;
  y.n = out_features;
  y.k = in_features;
  y.a = {plan.x(), 0, in_features, 0};
  y.b = {weight, 0, in_features, 0};
  y.c = {plan.y(), 0, out_features, 0};
  plan.Gemm(y);
  if (plan.trains()) {
    plan.BeginBackward();
    GemmStep dx;
    dx.name = "dx";
    dx.m = batch;
    dx.n = in_features;
    dx.k = out_features;
    dx.a = {plan.dy(), 0, out_features, 0};
    dx.b = {weight, 0, in_features, 0};
    dx.c = {plan.dx(), 0, in_features, 0};
    plan.Gemm(dx);
    GemmStep dweight;
    dweight.name = "dW";
    dweight.transpose_a = true;
    dweight.m = out_features;
    dweight.n = in_features;
    dweight.k = batch;
    dweight.a = {plan.dy(), 0, out_features, 0};
    dweight.b = {plan.x(), 0, in_features, 0};
    dweight.c = {plan.GradientOf(0), 0, in_features, 0};
    plan.Gemm(dweight);
  }
  return plan.Finish();
}

GemmPlan PlanSequential(const TtShape& shape, int64_t batch, DType dtype, PlanFor purpose) {
  std::vector<CoreGroup> groups;
  for (int64_t k = 0; k < shape.cores(); ++k) groups.push_back({k, k + 1});
  return PlanGroups("sequential", shape, groups, batch, dtype, purpose);
}

GemmPlan PlanMerged(const TtShape& shape, int64_t batch, DType dtype, PlanFor purpose) {
  const int64_t cut = CheapestCut(shape, batch);
  return PlanGroups("merged", shape, {{0, cut}, {cut, shape.cores()}}, batch, dtype, purpose);
}

namespace {

// CheckPlan()'s state: one pass after the other.
class Checker {
 public:
  explicit Checker(const GemmPlan& plan) : plan_(plan), written_(plan.buffers.size(), 0) {}

  void Run() {
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const PlanBuffer& buffer = plan_.buffers[i];
      if (buffer.elements < 1) Fail("buffer " + buffer.name, "has no elements");
      if (IsInput(buffer)) written_[i] = buffer.elements;
    }
    CheckPass(plan_.forward);
    // What is in the forward's scratch is lost.
    for (size_t i = 0; i < plan_.buffers.size(); ++i)
      if (plan_.buffers[i].place == Place::kScratch) written_[i] = 0;
    CheckPass(plan_.backward);
    CheckBlock("held", Place::kHeld, plan_.held_bytes,
               std::vector<Lifetime>(plan_.buffers.size(), Lifetime{0, 0}));
    for (const PlanPass* pass : {&plan_.forward, &plan_.backward})
      CheckBlock("scratch", Place::kScratch, pass->scratch_bytes,
                 LifetimesIn(*pass, plan_.buffers.size()));
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const Place place = plan_.buffers[i].place;
      const bool result =
          place == Place::kY || place == Place::kDx || place == Place::kParameterGradient;
      if (result && written_[i] != plan_.buffers[i].elements)
        Fail("buffer " + plan_.buffers[i].name, "is not written whole");
    }
  }

 private:
  static bool IsInput(const PlanBuffer& buffer) {
    return buffer.place == Place::kX || buffer.place == Place::kDy ||
           buffer.place == Place::kParameter;
  }

  [[noreturn]] void Fail(const std::string& where, const std::string& what) const {
    throw PlanError("the plan of " + plan_.layer + " is not sound: " + where + " " + what);
  }
  void Require(bool holds, const std::string& step, const std::string& what) const {
    if (!holds) Fail("step '" + step + "'", what);
  }

  const PlanBuffer& Buffer(BufferId id, const std::string& step) const {
    Require(id >= 0 && static_cast<size_t>(id) < plan_.buffers.size(), step, "has no such buffer");
    return plan_.buffers[static_cast<size_t>(id)];
  }

  // Stored as [rows, columns] matrices. Returns the first element's index in the buffer.
  int64_t CheckOperand(const GemmStep& step, const Operand& operand, const char* which,
                       int64_t rows, int64_t columns) const {
    const PlanBuffer& buffer = Buffer(operand.buffer, step.name);
    const int64_t size = ElementBytes(buffer.dtype);
    const std::string name = std::string(which) + " (" + buffer.name + ")";
    Require(operand.offset_bytes >= 0 && operand.offset_bytes % size == 0, step.name,
            name + " begins between elements");
    Require(operand.ld >= columns, step.name, name + " has rows longer than its leading dimension");
    Require(operand.batch_stride >= 0, step.name, name + " has a negative stride");
    Require(step.batch == 1 || operand.batch_stride == 0 ||
                operand.batch_stride >= CheckedAdd(CheckedMul(rows - 1, operand.ld), columns),
            step.name, name + " has matrices that overlap");
    const int64_t first = operand.offset_bytes / size;
    const int64_t end =
        CheckedAdd(first, CheckedAdd(CheckedMul(step.batch - 1, operand.batch_stride),
                                     CheckedAdd(CheckedMul(rows - 1, operand.ld), columns)));
    Require(end <= buffer.elements, step.name, name + " reaches past its buffer");
    return first;
  }

  void CheckRead(BufferId id, const std::string& step) const {
    const PlanBuffer& buffer = Buffer(id, step);
    Require(written_[static_cast<size_t>(id)] == buffer.elements, step,
            "reads " + buffer.name + " before it is written whole");
  }

  // Results are written from the first element on, without gaps.
  void NoteWrite(BufferId id, int64_t first, int64_t count, const std::string& step) {
    const PlanBuffer& buffer = Buffer(id, step);
    Require(!IsInput(buffer), step, "overwrites " + buffer.name);
    int64_t& written = written_[static_cast<size_t>(id)];
    Require(first == written, step, "writes " + buffer.name + " with a gap or twice");
    written += count;
    Require(written <= buffer.elements, step, "writes past " + buffer.name);
  }

  void CheckStep(const GemmStep& step) {
    Require(step.m > 0 && step.n > 0 && step.k > 0, step.name, "has an empty product");
    Require(step.batch >= 1 && step.batch <= kMaxBatchCount, step.name,
            "has a batch count that one call does not take");
    CheckOperand(step, step.a, "A", step.transpose_a ? step.k : step.m,
                 step.transpose_a ? step.m : step.k);
    CheckOperand(step, step.b, "B", step.transpose_b ? step.n : step.k,
                 step.transpose_b ? step.k : step.n);
    const int64_t first = CheckOperand(step, step.c, "C", step.m, step.n);
    Require(step.c.ld == step.n && (step.batch == 1 || step.c.batch_stride == step.m * step.n),
            step.name, "leaves gaps in its result");
    Require(step.c.buffer != step.a.buffer && step.c.buffer != step.b.buffer, step.name,
            "writes one of its operands");
    const DType operands = Buffer(step.a.buffer, step.name).dtype;
    const DType result = Buffer(step.c.buffer, step.name).dtype;
    Require(operands == plan_.dtype && Buffer(step.b.buffer, step.name).dtype == operands &&
                (result == operands || (operands == DType::kBFloat16 && result == DType::kFloat32)),
            step.name, "mixes types that no product takes");
    CheckRead(step.a.buffer, step.name);
    CheckRead(step.b.buffer, step.name);
    const int64_t count = CheckedMul(step.batch, CheckedMul(step.m, step.n));
    if (step.accumulate) {
      CheckRead(step.c.buffer, step.name);
    } else {
      NoteWrite(step.c.buffer, first, count, step.name);
    }
  }

  void CheckStep(const SwapStep& step) {
    Require(step.outer > 0 && step.a > 0 && step.b > 0 && step.inner > 0, step.name,
            "copies nothing");
    const int64_t elements =
        CheckedMul(CheckedMul(step.outer, step.a), CheckedMul(step.b, step.inner));
    const PlanBuffer& from = Buffer(step.from, step.name);
    Require(elements == from.elements && elements == Buffer(step.to, step.name).elements, step.name,
            "does not copy a whole buffer into a whole buffer");
    Require(step.from != step.to && from.dtype == Buffer(step.to, step.name).dtype, step.name,
            "copies in place, or into another type");
    CheckRead(step.from, step.name);
    NoteWrite(step.to, 0, elements, step.name);
  }

  void CheckStep(const SumStep& step) {
    Require(step.slices > 0 && step.elements > 0, step.name, "sums nothing");
    Require(CheckedMul(step.slices, step.elements) == Buffer(step.from, step.name).elements &&
                step.elements == Buffer(step.to, step.name).elements && step.from != step.to,
            step.name, "does not sum the whole of its slices");
    CheckRead(step.from, step.name);
    NoteWrite(step.to, 0, step.elements, step.name);
  }

  void CheckPass(const PlanPass& pass) {
    for (const Step& step : pass.steps) std::visit([&](const auto& s) { CheckStep(s); }, step);
  }

  void CheckBlock(const std::string& block, Place place, int64_t block_bytes,
                  const std::vector<Lifetime>& lifetimes) const {
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const PlanBuffer& buffer = plan_.buffers[i];
      if (buffer.place != place || !lifetimes[i].used()) continue;
      const int64_t end = CheckedAdd(buffer.offset_bytes, buffer.bytes());
      if (buffer.offset_bytes < 0 || end > block_bytes)
        Fail("buffer " + buffer.name, "lies outside the " + block + " block");
      if (buffer.offset_bytes % kPlanAlignment != 0)
        Fail("buffer " + buffer.name, "is not aligned");
      for (size_t j = 0; j < i; ++j) {
        const PlanBuffer& other = plan_.buffers[j];
        if (other.place != place || !lifetimes[j].used() || !lifetimes[i].Meets(lifetimes[j]))
          continue;
        if (buffer.offset_bytes < other.offset_bytes + other.bytes() && other.offset_bytes < end)
          Fail("buffer " + buffer.name, "overlaps " + other.name + " while both are alive");
      }
    }
  }

  const GemmPlan& plan_;
  std::vector<int64_t> written_;  // Elements of each buffer, from its first on.
};

}  // namespace

void CheckPlan(const GemmPlan& plan) { Checker(plan).Run(); }

char* PlanPointers::Of(const PlanBuffer& buffer) const {
  const void* base = nullptr;
  const auto index = static_cast<size_t>(buffer.index);
  switch (buffer.place) {
    case Place::kX:
      base = x;
      break;
    case Place::kY:
      base = y;
      break;
    case Place::kDy:
      base = dy;
      break;
    case Place::kDx:
      base = dx;
      break;
    case Place::kParameter:
      base = parameters.at(index);
      break;
    case Place::kParameterGradient:
      base = parameter_gradients.at(index);
      break;
    case Place::kHeld:
      base = held;
      break;
    case Place::kScratch:
      base = scratch;
      break;
  }
  return static_cast<char*>(const_cast<void*>(base)) + buffer.offset_bytes;
}

}  // namespace ttbench
