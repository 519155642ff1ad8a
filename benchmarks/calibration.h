// Measures how fast variants are on given layers: the rates by which `auto` picks and `advise`
// predicts (kernels/cost/speed.h).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/cost/speed.h"
#include "kernels/problem.h"
#include "kernels/variant.h"

namespace ttbench {

// Batches at which a layer is timed, in order, as long as a run of the fastest variant is expected
// to stay under kLongestCalibrationRun.
inline constexpr int64_t kCalibrationBatches[] = {1, 4, 16, 64, 256};
inline constexpr double kLongestCalibrationRunSeconds = 0.1;

struct CalibrationOptions {
  // The variants to time on a problem, in this order.
  std::function<std::vector<const LinearVariant*>(const LinearProblem&)> variants;
  // Leaves out variants that cannot be the fastest: whose FLOPs alone, at peak_gflops (GFLOP/s by
  // PeakKey), take longer than the fastest did, or that were three times as slow at the last batch
  // and no nearer than at the one before.
  bool only_contenders = true;
  std::map<std::string, double> peak_gflops;
  int64_t memory_bytes = 0;  // Runs predicted to need more are left out; 0: none are.
  std::function<bool()> interrupted;
};

// Times the layer of the problem, whatever its batch, in its phase (that of `train` for those with
// an optimizer): the least of a few runs of each variant, in a child process. A variant that fails
// in any way gets no rate. Returns the samples; adds nothing to MeasuredSpeeds().
std::vector<SpeedSample> CalibrateLayer(const LinearProblem& layer,
                                        const CalibrationOptions& options);

// calibration.csv: one line for each sample. Read() gives none if there is no such file, and throws
// std::runtime_error for what is no such table.
std::string FormatCalibration(const std::vector<SpeedSample>& samples);
std::vector<SpeedSample> ReadCalibration(const std::string& path);

}  // namespace ttbench
