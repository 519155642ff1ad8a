// Runs one cell in a child process of its own and says how it ended.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "benchmarks/cell.h"
#include "benchmarks/memory_pass.h"
#include "benchmarks/timing_pass.h"
#include "benchmarks/workload.h"

namespace ttbench {

// How a cell ended; the word is the row's `status`.
//   ok       ran and was checked
//   skipped  did not run; the reason says why
//   oom      an allocation failed, or would have passed --memory-budget
//   timeout  ran past --cell-timeout and was killed
//   crashed  its process ended by a signal or by an error of its own
//   wrong    the results differ from the oracle, or the bytes from the cost model
enum class Status { kOk, kSkipped, kOom, kTimeout, kCrashed, kWrong };
const char* Name(Status status);

struct CellOptions {
  uint64_t seed = 0;
  bool measure_memory = true;
  bool measure_time = true;
  // Of the baseline, where an earlier cell has measured it: it is then not measured again.
  std::optional<int64_t> baseline_peak_bytes;
  TimingOptions timing;
  int64_t timeout_ns = 60'000'000'000;
  int64_t memory_budget_bytes = 0;  // 0: none.
};

struct CellOutcome {
  Status status = Status::kOk;
  std::string reason;   // One sentence; may be empty when ok.
  std::string details;  // For people, beside the reason: a table of several lines, or "".
  // Absent: not measured, because not asked for or because the cell did not end ok.
  std::optional<MeasuredMemory> memory;
  std::optional<int64_t> baseline_peak_bytes;
  std::optional<Timing> timing;
  std::optional<double> max_relative_error;
  // Of a CUDA device: columns of device.csv.
  NamedFigures device;
};

// Runs the linear baseline once, on one thread and without autograd, so that what LibTorch and the
// GEMM library set up at their first use is done before the forks and not in every child. Autograd
// must stay untouched: its engine refuses to run in a child of a process that has used it. The
// other variants are left to the children: one that crashes or hangs must not take the sweep with
// it.
void WarmUp();

// Forks, runs the cell under its deadline and budget, and returns its outcome: never throws for
// what the cell does. The reference must be the problem's; nullptr leaves the results unchecked and
// untimed. `with_baseline`: measure the family's baseline beside the cell. `interrupted` ends the
// child early (status crashed, "interrupted").
CellOutcome RunCell(const Cell& cell, const CellOptions& options, const Reference* reference,
                    bool with_baseline, const std::function<bool()>& interrupted);

}  // namespace ttbench
