#include "benchmarks/cell_runner.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>

#include "benchmarks/child_process.h"
#include "benchmarks/cuda_device.h"
#include "benchmarks/linear_workload.h"
#include "benchmarks/memory_meter.h"
#include "kernels/cost/cell_cost.h"

namespace ttbench {
namespace {

using nlohmann::json;

template <typename T>
void ToJson(json* j, const char* key, const std::optional<T>& value) {
  if (value) (*j)[key] = *value;
}

template <typename T>
void FromJson(const json& j, const char* key, std::optional<T>* value) {
  if (j.contains(key)) *value = j.at(key).get<T>();
}

// The fields of an outcome that travel from the child, read or written by `visit(key, field)`.
template <typename Figures, typename Visit>
void VisitFigures(Figures& f, const Visit& visit) {
  visit("weight", f.weight);
  visit("held", f.held);
  visit("forward_peak", f.forward_peak);
  visit("backward_peak", f.backward_peak);
  visit("step_peak", f.step_peak);
  visit("peak", f.peak);
}

std::string Serialize(const CellOutcome& outcome) {
  json j = {{"status", static_cast<int>(outcome.status)},
            {"reason", outcome.reason},
            {"details", outcome.details},
            {"device", outcome.device}};
  ToJson(&j, "baseline_peak", outcome.baseline_peak_bytes);
  ToJson(&j, "error", outcome.max_relative_error);
  if (outcome.memory) {
    json& memory = j["memory"] = json::object();
    VisitFigures(outcome.memory->bytes,
                 [&](const char* key, const auto& field) { ToJson(&memory, key, field); });
    memory["rss"] = outcome.memory->rss_peak_bytes;
    ToJson(&memory, "reserved", outcome.memory->reserved_peak_bytes);
  }
  if (outcome.timing) {
    const Timing& t = *outcome.timing;
    json& timing = j["timing"] = {{"median", t.median_ns},
                                  {"min", t.min_ns},
                                  {"iterations", t.iterations},
                                  {"repetitions", t.repetitions},
                                  {"stop_reason", t.stop_reason}};
    ToJson(&timing, "spread", t.spread);
    ToJson(&timing, "ratio", t.ratio_to_baseline);
  }
  return j.dump();
}

CellOutcome Deserialize(const std::string& text) {
  const json j = json::parse(text);
  CellOutcome outcome;
  outcome.status = static_cast<Status>(j.at("status").get<int>());
  outcome.reason = j.at("reason");
  outcome.details = j.at("details");
  outcome.device = j.at("device").get<NamedFigures>();
  FromJson(j, "baseline_peak", &outcome.baseline_peak_bytes);
  FromJson(j, "error", &outcome.max_relative_error);
  if (j.contains("memory")) {
    const json& memory = j["memory"];
    outcome.memory.emplace();
    VisitFigures(outcome.memory->bytes,
                 [&](const char* key, auto& field) { FromJson(memory, key, &field); });
    outcome.memory->rss_peak_bytes = memory.at("rss");
    FromJson(memory, "reserved", &outcome.memory->reserved_peak_bytes);
  }
  if (j.contains("timing")) {
    const json& timing = j["timing"];
    Timing& t = outcome.timing.emplace();
    t.median_ns = timing.at("median");
    t.min_ns = timing.at("min");
    t.iterations = timing.at("iterations");
    t.repetitions = timing.at("repetitions");
    t.stop_reason = timing.at("stop_reason");
    FromJson(timing, "spread", &t.spread);
    FromJson(timing, "ratio", &t.ratio_to_baseline);
  }
  return outcome;
}

CellOutcome Failed(Status status, std::string reason) {
  CellOutcome outcome;
  outcome.status = status;
  outcome.reason = std::move(reason);
  return outcome;
}

std::string Short(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

// LibTorch's allocators report what malloc or the driver refuses as an ordinary error.
bool SaysOutOfMemory(const std::string& what) {
  return what.find("not enough memory") != std::string::npos ||
         what.find("can't allocate memory") != std::string::npos ||
         what.find("CUDA out of memory") != std::string::npos;
}

// A LibTorch error up to where its stack trace begins.
std::string FirstLine(const std::string& what) { return what.substr(0, what.find('\n')); }

// What to do about an exception of a variant's own.
std::string ThrownAdvice(const std::string& variant) {
  return " (an exception; where '" + variant +
         "' cannot run such a cell, its WhyUnsupported() has to give the reason)";
}

CellOutcome Measure(const Cell& cell, const CellOptions& options, const Reference* reference,
                    bool with_baseline) {
  const Workload& workload = *cell.workload;
  const std::shared_ptr<const Workload> baseline = with_baseline ? workload.Baseline() : nullptr;
  at::set_num_threads(static_cast<int>(workload.setting().threads));
  const bool on_cuda = cell.device.is_cuda();
  if (on_cuda) SetUpDevice(cell.device, options.memory_budget_bytes);

  CellOutcome outcome;
  // The check needs one run of the phase, and so does the memory pass: it is the same run.
  MeasuredMemory memory =
      MeasureMemory(workload, options.seed, options.memory_budget_bytes, reference);
  if (reference) {
    if (std::isfinite(memory.max_relative_error)) {
      outcome.max_relative_error = memory.max_relative_error;
    }
    const double tolerance = workload.MaxError();
    if (!(memory.max_relative_error <= tolerance)) {
      outcome.status = Status::kWrong;
      outcome.reason = outcome.max_relative_error
                           ? memory.max_error_of +
                                 " is wrong: it differs from the float64 oracle by " +
                                 Short(memory.max_relative_error) + " of its largest element; " +
                                 Short(tolerance) + " is allowed"
                           : memory.max_error_of +
                                 " is wrong: it holds a NaN or an infinite element; the float64 "
                                 "oracle's does not";
      return outcome;
    }
  }
  if (options.measure_memory) {
    const std::string unmodelled = workload.WhyPeaksUnmodelled();
    const CellCost model = workload.Predict();
    const std::string difference = CompareWithModel(memory, model, unmodelled.empty());
    // Models are of the CPU's libraries: what LibTorch allocates on a device is reported beside
    // them.
    if (!difference.empty() && !on_cuda) {
      outcome.status = Status::kWrong;
      outcome.reason = difference;
      outcome.details = ShowBesideModel(memory, model);
    }
    outcome.device = memory.device;
    outcome.memory = std::move(memory);
    if (outcome.status == Status::kWrong) return outcome;
    outcome.reason = on_cuda && !difference.empty() ? difference : unmodelled;
    if (baseline) {
      outcome.baseline_peak_bytes = options.baseline_peak_bytes
                                        ? options.baseline_peak_bytes
                                        : MeasureMemory(*baseline, options.seed, 0).bytes.peak;
    }
  }
  if (options.measure_time && reference) {
    outcome.timing = TimeWorkload(workload, baseline.get(), options.seed, options.timing);
    if (on_cuda) {
      const NamedFigures conditions = ReadConditions();
      outcome.device.insert(outcome.device.end(), conditions.begin(), conditions.end());
    }
  }
  return outcome;
}

}  // namespace

const char* Name(Status status) {
  switch (status) {
    case Status::kOk:
      return "ok";
    case Status::kSkipped:
      return "skipped";
    case Status::kOom:
      return "oom";
    case Status::kTimeout:
      return "timeout";
    case Status::kCrashed:
      return "crashed";
    case Status::kWrong:
      return "wrong";
  }
  return "";
}

void WarmUp() {
  at::set_num_threads(1);
  const LinearProblem problem{TtShape::Cube(3, 2, 2), 2};
  LinearWorkload(*FindLinearVariant(kBaselineVariant), problem).MakeRun(0, false)->Forward();
}

CellOutcome RunCell(const Cell& cell, const CellOptions& options, const Reference* reference,
                    bool with_baseline, const std::function<bool()>& interrupted) {
  auto body = [&]() -> std::string {
    try {
      return Serialize(Measure(cell, options, reference, with_baseline));
    } catch (const OutOfBudget& error) {
      return Serialize(Failed(Status::kOom, error.what()));
    } catch (const std::bad_alloc&) {
      return Serialize(Failed(Status::kOom, "the machine has no more memory"));
    } catch (const BrokenContract& error) {
      return Serialize(Failed(Status::kWrong, error.what()));
    } catch (const std::exception& error) {
      const std::string what = FirstLine(error.what());
      if (SaysOutOfMemory(what)) return Serialize(Failed(Status::kOom, what));
      return Serialize(Failed(Status::kCrashed, what + ThrownAdvice(cell.variant())));
    }
  };
  const ChildResult child =
      RunInChild(body, std::chrono::nanoseconds(options.timeout_ns), interrupted);
  switch (child.end) {
    case ChildResult::End::kExited:
      if (child.exit_code == 0 && !child.output.empty()) return Deserialize(child.output);
      if (!child.output.empty()) return Failed(Status::kCrashed, FirstLine(child.output));
      return Failed(Status::kCrashed, "its process left with exit code " +
                                          std::to_string(child.exit_code) + " and no result");
    case ChildResult::End::kSignalled:
      return Failed(Status::kCrashed, "ended by " + SignalName(child.signal));
    case ChildResult::End::kTimedOut:
      return Failed(
          Status::kTimeout,
          "still running after " + Short(static_cast<double>(options.timeout_ns) * 1e-9) + " s");
    case ChildResult::End::kInterrupted:
      return Failed(Status::kCrashed, "interrupted");
  }
  return Failed(Status::kCrashed, "");
}

}  // namespace ttbench
