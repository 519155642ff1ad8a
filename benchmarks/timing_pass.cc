#include "benchmarks/timing_pass.h"

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "benchmarks/cuda_device.h"

namespace ttbench {
namespace {

// Keeps what Google Benchmark measured instead of printing it.
class SampleReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.run_type != Run::RT_Iteration || run.error_occurred) continue;
      iterations = static_cast<int64_t>(run.iterations);
      ns_per_iteration = run.real_accumulated_time * 1e9 / static_cast<double>(run.iterations);
    }
  }
  int64_t iterations = 0;
  double ns_per_iteration = 0;
};

// One side of the comparison: a workload ready to run, and its repetitions so far.
class Side {
 public:
  // `timer`: of the device, or nullptr.
  Side(const Workload& workload, uint64_t seed, DeviceTimer* timer)
      : name_(workload.variant()), run_(workload.MakeRun(seed, /*checked=*/false)), timer_(timer) {
    if (workload.setting().phase != Phase::kInference) dy_ = run_->MakeDy(nullptr);
  }

  // One iteration untimed: what a first one alone does (buffers that the variant keeps, pages that
  // the kernel clears) is no part of the time.
  void WarmUp() { Iterate(); }

  // One repetition: the first finds how many iterations fill min_time_ns, the rest do as many.
  void Repeat(int64_t min_time_ns) {
    if (timer_) return RepeatOnDevice(static_cast<double>(min_time_ns));
    std::exception_ptr failure;
    auto body = [&](benchmark::State& state) {
      for (auto _ : state) {
        try {
          Iterate();
        } catch (...) {
          failure = std::current_exception();
          state.SkipWithError("the variant threw");
          break;
        }
      }
    };
    benchmark::ClearRegisteredBenchmarks();
    auto* registered = benchmark::RegisterBenchmark(name_.c_str(), body);
    registered->UseRealTime();
    if (iterations_ == 0) {
      registered->MinTime(static_cast<double>(min_time_ns) * 1e-9);
    } else {
      registered->Iterations(iterations_);
    }
    SampleReporter reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    if (failure) std::rethrow_exception(failure);
    iterations_ = reporter.iterations;
    samples_.push_back(reporter.ns_per_iteration);
  }

  int64_t iterations() const { return iterations_; }
  const std::vector<double>& samples() const { return samples_; }

 private:
  void RepeatOnDevice(double min_time_ns) {
    auto time = [&] { return timer_->Time(iterations_, [&] { Iterate(); }); };
    if (iterations_ == 0) {
      constexpr int64_t kMostIterations = 1'000'000;
      for (iterations_ = 1; iterations_ < kMostIterations;) {
        const double ns = time();
        if (ns >= min_time_ns) break;
        // As Google Benchmark: what should suffice and a bit more, at most ten times as many.
        const double factor = std::min(10.0, 1.4 * min_time_ns / std::max(ns, 1.0));
        iterations_ =
            std::min(kMostIterations,
                     std::max(iterations_ + 1,
                              static_cast<int64_t>(factor * static_cast<double>(iterations_))));
      }
    }
    samples_.push_back(time() / static_cast<double>(iterations_));
  }

  void Iterate() {
    PhaseRun::Tensors y = run_->Forward();
    if (!dy_.empty()) {
      run_->Backward(y, dy_);
      run_->Step();
      run_->ClearGradients();
    }
    benchmark::DoNotOptimize(y.data());
  }

  std::string name_;
  std::unique_ptr<PhaseRun> run_;
  PhaseRun::Tensors dy_;
  DeviceTimer* timer_;
  int64_t iterations_ = 0;
  std::vector<double> samples_;
};

double SpreadOf(const std::vector<double>& samples) {
  return (Quantile(samples, 0.75) - Quantile(samples, 0.25)) / Quantile(samples, 0.5);
}

}  // namespace

void KeepFreedPages() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double position = q * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - std::floor(position)) * (values[above] - values[below]);
}

Timing TimeWorkload(const Workload& workload, const Workload* baseline, uint64_t seed,
                    const TimingOptions& options) {
  using Clock = std::chrono::steady_clock;
  KeepFreedPages();
  std::optional<DeviceTimer> timer;
  if (workload.setting().device == Device::kCuda) timer.emplace(options.flush_cache);
  Side side(workload, seed, timer ? &*timer : nullptr);
  std::unique_ptr<Side> base;
  if (baseline) base = std::make_unique<Side>(*baseline, seed, timer ? &*timer : nullptr);

  side.WarmUp();
  if (base) base->WarmUp();
  if (timer) SynchronizeDevice();
  const auto start = Clock::now();
  const auto limit = std::chrono::nanoseconds(kTimeLimitFactor * options.min_time_ns);
  Timing timing;
  while (timing.stop_reason.empty()) {
    const bool baseline_first = base && side.samples().size() % 2 == 1;
    if (baseline_first) base->Repeat(options.min_time_ns);
    side.Repeat(options.min_time_ns);
    if (base && !baseline_first) base->Repeat(options.min_time_ns);

    const int64_t repetitions = static_cast<int64_t>(side.samples().size());
    if (repetitions >= std::max<int64_t>(options.repetitions, 2) &&
        SpreadOf(side.samples()) <= kConvergedSpread) {
      timing.stop_reason = "converged";
    } else if (repetitions >= 3 * options.repetitions) {
      timing.stop_reason = "max-repetitions";
    } else if (Clock::now() - start >= limit) {
      timing.stop_reason = "time-limit";
    }
  }
  timing.median_ns = Quantile(side.samples(), 0.5);
  timing.min_ns = Quantile(side.samples(), 0);
  timing.iterations = side.iterations();
  timing.repetitions = static_cast<int64_t>(side.samples().size());
  if (timing.repetitions > 1) timing.spread = SpreadOf(side.samples());
  if (base) {
    std::vector<double> ratios;
    for (size_t i = 0; i < side.samples().size(); ++i) {
      ratios.push_back(side.samples()[i] / base->samples()[i]);
    }
    timing.ratio_to_baseline = Quantile(ratios, 0.5);
  }
  return timing;
}

}  // namespace ttbench
