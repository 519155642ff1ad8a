#include "benchmarks/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "benchmarks/axis.h"
#include "benchmarks/linear_workload.h"
#include "kernels/cost/linear_cost.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

// Runs even batches alone.
class EvenOnly : public LinearVariant {
 public:
  std::string name() const override { return "test-even"; }
  std::string Algorithm(const LinearProblem&) const override { return "test"; }
  std::string WhyUnsupported(const LinearProblem& problem) const override {
    return problem.batch % 2 == 0 ? "" : "the batch is odd";
  }
  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    return FindLinearVariant("sequential")->Forward(shape, x, cores);
  }
  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    return FindLinearVariant("sequential")->Trace(tape, shape, x, cores);
  }
};
const RegisterLinearVariant kEvenOnly(std::make_unique<EvenOnly>());

Grid GridOf(const std::vector<std::string>& variants, const std::vector<int64_t>& d,
            const std::vector<int64_t>& ranks, const std::vector<int64_t>& batches) {
  Grid grid;
  grid.variants = variants;
  grid.d = d;
  grid.cores = {3};
  grid.ranks = ranks;
  grid.batches = batches;
  grid.phases = {Phase::kTrain};
  grid.dtypes = {DType::kFloat32};
  grid.threads = {1};
  return grid;
}

std::vector<PlannedCell> Plan(const std::vector<Grid>& grids, const std::string& filter = "",
                              const Limits& limits = {}) {
  std::vector<std::string> notes;
  return MakePlan(grids, filter, limits, &notes);
}

std::vector<std::string> Names(const std::vector<PlannedCell>& plan) {
  std::vector<std::string> names;
  for (const PlannedCell& planned : plan) names.push_back(planned.cell.Name());
  return names;
}

std::vector<std::string> ModesOf(const std::vector<TtShape>& shapes) {
  std::vector<std::string> names;
  for (const TtShape& shape : shapes) names.push_back(shape.modes_name());
  return names;
}

TEST(MakePlanTest, DenseLeadsEachGroupOnce) {
  for (const std::vector<std::string>& variants :
       {std::vector<std::string>{"dense", "naive", "sequential"},
        std::vector<std::string>{"sequential", "naive", "dense"}}) {
    Grid grid = GridOf(variants, {2, 3}, {1, 2}, {1, 4});
    grid.phases = {Phase::kInference, Phase::kTrain};
    grid.dtypes = {DType::kFloat32, DType::kFloat64};
    grid.threads = {1, 2};
    const std::vector<PlannedCell> plan = Plan({grid});
    // Of each of 2^5 groups the dense cell, and two variants at two ranks.
    EXPECT_EQ(plan.size(), 32u * (1 + 2 * 2));
    std::set<std::string> groups;
    std::string group;
    for (const PlannedCell& planned : plan) {
      const Cell& cell = planned.cell;
      const LinearProblem& problem = LinearOf(cell).problem();
      const std::string key = problem.shape.modes_name() + "/" + std::to_string(problem.batch) +
                              Name(problem.phase) + Name(problem.dtype) +
                              std::to_string(problem.threads);
      EXPECT_EQ(cell.variant() == "dense", key != group) << cell.Name();
      EXPECT_EQ(LinearOf(cell).is_dense(), cell.variant() == "dense");
      EXPECT_EQ(groups.insert(key).second, key != group) << key << " is torn apart";
      group = key;
    }
    EXPECT_EQ(groups.size(), 32u);
  }
}

TEST(MakePlanTest, EachCellOnce) {
  const Grid grid = GridOf({"dense", "sequential"}, {2}, {1, 2}, {1, 2});
  Grid overlapping = grid;
  overlapping.batches = {2, 4};
  const std::vector<std::string> names = Names(Plan({grid, overlapping, grid}));
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(names.size(), 3u * 3);
}

// Cores of 2x2 modes have no rank above 4.
TEST(MakePlanTest, ClippedRanksAreOneCell) {
  std::vector<std::string> notes;
  const std::vector<PlannedCell> plan =
      MakePlan({GridOf({"dense", "sequential"}, {2}, {2, 4, 8, 16}, {1, 7})}, "", {}, &notes);
  EXPECT_EQ(Names(plan),
            (std::vector<std::string>{"linear/dense/2x2x2:2x2x2/b1/train/float32/cpu/t1",
                                      "linear/sequential/2x2x2:2x2x2/r2/b1/train/float32/cpu/t1",
                                      "linear/sequential/2x2x2:2x2x2/r4/b1/train/float32/cpu/t1",
                                      "linear/dense/2x2x2:2x2x2/b7/train/float32/cpu/t1",
                                      "linear/sequential/2x2x2:2x2x2/r2/b7/train/float32/cpu/t1",
                                      "linear/sequential/2x2x2:2x2x2/r4/b7/train/float32/cpu/t1"}));
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[0].find("from 8 to 4"), std::string::npos) << notes[0];
  EXPECT_NE(notes[1].find("from 16 to 4"), std::string::npos) << notes[1];
}

TEST(MakePlanTest, FilterIsAGlobOverNames) {
  const Grid grid = GridOf({"dense", "naive", "sequential"}, {2}, {1, 2}, {1, 16});
  EXPECT_EQ(
      Names(Plan({grid}, "*/sequential/*/r2/*")),
      (std::vector<std::string>{"linear/sequential/2x2x2:2x2x2/r2/b1/train/float32/cpu/t1",
                                "linear/sequential/2x2x2:2x2x2/r2/b16/train/float32/cpu/t1"}));
  EXPECT_EQ(Plan({grid}, "*/b1?/*").size(), 5u);
  EXPECT_EQ(Plan({grid}, "sequential").size(), 0u);
}

TEST(MakePlanTest, KeepsWhatWasAskedFor) {
  Grid grid = GridOf({"sequential"}, {}, {3}, {5});
  grid.shapes = {"2x3:3x2"};
  const std::vector<PlannedCell> plan = Plan({grid});
  ASSERT_EQ(plan.size(), 1u);
  const Cell& cell = plan[0].cell;
  EXPECT_EQ(cell.Flags(),
            "--variant=sequential --shape=2x3:3x2 --rank=3 --batch=5 --phase=train "
            "--dtype=float32 --device=cpu --threads=1");
  EXPECT_EQ(plan[0].skip_reason, "");
  EXPECT_GT(plan[0].seconds, 0);
  EXPECT_EQ(
      plan[0].cost.bytes.peak,
      PredictLinearCost(*FindLinearVariant("sequential"), LinearOf(cell).problem()).bytes.peak);
}

TEST(MakePlanTest, SkipsWhatIsNotSupported) {
  const std::vector<PlannedCell> plan = Plan({GridOf({"test-even"}, {2}, {1}, {1, 2})});
  EXPECT_EQ(plan[0].skip_reason, "the batch is odd");
  EXPECT_EQ(plan[1].skip_reason, "");
}

TEST(MakePlanTest, SkipsOtherDevices) {
  Grid grid = GridOf({"sequential"}, {2}, {1}, {1});
  grid.devices = {{Device::kCuda}};
  Limits limits;
  limits.why_no_cuda = "built without CUDA";
  EXPECT_EQ(Plan({grid}, "", limits)[0].skip_reason, "built without CUDA");
  limits.why_no_cuda.clear();
  EXPECT_EQ(Plan({grid}, "", limits)[0].skip_reason, "");
  // The device's memory counts there, not the machine's.
  limits.memory_bytes = 1;
  EXPECT_EQ(Plan({grid}, "", limits)[0].skip_reason, "");
  limits.cuda_memory_bytes = 1;
  EXPECT_NE(Plan({grid}, "", limits)[0].skip_reason.find("predicted to need"), std::string::npos);
  grid.devices = {{Device::kCpu}};
  grid.variants = {"cublas-sequential"};
  EXPECT_EQ(Plan({grid})[0].skip_reason, "runs on CUDA devices only");
}

// The dense layer is measured beside the cell: both must fit.
TEST(MakePlanTest, SkipsWhatNeedsMoreMemoryThanThereIs) {
  const Grid grid = GridOf({"sequential"}, {4}, {2}, {1, 1000});
  const std::vector<PlannedCell> free = Plan({grid});
  const int64_t dense_peak =
      *PredictLinearCost(*FindLinearVariant("dense"), LinearOf(free[1].cell).problem()).bytes.peak;
  const int64_t needed = *free[1].cost.bytes.peak + dense_peak;
  Limits limits;
  limits.memory_bytes = needed;
  EXPECT_EQ(Plan({grid}, "", limits)[1].skip_reason, "");
  --limits.memory_bytes;
  const std::vector<PlannedCell> plan = Plan({grid}, "", limits);
  EXPECT_EQ(plan[0].skip_reason, "");
  for (int64_t bytes : {needed, limits.memory_bytes}) {
    EXPECT_NE(plan[1].skip_reason.find(FormatBytes(bytes)), std::string::npos)
        << plan[1].skip_reason;
  }
}

TEST(MakePlanTest, SkipsWhatTakesLongerThanItMay) {
  Limits limits;
  limits.time_ns = 1;
  const PlannedCell planned = Plan({GridOf({"sequential"}, {2}, {1}, {1})}, "", limits)[0];
  EXPECT_NE(planned.skip_reason.find("predicted to take"), std::string::npos);
  limits.time_ns = 1'000'000'000'000;
  EXPECT_EQ(Plan({GridOf({"sequential"}, {2}, {1}, {1})}, "", limits)[0].skip_reason, "");
}

TEST(MakePlanTest, TimingTakesLonger) {
  const Cell cell = Plan({GridOf({"sequential"}, {4}, {2}, {8})})[0].cell;
  const double untimed = PlanCell(cell, false, 0, {}).seconds;
  const double timed = PlanCell(cell, true, 10'000'000, {}).seconds;
  // At the least a repetition of the variant and of the dense layer.
  EXPECT_GE(timed, untimed + 2 * 0.01);
  EXPECT_GE(PlanCell(cell, true, 20'000'000, {}).seconds, untimed + 2 * 0.02);
}

Grid AttentionGrid(const std::vector<std::string>& variants) {
  Grid grid = GridOf({}, {}, {}, {2, 3});
  grid.attention_variants = variants;
  grid.source_lens = {5};
  grid.target_lens = {1, 4};
  grid.hiddens = {6};
  grid.layers = {0};
  return grid;
}

TEST(MakePlanTest, TheBaselineLeadsEachAttentionProblem) {
  EXPECT_EQ(Names(Plan({AttentionGrid({"additive", "clones", "prealloc-mm"})}, "*/b2/*")),
            (std::vector<std::string>{"attention/prealloc-mm/L5-T1-H6/b2/train/float32/cpu/t1",
                                      "attention/clones/L5-T1-H6/b2/train/float32/cpu/t1",
                                      "attention/additive/L5-T1-H6/b2/train/float32/cpu/t1",
                                      "attention/prealloc-mm/L5-T4-H6/b2/train/float32/cpu/t1",
                                      "attention/clones/L5-T4-H6/b2/train/float32/cpu/t1",
                                      "attention/additive/L5-T4-H6/b2/train/float32/cpu/t1"}));
}

TEST(MakePlanTest, AttentionCellsSelectThemselves) {
  Grid grid = AttentionGrid({"clones", "batched"});
  grid.layers = {2};
  const std::vector<PlannedCell> plan = Plan({grid}, "*-T4-*/b3/*");
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[0].cell.Name(), "attention/clones/L5-T4-H6-N2/b3/train/float32/cpu/t1");
  EXPECT_EQ(plan[0].cell.Flags(),
            "--variant=clones --source-len=5 --target-len=4 --hidden=6 --layers=2 --batch=3 "
            "--phase=train --dtype=float32 --device=cpu --threads=1");
  EXPECT_EQ(plan[0].skip_reason, "");
  EXPECT_NE(plan[1].skip_reason.find("feeds its attention back"), std::string::npos);
  EXPECT_EQ(plan[0].cell.Baseline().Name(),
            "attention/prealloc-mm/L5-T4-H6-N2/b3/train/float32/cpu/t1");
  EXPECT_EQ(plan[0].cell.AtBatch(9).Name(), "attention/clones/L5-T4-H6-N2/b9/train/float32/cpu/t1");
}

TEST(MakePlanTest, FamiliesShareAPlan) {
  const Grid linear = GridOf({"dense"}, {2}, {1}, {1});
  EXPECT_EQ(Plan({linear, AttentionGrid({"sdpa"})}).size(), 1u + 4);
}

TEST(MakePlanTest, RefusesCountsPast64Bits) {
  try {
    Plan({GridOf({"sequential"}, {2}, {1}, {int64_t{1} << 62})});
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_NE(std::string(error.what()).find("--batch"), std::string::npos) << error.what();
  }
}

// 410 and 2100 are the feed-forward sizes of Transformer-XL, these splits t3nsor's.
TEST(ShapesOfTest, SplitsPlainSizesIntoCores) {
  Grid grid = GridOf({}, {}, {}, {});
  grid.shapes = {"410:2100"};
  EXPECT_EQ(ModesOf(ShapesOf(grid, 8)), std::vector<std::string>{"2x5x41:10x14x15"});
  grid.factor_order = FactorOrder::kDescending;
  EXPECT_EQ(ModesOf(ShapesOf(grid, 8)), std::vector<std::string>{"41x5x2:15x14x10"});
  grid.factor_order = FactorOrder::kAscending;
  grid.cores = {2, 3};
  EXPECT_EQ(ModesOf(ShapesOf(grid, 8)),
            (std::vector<std::string>{"10x41:42x50", "2x5x41:10x14x15"}));
}

TEST(ShapesOfTest, TakesModesAsTheyAre) {
  Grid grid = GridOf({}, {2, 3}, {}, {});
  grid.cores = {2, 4};
  grid.shapes = {"41x5x2:10x14x15", "2x3:3x2"};
  EXPECT_EQ(ModesOf(ShapesOf(grid, 1)),
            (std::vector<std::string>{"2x2:2x2", "3x3:3x3", "2x2x2x2:2x2x2x2", "3x3x3x3:3x3x3x3",
                                      "41x5x2:10x14x15", "2x3:3x2"}));
  for (const TtShape& shape : ShapesOf(grid, 3)) EXPECT_EQ(shape.uniform_rank(), 3);
}

// A cell that passes its budget needs no more memory than that, and ends when it does.
TEST(PlanCellTest, ABudgetBoundsWhatACellNeeds) {
  const Cell cell = LinearCell("sequential", {TtShape::Cube(3, 16, 8), 4096, Phase::kTrain}, 8);
  Limits limits;
  const PlannedCell free = PlanCell(cell, /*measure_time=*/false, 0, limits);
  const int64_t peak = *free.cost.bytes.peak;
  limits.memory_bytes = peak / 2;
  EXPECT_NE(PlanCell(cell, false, 0, limits).skip_reason, "");
  limits.budget_bytes = peak / 4;
  const PlannedCell bounded = PlanCell(cell, false, 0, limits);
  EXPECT_EQ(bounded.skip_reason, "");
  EXPECT_NEAR(bounded.seconds, free.seconds / 4, 0.01 * free.seconds);
}

}  // namespace
}  // namespace ttbench
