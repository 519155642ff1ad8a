// How long variants take on this machine: what `auto` picks by and what is predicted before a run.
//
//   seconds = FLOPs of the variant's cost model / rate
//
// The rate is measured: a calibration times variants on the layer itself at a few batches
// (benchmarks/calibration.h), and between those it is interpolated linearly over the logarithm of
// the batch; beyond them it stays what it is at the nearest. Layers without a measured rate are
// taken at the variant's planning rate, which suffices to plan a run and to avoid a bad pick.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cost/linear_cost.h"
#include "kernels/problem.h"
#include "kernels/variant.h"

namespace ttbench {

// One measurement: a run of the problem's phase took so long.
struct SpeedSample {
  std::string variant;
  LinearProblem problem;
  double seconds = 0;
};

class SpeedTable {
 public:
  // Throws ShapeError if the variant's FLOPs pass 64 bits. Phases with an optimizer are refused by
  // std::logic_error: their layer costs what `train` costs.
  void Add(const SpeedSample& sample);
  // GFLOP/s by samples of the variant on this layer in this phase; none without a sample.
  std::optional<double> Gflops(const std::string& variant, const LinearProblem& problem) const;
  // Whether any variant has a sample of this layer in this phase.
  bool Knows(const LinearProblem& problem) const;
  const std::vector<SpeedSample>& samples() const { return samples_; }
  void Clear();
  // Changes whenever the table does.
  int64_t version() const { return version_; }

 private:
  std::vector<SpeedSample> samples_;
  // By layer and phase, then variant: GFLOP/s by batch.
  std::map<std::string, std::map<std::string, std::map<int64_t, double>>> rates_;
  int64_t version_ = 0;
};

// The process's table, empty at first. Children of a fork inherit it. Filled before it is used:
// changing it while layers run is a race.
SpeedTable& MeasuredSpeeds();

// Seconds of one run of the problem's phase, by MeasuredSpeeds() or the planning rate.
double PredictSeconds(const LinearVariant& variant, const LinearProblem& problem,
                      const LinearCost& cost);

}  // namespace ttbench
