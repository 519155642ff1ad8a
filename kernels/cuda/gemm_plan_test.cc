#include "kernels/cuda/gemm_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/host_executor.h"
#include "kernels/linear/core_groups.h"
#include "kernels/oracle.h"

namespace ttbench {
namespace {

using Values = std::vector<double>;

enum class Form { kSequential, kMerged };
constexpr Form kForms[] = {Form::kSequential, Form::kMerged};

GemmPlan PlanOf(Form form, const TtShape& shape, int64_t batch, DType dtype, PlanFor purpose) {
  return form == Form::kSequential ? PlanSequential(shape, batch, dtype, purpose)
                                   : PlanMerged(shape, batch, dtype, purpose);
}

Values RandomValues(int64_t count, std::mt19937_64* random) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  Values values(static_cast<size_t>(count));
  for (double& value : values) value = uniform(*random);
  return values;
}

// A layer's inputs, and what its plan must make of them.
struct Layer {
  Layer(const TtShape& shape, int64_t batch, std::mt19937_64* random) {
    for (int64_t k = 0; k < shape.cores(); ++k)
      cores.push_back(RandomValues(Product(shape.CoreSizes(k)), random));
    x = RandomValues(batch * shape.in_features(), random);
    dy = RandomValues(batch * shape.out_features(), random);
    right = EvaluateOracle(shape, cores, x, dy);
  }
  std::vector<Values> cores;
  Values x, dy;
  OracleResult right;
};

// Relative to the largest element that is right; infinite if any is not finite.
template <typename Element>
double ErrorOf(const std::vector<Element>& got, const Values& right) {
  double error = 0, largest = 0;
  for (size_t i = 0; i < right.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - right[i]);
    error = std::isfinite(difference) ? std::max(error, difference) : HUGE_VAL;
    largest = std::max(largest, std::abs(right[i]));
  }
  return largest > 0 ? error / largest : error;
}

// The worst error over y, dx and every parameter's gradient when the host executes the plan. What
// the plan does not write is NaN, scratch included, and so is what it reads too early.
template <typename Element>
double ErrorOnHost(const GemmPlan& plan, const Values& x, const Values& dy,
                   const std::vector<Values>& parameters, const OracleResult& right) {
  const Element nan = std::nan("");
  auto narrow = [](const Values& v) { return std::vector<Element>(v.begin(), v.end()); };
  auto block = [&](int64_t bytes) {
    return std::vector<Element>(static_cast<size_t>(bytes) / sizeof(Element) + 1, nan);
  };
  const std::vector<Element> narrow_x = narrow(x), narrow_dy = narrow(dy);
  std::vector<Element> y(right.y.size(), nan), dx(x.size(), nan), held = block(plan.held_bytes);
  std::vector<std::vector<Element>> narrow_parameters, gradients;
  PlanPointers pointers;
  for (const Values& parameter : parameters) {
    narrow_parameters.push_back(narrow(parameter));
    gradients.emplace_back(parameter.size(), nan);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    pointers.parameters.push_back(narrow_parameters[i].data());
    pointers.parameter_gradients.push_back(gradients[i].data());
  }
  pointers.x = narrow_x.data();
  pointers.dy = narrow_dy.data();
  pointers.y = y.data();
  pointers.dx = dx.data();
  pointers.held = held.data();
  std::vector<Element> scratch = block(plan.forward.scratch_bytes);
  pointers.scratch = scratch.data();
  RunOnHost(plan, plan.forward, pointers);
  double error = ErrorOf(y, right.y);
  if (plan.backward.steps.empty()) return error;
  std::vector<Element> backward_scratch = block(plan.backward.scratch_bytes);
  pointers.scratch = backward_scratch.data();
  RunOnHost(plan, plan.backward, pointers);
  error = std::max(error, ErrorOf(dx, right.dx));
  for (size_t i = 0; i < parameters.size(); ++i)
    error = std::max(error, ErrorOf(gradients[i], right.dcores[i]));
  return error;
}

template <typename Element>
double ErrorOnHost(const GemmPlan& plan, const Layer& layer) {
  return ErrorOnHost<Element>(plan, layer.x, layer.dy, layer.cores, layer.right);
}

TtShape RandomShape(std::mt19937_64* random) {
  auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(*random);
  };
  const int64_t cores = draw(2, 6), largest = cores <= 3 ? 7 : cores == 4 ? 4 : 3;
  Modes in, out, ranks;
  for (int64_t k = 0; k < cores; ++k) {
    in.push_back(draw(1, largest));
    out.push_back(draw(1, largest));
    if (k > 0) ranks.push_back(draw(1, 6));
  }
  return TtShape(in, out, ranks);
}

TEST(GemmPlanTest, IsTheLayerAndItsGradients) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 150; ++i) {
    const TtShape shape = RandomShape(&random);
    const int64_t batch = std::vector<int64_t>{1, 1, 2, 3, 5, 8, 13}[random() % 7];
    const Layer layer(shape, batch, &random);
    for (const Form form : kForms) {
      for (const PlanFor purpose : {PlanFor::kInference, PlanFor::kTraining}) {
        const GemmPlan plan = PlanOf(form, shape, batch, DType::kFloat64, purpose);
        EXPECT_EQ(plan.backward.steps.empty(), purpose == PlanFor::kInference);
        EXPECT_LE(ErrorOnHost<double>(plan, layer), 1e-13) << plan.layer;
        EXPECT_LE(ErrorOnHost<float>(PlanOf(form, shape, batch, DType::kFloat32, purpose), layer),
                  3e-5)
            << plan.layer;
      }
    }
  }
}

TEST(GemmPlanTest, IsTheDenseLayer) {
  std::mt19937_64 random(7);
  for (const auto& [out, in, batch] :
       std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {5, 3, 1}, {4, 7, 9}, {16, 1, 3}}) {
    const Values weight = RandomValues(out * in, &random), x = RandomValues(batch * in, &random),
                 dy = RandomValues(batch * out, &random);
    OracleResult right;
    right.y.assign(static_cast<size_t>(batch * out), 0);
    right.dx.assign(x.size(), 0);
    right.dcores = {Values(weight.size(), 0)};
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t j = 0; j < out; ++j)
        for (int64_t i = 0; i < in; ++i) {
          right.y[b * out + j] += weight[j * in + i] * x[b * in + i];
          right.dx[b * in + i] += weight[j * in + i] * dy[b * out + j];
          right.dcores[0][j * in + i] += dy[b * out + j] * x[b * in + i];
        }
    const GemmPlan plan = PlanDense(out, in, batch, DType::kFloat64, PlanFor::kTraining);
    EXPECT_LE(ErrorOnHost<double>(plan, x, dy, {weight}, right), 1e-14);
    EXPECT_EQ(plan.flops(), 3 * 2 * batch * out * in);
    EXPECT_EQ(plan.held_bytes, 0);
    EXPECT_EQ(plan.forward.scratch_bytes + plan.backward.scratch_bytes, 0);
  }
}

// More than a call takes, and more than the slices that a gradient is summed in.
TEST(GemmPlanTest, SplitsBatches) {
  std::mt19937_64 random(9);
  const int64_t batch = kMaxBatchCount + 4000;
  const TtShape shape = TtShape::Cube(2, 2, 2);
  const GemmPlan plan = PlanSequential(shape, batch, DType::kFloat64, PlanFor::kTraining);
  int64_t split = 0, accumulating = 0;
  for (const PlanPass* pass : {&plan.forward, &plan.backward}) {
    for (const Step& step : pass->steps) {
      const auto* gemm = std::get_if<GemmStep>(&step);
      if (!gemm) continue;
      EXPECT_LE(gemm->batch, 65535);
      split += gemm->batch == 4000;
      accumulating += gemm->accumulate;
    }
  }
  EXPECT_EQ(split, 2);  // T1 in the forward, d(T2) in the backward.
  EXPECT_GT(accumulating, 0);
  EXPECT_LE(ErrorOnHost<double>(plan, Layer(shape, batch, &random)), 1e-12);
}

TEST(GemmPlanTest, FlopsAreTheFormulas) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 100; ++i) {
    const TtShape shape = RandomShape(&random);
    const int64_t batch = 1 + static_cast<int64_t>(random() % 70);
    const int64_t sequential = 2 * batch * shape.sequential_macs_per_row();
    EXPECT_EQ(PlanSequential(shape, batch, DType::kFloat32, PlanFor::kInference).flops(),
              sequential);
    EXPECT_EQ(PlanSequential(shape, batch, DType::kFloat32, PlanFor::kTraining).flops(),
              3 * sequential);
    const int64_t cut = CheapestCut(shape, batch);
    const int64_t merged =
        2 * (batch * JoinedShape(shape, cut).sequential_macs_per_row() +
             JoiningMacs(shape, {0, cut}) + JoiningMacs(shape, {cut, shape.cores()}));
    EXPECT_EQ(PlanMerged(shape, batch, DType::kFloat32, PlanFor::kInference).flops(), merged);
    EXPECT_EQ(PlanMerged(shape, batch, DType::kFloat32, PlanFor::kTraining).flops(), 3 * merged);
  }
}

// Three cubic cores (docs/memory.md): held beyond x are the two intermediates of r B d^3 each and
// H of every core; no intermediate is copied in the forward.
TEST(GemmPlanTest, HoldsTheIntermediatesAndCopiesOnlyCores) {
  const int64_t d = 16, r = 8, batch = 128;
  const TtShape shape = TtShape::Cube(3, d, r);
  const GemmPlan plan = PlanSequential(shape, batch, DType::kFloat32, PlanFor::kTraining);
  EXPECT_EQ(plan.held_bytes, 4 * (2 * r * batch * d * d * d + shape.parameters()));
  for (const Step& step : plan.forward.steps) {
    const auto* swap = std::get_if<SwapStep>(&step);
    if (!swap) continue;
    EXPECT_EQ(plan.buffers[swap->from].place, Place::kParameter) << swap->name;
  }
  const GemmPlan inference = PlanSequential(shape, batch, DType::kFloat32, PlanFor::kInference);
  EXPECT_EQ(inference.held_bytes, 0);
  EXPECT_EQ(inference.copied_bytes(), 4 * shape.parameters());
  // Both intermediates are alive during the second contraction; the first core's H comes later in
  // the place of nothing that is dead, so that all of them count.
  EXPECT_LE(inference.forward.scratch_bytes, 4 * (2 * r * batch * d * d * d + shape.parameters()));
}

// With many cores, scratch is reused: never more than the two largest intermediates and the cores.
TEST(GemmPlanTest, ScratchIsReused) {
  const TtShape shape = TtShape::Cube(6, 4, 3);
  const int64_t batch = 10, intermediate = 3 * batch * shape.in_features();
  const GemmPlan plan = PlanSequential(shape, batch, DType::kFloat32, PlanFor::kInference);
  EXPECT_LE(plan.forward.scratch_bytes, 4 * (2 * intermediate + shape.parameters()) + 6 * 256);
  EXPECT_GE(plan.forward.scratch_bytes, 4 * 2 * intermediate);
}

// The last byte that each operand touches, in 128 bits, beside what its buffer has: nothing here is
// allocated.
TEST(GemmPlanTest, HoldsPastTwoToThe31Elements) {
  struct Case {
    TtShape shape;
    int64_t batch;
  };
  for (const Case& c :
       {Case{TtShape::Cube(3, 16, 64), 1 << 20}, Case{TtShape::Cube(4, 16, 16), 3 * (1 << 18) + 1},
        Case{TtShape({64, 64, 64}, {32, 128, 32}, {8, 24}), 70001},
        Case{TtShape::Cube(2, 512, 32), 65537}}) {
    for (const Form form : kForms) {
      for (const DType dtype : kDTypes) {
        const GemmPlan plan = PlanOf(form, c.shape, c.batch, dtype, PlanFor::kTraining);
        ASSERT_NO_THROW(CheckPlan(plan));
        __int128 largest = 0, products = 0;
        for (const PlanPass* pass : {&plan.forward, &plan.backward}) {
          for (const Step& step : pass->steps) {
            const auto* gemm = std::get_if<GemmStep>(&step);
            if (!gemm) continue;
            products += gemm->flops() / 2;
            auto visit = [&](const Operand& operand, __int128 rows, __int128 columns) {
              const PlanBuffer& buffer = plan.buffers[operand.buffer];
              const __int128 elements =
                  static_cast<__int128>(gemm->batch - 1) * operand.batch_stride +
                  (rows - 1) * operand.ld + columns;
              const __int128 end = operand.offset_bytes + elements * ElementBytes(buffer.dtype);
              EXPECT_LE(end, static_cast<__int128>(buffer.bytes())) << gemm->name;
              largest = std::max(largest, end / ElementBytes(buffer.dtype));
            };
            visit(gemm->a, gemm->transpose_a ? gemm->k : gemm->m,
                  gemm->transpose_a ? gemm->m : gemm->k);
            visit(gemm->b, gemm->transpose_b ? gemm->n : gemm->k,
                  gemm->transpose_b ? gemm->k : gemm->n);
            visit(gemm->c, gemm->m, gemm->n);
          }
        }
        EXPECT_GT(largest, static_cast<__int128>(1) << 31) << plan.layer;
        EXPECT_EQ(products, static_cast<__int128>(plan.flops() / 2));
      }
    }
  }
}

TEST(GemmPlanTest, RefusesCountsPast64Bits) {
  EXPECT_THROW(PlanSequential(TtShape::Cube(6, 128, 64), int64_t{1} << 20, DType::kFloat32,
                              PlanFor::kTraining),
               ShapeError);
  EXPECT_THROW(PlanDense(4, 4, 0, DType::kFloat32, PlanFor::kInference), ShapeError);
}

// Calls change(plan, step) for each number of each product that places or strides an operand, and
// for each transpose, on a copy of the plan; expects that the check refuses the copy or that its
// results are wrong.
void ExpectEveryWrongNumberFound(const GemmPlan& plan, const Layer& layer) {
  struct Number {
    const char* name;
    int64_t* (*of)(GemmStep* step);
    bool (*matters)(const GemmStep& step);
  };
  auto always = [](const GemmStep&) { return true; };
  auto batched = [](const GemmStep& s) { return s.batch > 1; };
  // A leading dimension of a single row is never used.
  auto a_rows = [](const GemmStep& s) { return (s.transpose_a ? s.k : s.m) > 1; };
  auto b_rows = [](const GemmStep& s) { return (s.transpose_b ? s.n : s.k) > 1; };
  const Number numbers[] = {
      {"lda", [](GemmStep* s) { return &s->a.ld; }, a_rows},
      {"ldb", [](GemmStep* s) { return &s->b.ld; }, b_rows},
      {"ldc", [](GemmStep* s) { return &s->c.ld; }, always},
      {"stride of A", [](GemmStep* s) { return &s->a.batch_stride; }, batched},
      {"stride of B", [](GemmStep* s) { return &s->b.batch_stride; }, batched},
      {"stride of C", [](GemmStep* s) { return &s->c.batch_stride; }, batched},
      {"offset of A", [](GemmStep* s) { return &s->a.offset_bytes; }, always},
      {"offset of B", [](GemmStep* s) { return &s->b.offset_bytes; }, always},
      {"offset of C", [](GemmStep* s) { return &s->c.offset_bytes; }, always},
      {"m", [](GemmStep* s) { return &s->m; }, always},
      {"n", [](GemmStep* s) { return &s->n; }, always},
      {"k", [](GemmStep* s) { return &s->k; }, always},
      {"batch", [](GemmStep* s) { return &s->batch; }, always},
  };
  int refused = 0, wrong = 0;
  auto expect_found = [&](const GemmPlan& changed, const std::string& what) {
    try {
      CheckPlan(changed);
    } catch (const PlanError&) {
      ++refused;
      return;
    }
    ++wrong;
    EXPECT_GT(ErrorOnHost<double>(changed, layer), 1e-6) << plan.layer << ": " << what;
  };
  for (PlanPass GemmPlan::*pass : {&GemmPlan::forward, &GemmPlan::backward}) {
    for (size_t i = 0; i < (plan.*pass).steps.size(); ++i) {
      const auto* gemm = std::get_if<GemmStep>(&(plan.*pass).steps[i]);
      if (!gemm) continue;
      for (const Number& number : numbers) {
        if (!number.matters(*gemm)) continue;
        for (const int64_t change : {-8, -1, 1, 8}) {
          GemmPlan changed = plan;
          *number.of(&std::get<GemmStep>((changed.*pass).steps[i])) += change;
          expect_found(changed, gemm->name + ": " + number.name + " " + std::to_string(change));
        }
      }
      GemmPlan changed = plan;
      auto& step = std::get<GemmStep>((changed.*pass).steps[i]);
      step.accumulate = !step.accumulate;
      expect_found(changed, gemm->name + ": accumulate");
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(wrong, 0);
}

TEST(GemmPlanTest, EveryWrongNumberIsFound) {
  std::mt19937_64 random(13);
  for (const TtShape& shape : {TtShape({2, 3, 5}, {3, 2, 4}, {2, 4}), TtShape({5, 3}, {4, 7}, {6}),
                               TtShape({2, 3, 2, 3}, {3, 2, 4, 2}, {3, 5, 2})}) {
    const Layer layer(shape, 3, &random);
    for (const Form form : kForms)
      ExpectEveryWrongNumberFound(PlanOf(form, shape, 3, DType::kFloat64, PlanFor::kTraining),
                                  layer);
  }
}

TEST(GemmPlanTest, WrongPlacesAreRefused) {
  const GemmPlan plan =
      PlanSequential(TtShape::Cube(3, 4, 3), 5, DType::kFloat32, PlanFor::kTraining);
  auto expect_refused = [&](const std::string& saying, const auto& change) {
    GemmPlan changed = plan;
    change(&changed);
    try {
      CheckPlan(changed);
      FAIL() << "accepted where it should say: " << saying;
    } catch (const PlanError& error) {
      EXPECT_NE(std::string(error.what()).find(saying), std::string::npos) << error.what();
    }
  };
  expect_refused("lies outside the held block", [](GemmPlan* p) { p->held_bytes -= 256; });
  expect_refused("lies outside the scratch block",
                 [](GemmPlan* p) { p->backward.scratch_bytes = 0; });
  expect_refused("overlaps", [](GemmPlan* p) {
    for (PlanBuffer& buffer : p->buffers)
      if (buffer.place == Place::kHeld) buffer.offset_bytes = 0;
  });
  expect_refused("before it is written whole",
                 [](GemmPlan* p) { std::swap(p->forward.steps[3], p->forward.steps[4]); });
  expect_refused("is not written whole", [](GemmPlan* p) { p->backward.steps.pop_back(); });
  expect_refused("a batch count that one call does not take", [](GemmPlan* p) {
    for (Step& step : p->forward.steps)
      if (auto* gemm = std::get_if<GemmStep>(&step)) gemm->batch += kMaxBatchCount;
  });
  expect_refused("is not aligned", [](GemmPlan* p) {
    for (PlanBuffer& buffer : p->buffers)
      if (buffer.place == Place::kHeld) buffer.offset_bytes += 4;
    p->held_bytes += 256;
  });
}

TEST(GemmPlanTest, BFloat16AccumulatesSlicesInFloat32) {
  const GemmPlan plan =
      PlanSequential(TtShape::Cube(3, 16, 8), 128, DType::kBFloat16, PlanFor::kTraining);
  int sums = 0;
  for (const Step& step : plan.backward.steps) {
    const auto* sum = std::get_if<SumStep>(&step);
    if (!sum) continue;
    ++sums;
    EXPECT_EQ(plan.buffers[sum->from].dtype, DType::kFloat32);
  }
  EXPECT_GT(sums, 0);
}

}  // namespace
}  // namespace ttbench
