// Times one cell's phase by Google Benchmark, its baseline interleaved with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/workload.h"

namespace ttbench {

struct TimingOptions {
  int64_t min_time_ns = 20'000'000;  // The least time of one repetition.
  int64_t repetitions = 5;           // The fewest, unless time runs out.
  bool flush_cache = false;          // Of a CUDA device, before every run of the phase.
};

// Repetitions go on past the fewest, to three times as many, while their spread is above this.
inline constexpr double kConvergedSpread = 0.05;
// No repetition is begun after this many times min_time_ns, baseline included.
inline constexpr int64_t kTimeLimitFactor = 25;

struct Timing {
  double median_ns = 0;  // Of one run of the phase, over the repetitions.
  double min_ns = 0;
  // The interquartile range over the median; absent for fewer than two repetitions.
  std::optional<double> spread;
  int64_t iterations = 0;  // Runs of the phase in each repetition.
  int64_t repetitions = 0;
  std::string stop_reason;  // converged, max-repetitions, or time-limit
  // The median over the repetitions of the time over the baseline's in the same round.
  std::optional<double> ratio_to_baseline;
};

// Has malloc keep for this process what is freed, as allocators made for such work do. By default
// it gives large buffers back to the system, which clears the pages of the next ones: for a large
// layer 3% to 10% of its time, and much of its noise. Not undone.
void KeepFreedPages();

// Sorted or not; q in [0, 1], interpolated between the two nearest. Not empty.
double Quantile(std::vector<double> values, double q);

// Times the workload and, if given, the baseline: a round is one repetition of each, and the order
// changes from round to round. Set-up and a first run of each are outside the timed region;
// gradients are allocated anew in every run of the phase, as in training, but after
// KeepFreedPages(). Throws whatever the variant throws. On a CUDA device time is between two events
// on the stream, around all runs of a repetition, or around each where the cache is flushed between
// them; the device has nothing else to do when the first is recorded.
Timing TimeWorkload(const Workload& workload, const Workload* baseline, uint64_t seed,
                    const TimingOptions& options);

}  // namespace ttbench
