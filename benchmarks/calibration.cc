#include "benchmarks/calibration.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>

#include "benchmarks/child_process.h"
#include "benchmarks/fingerprint.h"
#include "benchmarks/linear_run.h"
#include "benchmarks/result_table.h"
#include "benchmarks/timing_pass.h"
#include "kernels/cost/linear_cost.h"

namespace ttbench {
namespace {

constexpr uint64_t kSeed = 1;
// A variant is timed until its runs have taken this long, and at least kFewestRuns times.
constexpr double kSecondsOfAVariant = 5e-3;
constexpr int64_t kFewestRuns = 3;
// Past this ratio to the fastest one run is enough, and larger batches need none unless the ratio
// is falling with the batch.
constexpr double kHopeless = 3;
constexpr double kFalling = 0.8;
// Those this close to the fastest are timed again, in turns.
constexpr double kClose = 1.4;
constexpr int kMoreRounds = 3;
constexpr auto kDeadline = std::chrono::seconds(60);

double Seconds(LinearRun& run, const PhaseRun::Tensors& dy) {
  const auto start = std::chrono::steady_clock::now();
  const PhaseRun::Tensors y = run.Forward();
  if (!dy.empty()) run.Backward(y, dy);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double TimeVariant(const LinearVariant& variant, const LinearProblem& problem, double fastest) {
  LinearRun run(variant, problem, kSeed, LinearRun::DenseWeight::kPattern);
  PhaseRun::Tensors dy;
  if (problem.phase != Phase::kInference) dy = run.MakeDy(nullptr);
  double least = std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t runs = 0; runs < kFewestRuns || total < kSecondsOfAVariant; ++runs) {
    const double seconds = Seconds(run, dy);
    run.ClearGradients();
    if (runs == 0) continue;  // Plans, generates code, faults pages in.
    least = std::min(least, seconds);
    total += seconds;
    if (least > kHopeless * fastest) break;
  }
  return least;
}

// Runs in the child; `only`: of this variant alone.
std::vector<SpeedSample> TimeLayer(LinearProblem problem, const CalibrationOptions& options,
                                   const LinearVariant* only) {
  at::set_num_threads(static_cast<int>(problem.threads));
  KeepFreedPages();
  const auto peak = options.peak_gflops.find(PeakKey(problem.dtype, problem.threads));
  const double peak_gflops = peak == options.peak_gflops.end() ? 0 : peak->second;
  std::vector<SpeedSample> samples;
  std::set<const LinearVariant*> hopeless;
  std::map<const LinearVariant*, double> last_ratio;
  double fastest = 0;
  for (const int64_t batch : kCalibrationBatches) {
    if (fastest * static_cast<double>(batch) / static_cast<double>(problem.batch) >
        kLongestCalibrationRunSeconds) {
      break;
    }
    problem.batch = batch;
    fastest = std::numeric_limits<double>::infinity();
    std::vector<std::pair<const LinearVariant*, double>> times;
    for (const LinearVariant* variant : options.variants(problem)) {
      if ((only && variant != only) || hopeless.count(variant)) continue;
      if (!variant->WhySkipped(problem).empty()) continue;
      const LinearCost cost = PredictLinearCost(*variant, problem);
      if (options.memory_bytes > 0 && *cost.bytes.peak > options.memory_bytes) continue;
      const double least_seconds =
          peak_gflops > 0 ? static_cast<double>(cost.flops) / (peak_gflops * 1e9) : 0;
      if (least_seconds > 10 * kLongestCalibrationRunSeconds) continue;
      if (options.only_contenders && least_seconds > fastest) continue;
      const double seconds = TimeVariant(*variant, problem, fastest);
      fastest = std::min(fastest, seconds);
      times.emplace_back(variant, seconds);
    }
    for (int round = 0; round < kMoreRounds; ++round) {
      for (auto& [variant, seconds] : times) {
        if (times.size() < 2 || seconds > kClose * fastest) continue;
        seconds = std::min(seconds, TimeVariant(*variant, problem, fastest));
        fastest = std::min(fastest, seconds);
      }
    }
    for (const auto& [variant, seconds] : times) {
      samples.push_back({variant->name(), problem, seconds});
      const double ratio = seconds / fastest;
      const auto last = last_ratio.find(variant);
      const bool falling = last == last_ratio.end() || ratio < kFalling * last->second;
      last_ratio[variant] = ratio;
      if (options.only_contenders && ratio > kHopeless && !falling) hopeless.insert(variant);
    }
  }
  return samples;
}

// One line of JSON for what the child found.
std::string Serialize(const std::vector<SpeedSample>& samples) {
  nlohmann::json all = nlohmann::json::array();
  for (const SpeedSample& sample : samples) {
    all.push_back({sample.variant, sample.problem.batch, sample.seconds});
  }
  return all.dump();
}

std::optional<std::vector<SpeedSample>> TimeInChild(const LinearProblem& layer,
                                                    const CalibrationOptions& options,
                                                    const LinearVariant* only) {
  const ChildResult child = RunInChild([&] { return Serialize(TimeLayer(layer, options, only)); },
                                       kDeadline, options.interrupted);
  if (child.end != ChildResult::End::kExited || child.exit_code != 0) return std::nullopt;
  std::vector<SpeedSample> samples;
  for (const auto& item : nlohmann::json::parse(child.output)) {
    SpeedSample& sample = samples.emplace_back(SpeedSample{item.at(0), layer, item.at(2)});
    sample.problem.batch = item.at(1);
  }
  return samples;
}

const std::vector<std::string>& Header() {
  static const auto* header =
      new std::vector<std::string>{"variant", "in_modes", "out_modes", "ranks",   "phase",
                                   "dtype",   "threads",  "batch",     "time_ns", "gflops"};
  return *header;
}

template <typename Enum, size_t kCount>
Enum Named(const std::string& text, const std::array<Enum, kCount>& all) {
  for (Enum value : all) {
    if (text == Name(value)) return value;
  }
  throw std::runtime_error("'" + text + "' is unknown");
}

}  // namespace

std::vector<SpeedSample> CalibrateLayer(const LinearProblem& given,
                                        const CalibrationOptions& options) {
  LinearProblem layer = given;
  layer.batch = 1;
  layer.phase = WithoutOptimizer(layer.phase);
  if (auto samples = TimeInChild(layer, options, nullptr)) return *samples;
  // Some variant took the others down with it: each on its own.
  std::vector<SpeedSample> all;
  for (const LinearVariant* variant : options.variants(layer)) {
    if (options.interrupted && options.interrupted()) break;
    if (auto samples = TimeInChild(layer, options, variant)) {
      all.insert(all.end(), samples->begin(), samples->end());
    }
  }
  return all;
}

std::string FormatCalibration(const std::vector<SpeedSample>& samples) {
  std::string text = FormatCsvLine(Header());
  for (const SpeedSample& sample : samples) {
    const LinearProblem& p = sample.problem;
    const int64_t flops = PredictLinearCost(*FindLinearVariant(sample.variant), p).flops;
    char time[32], rate[32];
    std::snprintf(time, sizeof time, "%.6g", sample.seconds * 1e9);
    std::snprintf(rate, sizeof rate, "%.6g", static_cast<double>(flops) / sample.seconds * 1e-9);
    text += FormatCsvLine({sample.variant, FormatModes(p.shape.in_modes()),
                           FormatModes(p.shape.out_modes()), p.shape.ranks_name(), Name(p.phase),
                           Name(p.dtype), std::to_string(p.threads), std::to_string(p.batch), time,
                           rate});
  }
  return text;
}

std::vector<SpeedSample> ReadCalibration(const std::string& path) {
  const auto lines = ReadCsv(path);
  std::vector<SpeedSample> samples;
  if (lines.empty()) return samples;
  if (lines.front() != Header()) throw std::runtime_error(path + " is no table of calibrations");
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string>& f = lines[i];
    try {
      samples.push_back({f.at(0),
                         {TtShape(ParseModes(f.at(1)), ParseModes(f.at(2)), ParseModes(f.at(3))),
                          std::stoll(f.at(7)), Named(f.at(4), kPhases), Named(f.at(5), kDTypes),
                          std::stoll(f.at(6))},
                         std::stod(f.at(8)) * 1e-9});
    } catch (const std::exception& error) {
      throw std::runtime_error(path + ", line " + std::to_string(i + 1) + ": " + error.what());
    }
  }
  return samples;
}

}  // namespace ttbench
