#include "benchmarks/cell_runner.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "benchmarks/attention_workload.h"
#include "benchmarks/linear_workload.h"
#include "benchmarks/reference.h"
#include "kernels/cost/linear_cost.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

Cell CellOf(const std::string& variant, Phase phase, DType dtype = DType::kFloat32) {
  return LinearCell(variant, {TtShape::Cube(3, 3, 2), 5, phase, dtype}, /*rank=*/2);
}

CellOptions Options() {
  CellOptions options;
  options.seed = 7;
  options.timing.min_time_ns = 1'000'000;
  options.timing.repetitions = 2;
  return options;
}

bool Never() { return false; }

CellOutcome RunChecked(const Cell& cell, const CellOptions& options, bool with_baseline = true) {
  const LinearReference reference = MakeReference(LinearOf(cell).problem(), options.seed);
  return RunCell(cell, options, &reference, with_baseline, Never);
}

LinearCost ModelOf(const std::string& variant, const Cell& cell) {
  return PredictLinearCost(*FindLinearVariant(variant), LinearOf(cell).problem());
}

// Everything that is measured comes out of the child's process.
TEST(RunCellTest, BringsAllFiguresBack) {
  for (Phase phase : kPhases) {
    SCOPED_TRACE(Name(phase));
    const Cell cell = CellOf("sequential", phase);
    const CellOutcome outcome = RunChecked(cell, Options());
    EXPECT_EQ(outcome.status, Status::kOk);
    EXPECT_EQ(outcome.reason, "");
    ASSERT_TRUE(outcome.memory.has_value());
    const MemoryFigures& bytes = outcome.memory->bytes;
    const MemoryFigures model = ModelOf("sequential", cell).bytes;
    EXPECT_EQ(bytes.weight, model.weight);
    EXPECT_EQ(bytes.held, model.held);
    EXPECT_EQ(bytes.forward_peak, model.forward_peak);
    EXPECT_EQ(bytes.backward_peak, model.backward_peak);
    EXPECT_EQ(bytes.step_peak, model.step_peak);
    EXPECT_EQ(bytes.peak, model.peak);
    EXPECT_GT(outcome.memory->rss_peak_bytes, 0);
    EXPECT_EQ(outcome.baseline_peak_bytes, ModelOf(kBaselineVariant, cell).bytes.peak);
    ASSERT_TRUE(outcome.max_relative_error.has_value());
    EXPECT_GT(*outcome.max_relative_error, 0);
    EXPECT_LE(*outcome.max_relative_error,
              Tolerance(LinearOf(cell).problem().shape, cell.setting().dtype));
    ASSERT_TRUE(outcome.timing.has_value());
    EXPECT_GT(outcome.timing->min_ns, 0);
    EXPECT_GE(outcome.timing->median_ns, outcome.timing->min_ns);
    EXPECT_GE(outcome.timing->iterations, 1);
    EXPECT_GE(outcome.timing->repetitions, 1);
    EXPECT_EQ(outcome.timing->spread.has_value(), outcome.timing->repetitions > 1);
    EXPECT_FALSE(outcome.timing->stop_reason.empty());
    ASSERT_TRUE(outcome.timing->ratio_to_baseline.has_value());
    EXPECT_GT(*outcome.timing->ratio_to_baseline, 0);
  }
}

TEST(RunCellTest, MeasuresWhatIsAskedFor) {
  const Cell cell = CellOf("sequential", Phase::kTrain);
  CellOptions memory = Options(), time = Options();
  memory.measure_time = false;
  time.measure_memory = false;

  CellOutcome outcome = RunChecked(cell, memory);
  EXPECT_EQ(outcome.status, Status::kOk);
  EXPECT_TRUE(outcome.memory.has_value());
  EXPECT_TRUE(outcome.baseline_peak_bytes.has_value());
  EXPECT_FALSE(outcome.timing.has_value());

  outcome = RunChecked(cell, time);
  EXPECT_EQ(outcome.status, Status::kOk);
  EXPECT_FALSE(outcome.memory.has_value());
  EXPECT_FALSE(outcome.baseline_peak_bytes.has_value());
  EXPECT_TRUE(outcome.timing.has_value());
  EXPECT_TRUE(outcome.max_relative_error.has_value());

  outcome = RunChecked(cell, Options(), /*with_baseline=*/false);
  EXPECT_EQ(outcome.status, Status::kOk);
  EXPECT_FALSE(outcome.baseline_peak_bytes.has_value());
  EXPECT_EQ(outcome.timing->ratio_to_baseline, std::nullopt);
}

TEST(RunCellTest, UncheckedIsUntimed) {
  const CellOutcome outcome =
      RunCell(CellOf("sequential", Phase::kTrain), Options(), nullptr, true, Never);
  EXPECT_EQ(outcome.status, Status::kOk);
  EXPECT_TRUE(outcome.memory.has_value());
  EXPECT_FALSE(outcome.max_relative_error.has_value());
  EXPECT_FALSE(outcome.timing.has_value());
}

// The reference of other inputs is not this cell's.
TEST(RunCellTest, WrongResultsHaveNoFigures) {
  for (Phase phase : {Phase::kInference, Phase::kTrain}) {
    const Cell cell = CellOf("sequential", phase);
    const LinearReference other = MakeReference(LinearOf(cell).problem(), Options().seed + 1);
    const CellOutcome outcome = RunCell(cell, Options(), &other, true, Never);
    EXPECT_EQ(outcome.status, Status::kWrong);
    EXPECT_NE(outcome.reason.find("oracle"), std::string::npos) << outcome.reason;
    EXPECT_GT(outcome.max_relative_error, 0.01);
    EXPECT_FALSE(outcome.memory.has_value());
    EXPECT_FALSE(outcome.timing.has_value());
  }
}

TEST(RunCellTest, WrongGradientsAreFound) {
  const Cell cell = CellOf("sequential", Phase::kTrain);
  for (size_t core = 0; core < 3; ++core) {
    LinearReference reference = MakeReference(LinearOf(cell).problem(), Options().seed);
    reference.oracle.dcores[core].back() += 1;
    EXPECT_EQ(RunCell(cell, Options(), &reference, true, Never).status, Status::kWrong) << core;
  }
  LinearReference reference = MakeReference(LinearOf(cell).problem(), Options().seed);
  reference.oracle.dx.front() += 1;
  EXPECT_EQ(RunCell(cell, Options(), &reference, true, Never).status, Status::kWrong);
}

TEST(RunCellTest, SaysWhyPeaksAreNotModelled) {
  const Cell cell = CellOf("sequential", Phase::kTrain, DType::kBFloat16);
  const CellOutcome outcome = RunChecked(cell, Options());
  EXPECT_EQ(outcome.status, Status::kOk);
  EXPECT_EQ(outcome.reason,
            FindLinearVariant("sequential")->WhyPeaksUnmodelled(LinearOf(cell).problem()));
  EXPECT_NE(outcome.reason, "");
}

TEST(RunCellTest, BudgetIsExact) {
  for (Phase phase : kPhases) {
    SCOPED_TRACE(Name(phase));
    const Cell cell = CellOf("sequential", phase);
    CellOptions options = Options();
    options.measure_time = false;
    options.memory_budget_bytes = *ModelOf("sequential", cell).bytes.peak;
    EXPECT_EQ(RunChecked(cell, options).status, Status::kOk);
    --options.memory_budget_bytes;
    const CellOutcome outcome = RunChecked(cell, options);
    EXPECT_EQ(outcome.status, Status::kOom);
    EXPECT_NE(outcome.reason.find(std::to_string(options.memory_budget_bytes)), std::string::npos)
        << outcome.reason;
    EXPECT_FALSE(outcome.memory.has_value());
  }
}

TEST(RunCellTest, EndsAtItsDeadline) {
  CellOptions options = Options();
  options.timing.min_time_ns = 60'000'000'000;
  options.timeout_ns = 200'000'000;
  const CellOutcome outcome = RunChecked(CellOf("sequential", Phase::kTrain), options);
  EXPECT_EQ(outcome.status, Status::kTimeout);
  EXPECT_NE(outcome.reason.find("0.2 s"), std::string::npos) << outcome.reason;
  EXPECT_FALSE(outcome.memory.has_value());
}

TEST(RunCellTest, CanBeInterrupted) {
  CellOptions options = Options();
  options.timing.min_time_ns = 60'000'000'000;
  const CellOutcome outcome =
      RunCell(CellOf("sequential", Phase::kTrain), options, nullptr, true, [] { return true; });
  EXPECT_EQ(outcome.status, Status::kCrashed);
  EXPECT_EQ(outcome.reason, "interrupted");
}

TEST(RunCellTest, RunsAttention) {
  const AttentionProblem problem{4, 3, 6, 0, 5, Phase::kTrain, DType::kFloat32, 1};
  for (const char* variant : {"clones", "prealloc-mm", "additive"}) {
    const Cell cell = AttentionCell(variant, problem);
    const std::unique_ptr<Reference> reference = cell.workload->MakeReference(Options().seed);
    const CellOutcome outcome =
        RunCell(cell, Options(), reference.get(), !cell.workload->is_baseline(), Never);
    EXPECT_EQ(outcome.status, Status::kOk) << outcome.reason;
    EXPECT_EQ(outcome.memory->bytes.peak, cell.workload->Predict().bytes.peak);
    EXPECT_EQ(outcome.timing->ratio_to_baseline.has_value(), !cell.workload->is_baseline());
    // Another seed's results are wrong.
    const std::unique_ptr<Reference> other = cell.workload->MakeReference(Options().seed + 1);
    EXPECT_EQ(RunCell(cell, Options(), other.get(), false, Never).status, Status::kWrong);
  }
}

TEST(StatusTest, WordsAreTheTables) {
  EXPECT_STREQ(Name(Status::kOk), "ok");
  EXPECT_STREQ(Name(Status::kSkipped), "skipped");
  EXPECT_STREQ(Name(Status::kOom), "oom");
  EXPECT_STREQ(Name(Status::kTimeout), "timeout");
  EXPECT_STREQ(Name(Status::kCrashed), "crashed");
  EXPECT_STREQ(Name(Status::kWrong), "wrong");
}

}  // namespace
}  // namespace ttbench
