#include "benchmarks/linear_workload.h"

#include "benchmarks/linear_run.h"
#include "benchmarks/reference.h"
#include "kernels/cost/linear_cost.h"
#include "kernels/cost/speed.h"

namespace ttbench {

std::string LinearWorkload::size_name() const {
  return problem_.shape.modes_name() + (is_dense() ? "" : "/" + problem_.shape.rank_label());
}

std::string LinearWorkload::SizeFlags() const {
  // A dense weight is made from cores of the rank, too.
  return "--shape=" + problem_.shape.modes_name() + " --rank=" + std::to_string(rank_);
}

Setting LinearWorkload::setting() const {
  return {problem_.batch, problem_.phase, problem_.dtype, problem_.threads, problem_.device};
}

std::string LinearWorkload::reference_key() const {
  const bool gradients = problem_.phase != Phase::kInference;
  return problem_.shape.modes_name() + problem_.shape.ranks_name() + "/" +
         std::to_string(problem_.batch) + (gradients ? "/gradients" : "");
}

std::vector<std::pair<const char*, std::string>> LinearWorkload::SizeColumns() const {
  const TtShape& shape = problem_.shape;
  std::vector<std::pair<const char*, std::string>> columns = {
      {"in_modes", FormatModes(shape.in_modes())},
      {"out_modes", FormatModes(shape.out_modes())},
      {"cores", std::to_string(shape.cores())}};
  if (shape.is_cube()) columns.emplace_back("d", std::to_string(shape.n(0)));
  if (!is_dense()) {
    columns.emplace_back("ranks", shape.ranks_name());
    if (shape.uniform_rank() > 0)
      columns.emplace_back("rank", std::to_string(shape.uniform_rank()));
  }
  return columns;
}

CellCost LinearWorkload::Predict() const { return PredictLinearCost(variant_, problem_); }

double LinearWorkload::PredictSeconds(const CellCost& cost) const {
  return ttbench::PredictSeconds(variant_, problem_, cost);
}

// The dense weight is made from the cores, by way of one more of its size.
int64_t LinearWorkload::SetUpPeakBytes() const {
  const CellCost dense = Baseline()->Predict();
  return CheckedAdd(*dense.bytes.peak, *dense.bytes.weight);
}

// Twice as a pattern, or in the order of the product for a dense variant.
double LinearWorkload::SetUpTrafficBytes() const {
  const double passes = is_dense() ? 8 : 4;
  return passes * static_cast<double>(*Baseline()->Predict().bytes.weight);
}

std::shared_ptr<const Workload> LinearWorkload::Baseline() const {
  return std::make_shared<LinearWorkload>(*FindLinearVariant(kBaselineVariant), problem_, rank_);
}

std::shared_ptr<const Workload> LinearWorkload::AtBatch(int64_t batch) const {
  LinearProblem problem = problem_;
  problem.batch = batch;
  return std::make_shared<LinearWorkload>(variant_, std::move(problem), rank_);
}

std::unique_ptr<Reference> LinearWorkload::MakeReference(uint64_t seed) const {
  return std::make_unique<LinearReference>(ttbench::MakeReference(problem_, seed));
}

std::unique_ptr<PhaseRun> LinearWorkload::MakeRun(uint64_t seed, bool checked) const {
  return std::make_unique<LinearRun>(
      variant_, problem_, seed,
      checked ? LinearRun::DenseWeight::kProduct : LinearRun::DenseWeight::kPattern);
}

Cell LinearCell(const std::string& variant, const LinearProblem& problem, int64_t rank,
                const DeviceSettings& device) {
  LinearProblem on_device = problem;
  on_device.device = device.device;
  on_device.tf32 = device.tf32;
  return {std::make_shared<LinearWorkload>(*FindLinearVariant(variant), std::move(on_device), rank),
          device};
}

const LinearWorkload& LinearOf(const Cell& cell) {
  return dynamic_cast<const LinearWorkload&>(*cell.workload);
}

}  // namespace ttbench
