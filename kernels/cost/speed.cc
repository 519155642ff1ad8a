#include "kernels/cost/speed.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>

namespace ttbench {
namespace {

// Where no rate is measured: what a core moves when a buffer is written and read again, and what
// LibTorch takes for an operator however small.
constexpr double kPlanningBytesPerSecond = 4e9;
constexpr double kPlanningSecondsPerPhase = 30e-6;

std::string SeriesOf(const LinearProblem& problem) {
  return problem.shape.modes_name() + "/" + problem.shape.ranks_name() + "/" +
         Name(WithoutOptimizer(problem.phase)) + "/" + Name(problem.dtype) + "/t" +
         std::to_string(problem.threads);
}

}  // namespace

void SpeedTable::Add(const SpeedSample& sample) {
  if (sample.problem.phase != WithoutOptimizer(sample.problem.phase)) {
    throw std::logic_error("a speed sample is of inference or of train");
  }
  const LinearVariant* variant = FindLinearVariant(sample.variant);
  if (!variant || !(sample.seconds > 0)) return;
  const int64_t flops = PredictLinearCost(*variant, sample.problem).flops;
  samples_.push_back(sample);
  rates_[SeriesOf(sample.problem)][sample.variant][sample.problem.batch] =
      static_cast<double>(flops) / sample.seconds * 1e-9;
  ++version_;
}

std::optional<double> SpeedTable::Gflops(const std::string& variant,
                                         const LinearProblem& problem) const {
  const auto layer = rates_.find(SeriesOf(problem));
  if (layer == rates_.end()) return std::nullopt;
  const auto found = layer->second.find(variant);
  if (found == layer->second.end()) return std::nullopt;
  const std::map<int64_t, double>& by_batch = found->second;
  const auto above = by_batch.lower_bound(problem.batch);
  if (above == by_batch.end()) return by_batch.rbegin()->second;
  if (above == by_batch.begin() || above->first == problem.batch) return above->second;
  const auto below = std::prev(above);
  const double position = std::log(static_cast<double>(problem.batch) / below->first) /
                          std::log(static_cast<double>(above->first) / below->first);
  return below->second + position * (above->second - below->second);
}

bool SpeedTable::Knows(const LinearProblem& problem) const {
  return rates_.count(SeriesOf(problem)) > 0;
}

void SpeedTable::Clear() {
  samples_.clear();
  rates_.clear();
  ++version_;
}

SpeedTable& MeasuredSpeeds() {
  static auto* table = new SpeedTable;
  return *table;
}

double PredictSeconds(const LinearVariant& variant, const LinearProblem& problem,
                      const LinearCost& cost) {
  const auto gflops = MeasuredSpeeds().Gflops(variant.name(), problem);
  if (gflops && *gflops > 0) return static_cast<double>(cost.flops) / (*gflops * 1e9);
  const double precision = problem.dtype == DType::kFloat64 ? 2 : 1;
  return kPlanningSecondsPerPhase +
         precision * static_cast<double>(cost.flops) /
             (variant.planning_gflops() * 1e9 * static_cast<double>(problem.threads)) +
         static_cast<double>(cost.allocated_bytes) / kPlanningBytesPerSecond;
}

}  // namespace ttbench
