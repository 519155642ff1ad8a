#include "benchmarks/sweep.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "benchmarks/axis.h"
#include "benchmarks/calibration.h"
#include "benchmarks/cell_runner.h"
#include "benchmarks/crossover.h"
#include "benchmarks/cuda_device.h"
#include "benchmarks/fingerprint.h"
#include "benchmarks/flags.h"
#include "benchmarks/linear_workload.h"
#include "benchmarks/machine.h"
#include "benchmarks/plan.h"
#include "benchmarks/progress.h"
#include "benchmarks/result_table.h"
#include "benchmarks/run_directory.h"
#include "benchmarks/usage_error.h"
#include "kernels/cost/speed.h"
#include "kernels/linear/auto.h"

namespace ttbench {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

volatile std::sig_atomic_t g_signal = 0;
void NoteSignal(int signal) { g_signal = signal; }
bool Interrupted() { return g_signal != 0; }

ordered_json ReadJson(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw UsageError("--resume: there is no run in " + path.substr(0, path.rfind('/')));
  return ordered_json::parse(in);
}

std::vector<std::string> ColumnNames() {
  std::vector<std::string> names;
  for (const Column& column : ResultColumns()) names.push_back(column.name);
  return names;
}

// device.csv: a line for each cell that ran on a device.
std::vector<std::string> DeviceFileColumns() {
  std::vector<std::string> columns = {"schema", "cell"};
  columns.insert(columns.end(), DeviceColumns().begin(), DeviceColumns().end());
  return columns;
}

std::vector<std::string> DeviceFields(const Cell& cell, const NamedFigures& figures) {
  std::vector<std::string> fields = {std::to_string(kSchemaVersion), cell.Name()};
  for (const std::string& column : DeviceColumns()) {
    const auto figure = std::find_if(figures.begin(), figures.end(),
                                     [&](const auto& f) { return f.first == column; });
    fields.push_back(figure == figures.end() ? "" : figure->second);
  }
  return fields;
}

// The rows of a result table of an earlier call; none if there is no such file. Throws UsageError.
std::vector<Row> ReadRows(const std::string& path) {
  const std::vector<std::string> header = ColumnNames();
  std::vector<std::vector<std::string>> lines;
  try {
    lines = ReadCsv(path);
  } catch (const std::runtime_error& error) {
    throw UsageError(std::string("--resume: ") + error.what());
  }
  if (!lines.empty() && lines.front() != header) {
    throw UsageError("--resume: " + path + " has other columns than this version writes");
  }
  std::vector<Row> rows;
  for (size_t i = 1; i < lines.size(); ++i) {
    Row& row = rows.emplace_back();
    for (size_t c = 0; c < header.size(); ++c) row.Set(header[c], lines[i][c]);
  }
  return rows;
}

// What holds for all cells, and what this one's grid asks for.
CellOptions OptionsOf(const PlannedCell& planned, const SweepFlags& flags) {
  CellOptions options = flags.cell;
  options.measure_memory = planned.measure_memory;
  options.measure_time = planned.measure_time;
  options.timing = planned.timing;
  options.memory_budget_bytes = planned.memory_budget_bytes;
  return options;
}

std::string MeasuringFlags(const CellOptions& options) {
  std::string flags = std::string(" --measure=") + (options.measure_memory ? "memory" : "") +
                      (options.measure_memory && options.measure_time ? "," : "") +
                      (options.measure_time ? "time" : "");
  if (options.measure_time) {
    flags += " --min-time=" + std::to_string(options.timing.min_time_ns) +
             "ns --repetitions=" + std::to_string(options.timing.repetitions) +
             (options.timing.flush_cache ? " --flush-cache" : "");
  }
  return flags;
}

// What a row says of its cell alone.
Row DescribeCell(const PlannedCell& planned, const SweepFlags& flags, const std::string& target) {
  const Cell& cell = planned.cell;
  const Setting setting = cell.setting();
  Row row;
  row.Set("schema", int64_t{kSchemaVersion});
  row.Set("experiment", flags.experiment);
  row.Set("cell", cell.Name());
  row.Set("family", cell.workload->family());
  row.Set("variant", cell.variant());
  row.Set("algorithm", cell.workload->Algorithm());
  row.Set("baseline", int64_t{cell.workload->is_baseline()});
  for (const auto& [column, value] : cell.workload->SizeColumns()) row.Set(column, value);
  row.Set("batch", setting.batch);
  row.Set("phase", Name(setting.phase));
  row.Set("dtype", Name(setting.dtype));
  row.Set("device", cell.device.Label());
  row.Set("threads", setting.threads);
  row.Set("seed", static_cast<int64_t>(flags.cell.seed));
  if (planned.cost.bytes.weight) {
    row.Set("parameters", *planned.cost.bytes.weight / ElementBytes(setting.dtype));
  }
  row.Set("repro", std::string("bazel run ") + (cell.device.is_cuda() ? "--config=cuda " : "") +
                       target + " -- " + cell.Flags() + MeasuringFlags(OptionsOf(planned, flags)) +
                       " --seed=" + std::to_string(flags.cell.seed) +
                       (planned.memory_budget_bytes > 0
                            ? " --memory-budget=" + std::to_string(planned.memory_budget_bytes)
                            : ""));
  return row;
}

void SetOutcome(const PlannedCell& planned, const CellOutcome& outcome,
                const std::map<std::string, double>& peak_gflops, Row* row) {
  const Workload& workload = *planned.cell.workload;
  const Setting setting = workload.setting();
  row->Set("status", Name(outcome.status));
  row->Set("reason", outcome.reason);
  if (outcome.memory) {
    const bool peaks_modelled = workload.WhyPeaksUnmodelled().empty();
    auto set = [&](const std::string& column, std::optional<int64_t> measured,
                   std::optional<int64_t> model, bool modelled) {
      if (measured) row->Set(column, *measured);
      if (measured && model && modelled) row->Set(column + "_model", *model);
    };
    const MemoryFigures& measured = outcome.memory->bytes;
    const MemoryFigures& model = planned.cost.bytes;
    set("weight_bytes", measured.weight, model.weight, true);
    set("held_bytes", measured.held, model.held, true);
    set("forward_peak_bytes", measured.forward_peak, model.forward_peak, peaks_modelled);
    set("backward_peak_bytes", measured.backward_peak, model.backward_peak, peaks_modelled);
    set("step_peak_bytes", measured.step_peak, model.step_peak, peaks_modelled);
    set("peak_bytes", measured.peak, model.peak, peaks_modelled);
    row->Set("rss_peak_bytes", outcome.memory->rss_peak_bytes);
    if (outcome.memory->reserved_peak_bytes)
      row->Set("reserved_bytes", *outcome.memory->reserved_peak_bytes);
    const std::optional<int64_t> base_peak =
        workload.is_baseline() ? measured.peak : outcome.baseline_peak_bytes;
    if (measured.peak && base_peak) {
      row->Set("peak_ratio_to_dense",
               static_cast<double>(*measured.peak) / static_cast<double>(*base_peak));
    }
  }
  if (outcome.max_relative_error) row->Set("max_relative_error", *outcome.max_relative_error);
  if (outcome.status != Status::kSkipped) row->Set("flops_model", planned.cost.flops);
  if (outcome.timing) {
    const Timing& timing = *outcome.timing;
    row->Set("time_ns", timing.median_ns);
    row->Set("time_min_ns", timing.min_ns);
    if (timing.spread) row->Set("time_spread", *timing.spread);
    row->Set("iterations", timing.iterations);
    row->Set("repetitions", timing.repetitions);
    row->Set("stop_reason", timing.stop_reason);
    const double gflops = static_cast<double>(planned.cost.flops) / timing.median_ns;
    row->Set("gflops", gflops);
    // Rates of the CPU say nothing of a device.
    const auto peak = setting.device == Device::kCpu
                          ? peak_gflops.find(PeakKey(setting.dtype, setting.threads))
                          : peak_gflops.end();
    if (peak != peak_gflops.end()) row->Set("fraction_of_peak", gflops / peak->second);
    if (workload.is_baseline()) {
      row->Set("time_ratio_to_dense", 1.0);
    } else if (timing.ratio_to_baseline) {
      row->Set("time_ratio_to_dense", *timing.ratio_to_baseline);
    }
  }
}

// All that identifies a cell but its batch: where one ran out of memory or time, larger ones will.
std::string SeriesOf(const Cell& cell) {
  std::string series = cell.Name();
  const std::string batch = "/b" + std::to_string(cell.setting().batch) + "/";
  return series.replace(series.find(batch), batch.size(), "/");
}

// The time within which "never" and "beyond" are spot-checked: they need no particular batch.
constexpr int64_t kSpotCheckNs = 200'000'000;

// The largest power of two, at most max_batch and at least 1, at which a memory-only cell and the
// dense layer beside it are predicted to stay within the limits.
int64_t LargestBatch(const Cell& cell, const Limits& limits, int64_t max_batch) {
  int64_t batch = 1;
  while (batch * 2 <= max_batch) {
    if (!PlanCell(cell.AtBatch(batch * 2), false, 0, limits).skip_reason.empty()) break;
    batch *= 2;
  }
  return batch;
}

// All that identifies a linear layer and the way to compute it.
std::string LayerOf(const Cell& cell) {
  const TtShape& shape = LinearOf(cell).problem().shape;
  return cell.variant() + "/" + shape.modes_name() + "/" + shape.ranks_name();
}

class Sweep {
 public:
  Sweep(SweepFlags flags, const Machine& machine, const std::string& target)
      : flags_(std::move(flags)), machine_(machine), target_(target) {}

  int Run(const std::string& command);

 private:
  Limits CellLimits() const {
    const int64_t memory =
        flags_.memory_limit_bytes > 0 ? flags_.memory_limit_bytes : AvailableMemoryBytes() / 4 * 3;
    Limits limits;
    limits.memory_bytes = memory;
    limits.time_ns = flags_.cell.timeout_ns / 2;  // Predictions are rough.
    limits.why_no_cuda = gpu_.why_not;
    limits.cuda_memory_bytes = flags_.memory_limit_bytes > 0 ? memory : gpu_.free_bytes / 4 * 3;
    return limits;
  }
  bool UsesCuda() const;
  void Plan();
  int PrintPlan() const;
  // Takes over the flags of the run that --resume names.
  void Resume();
  // Chooses and makes the directory; cells that have a row in it are marked done.
  void Open();
  void WriteRunInfo();
  // Times the layers that `auto` is to compute, so that it picks by this machine's rates, and plans
  // anew by them. What an earlier call found is kept.
  void Calibrate();
  CellOutcome RunPlanned(const PlannedCell& planned);
  // Where a cell ran out of memory or time, larger batches will too.
  void NoteGivenUp(const Cell& cell, const std::string& status);
  void RunCells();
  void FindCrossovers();
  int ExitStatus() const;

  SweepFlags flags_;
  Machine machine_;
  std::string target_;
  std::vector<PlannedCell> plan_;
  std::set<std::string> layers_;  // Of all shards; of those grids that look for crossovers.
  std::vector<std::string> notes_;
  std::string directory_;
  ordered_json info_;
  ordered_json begun_;  // With --resume, run.json as it was.
  Peaks peaks_;
  GpuProbe gpu_;  // Asked for once cells are to run on one.
  std::unique_ptr<CsvAppender> results_,
      device_figures_;                       // The latter where cells run on a device.
  std::map<std::string, std::string> done_;  // Cell name -> status.
  struct GivenUp {
    int64_t batch;
    std::string reason;
  };
  std::map<std::string, GivenUp> given_up_;  // By series: why larger batches are skipped.
  std::set<std::string> detailed_;           // Variants whose bytes were shown beside the model's.
  bool probes_failed_ = false;               // Some probe's bytes were not its model's.
  std::map<std::string, int64_t> baseline_peaks_;  // By cell name: bytes, the same in every cell.
  std::string reference_key_;
  std::unique_ptr<Reference> reference_;
};

bool Sweep::UsesCuda() const {
  return std::any_of(flags_.grids.begin(), flags_.grids.end(), [](const Grid& grid) {
    return std::any_of(grid.devices.begin(), grid.devices.end(),
                       [](const DeviceSettings& device) { return device.is_cuda(); });
  });
}

void Sweep::Plan() {
  plan_.clear();
  if (UsesCuda() && gpu_.why_not.empty() && gpu_.description.is_null()) gpu_ = ProbeGpuInChild();
  const std::vector<PlannedCell> all = MakePlan(flags_.grids, flags_.filter, CellLimits(), &notes_);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].cell.workload->family() == std::string("linear"))
      layers_.insert(LayerOf(all[i].cell));
    if (static_cast<int64_t>(i) % flags_.shard_count == flags_.shard_index) plan_.push_back(all[i]);
  }
}

int Sweep::PrintPlan() const {
  double seconds = 0;
  int64_t runs = 0;
  std::printf("%12s %9s  %s\n", "peak", "time", "cell");
  for (const PlannedCell& planned : plan_) {
    const bool skipped = !planned.skip_reason.empty();
    const std::optional<int64_t> peak = planned.cost.bytes.peak;
    std::printf("%12s %8.2fs  %s%s%s\n", peak ? FormatBytes(*peak).c_str() : "", planned.seconds,
                planned.cell.Name().c_str(), skipped ? "  skipped: " : "",
                planned.skip_reason.c_str());
    if (skipped) continue;
    seconds += planned.seconds;
    ++runs;
  }
  std::printf("%zu cells, %lld to run, about %s\n", plan_.size(), static_cast<long long>(runs),
              FormatDuration(seconds).c_str());
  return kExitOk;
}

void Sweep::Open() {
  const bool resumes = !flags_.resume.empty();
  directory_ =
      resumes ? UserPath(flags_.resume)
              : (flags_.out.empty() ? DefaultDirectory(flags_.experiment) : UserPath(flags_.out));
  const std::string path = directory_ + "/results.csv";
  if (!resumes && Exists(path)) {
    throw UsageError("--out: " + directory_ + " already holds a run; go on with it by --resume=" +
                     directory_ + ", or name another directory");
  }
  MakeDirectories(directory_);
  for (const Row& row : ReadRows(path)) done_[row.Get("cell")] = row.Get("status");
  ReadRows(directory_ + "/crossover_probes.csv");  // Refused now rather than after the cells.
}

void Sweep::WriteRunInfo() { WriteFile(directory_ + "/run.json", info_.dump(2) + "\n"); }

void Sweep::Calibrate() {
  const std::string path = directory_ + "/calibration.csv";
  try {
    for (const SpeedSample& sample : ReadCalibration(path)) MeasuredSpeeds().Add(sample);
  } catch (const std::runtime_error& error) {
    throw UsageError(std::string("--resume: ") + error.what());
  }
  std::vector<LinearProblem> layers;
  for (const PlannedCell& planned : plan_) {
    if (planned.cell.variant() != kAutoVariant || !planned.skip_reason.empty()) continue;
    for (const LinearProblem& problem : planned.cell.workload->LinearLayers()) {
      const bool known = MeasuredSpeeds().Knows(problem) ||
                         std::any_of(layers.begin(), layers.end(), [&](const LinearProblem& layer) {
                           return layer.shape == problem.shape && layer.dtype == problem.dtype &&
                                  layer.threads == problem.threads &&
                                  WithoutOptimizer(layer.phase) == WithoutOptimizer(problem.phase);
                         });
      if (!known) layers.push_back(problem);
    }
  }
  // What an earlier call found changes the plan all the same.
  if (layers.empty() && !MeasuredSpeeds().samples().empty()) Plan();
  if (layers.empty()) return;
  CalibrationOptions options;
  options.variants = AutoCandidates;
  options.peak_gflops = peaks_.fma_gflops;
  options.memory_bytes = CellLimits().memory_bytes;
  options.interrupted = Interrupted;
  Progress progress(std::vector<double>(layers.size(), 1.0), flags_.quiet);
  for (const LinearProblem& layer : layers) {
    const std::string title = "calibration of " + layer.shape.modes_name() + "/" +
                              layer.shape.rank_label() + "/" + Name(layer.phase);
    progress.Begin(title);
    for (const SpeedSample& sample : CalibrateLayer(layer, options)) MeasuredSpeeds().Add(sample);
    if (Interrupted()) return;
    progress.Done(title, "done");
  }
  WriteFile(path, FormatCalibration(MeasuredSpeeds().samples()));
  Plan();
}

CellOutcome Sweep::RunPlanned(const PlannedCell& planned) {
  CellOutcome outcome;
  outcome.status = Status::kSkipped;
  outcome.reason = planned.skip_reason;
  const auto given_up = given_up_.find(SeriesOf(planned.cell));
  if (outcome.reason.empty() && given_up != given_up_.end() &&
      planned.cell.setting().batch > given_up->second.batch) {
    outcome.reason = given_up->second.reason;
  }
  if (!outcome.reason.empty()) return outcome;

  // Neighbours in the plan share their inputs, and with them the reference.
  const Workload& workload = *planned.cell.workload;
  const bool checked = planned.measure_time || workload.checks_memory_alone();
  const std::string key = workload.reference_key();
  if (checked && key != reference_key_) {
    reference_.reset();
    reference_ = workload.MakeReference(flags_.cell.seed);
    reference_key_ = key;
  }
  CellOptions options = OptionsOf(planned, flags_);
  const std::string baseline = planned.cell.Baseline().Name();
  const auto known = baseline_peaks_.find(baseline);
  if (known != baseline_peaks_.end()) options.baseline_peak_bytes = known->second;
  outcome = RunCell(planned.cell, options, checked ? reference_.get() : nullptr,
                    !workload.is_baseline(), Interrupted);
  if (!checked && outcome.status == Status::kOk && outcome.reason.empty()) {
    outcome.reason = "results not checked: memory alone is measured";
  }
  const std::optional<int64_t> baseline_peak = workload.is_baseline() && outcome.memory
                                                   ? outcome.memory->bytes.peak
                                                   : outcome.baseline_peak_bytes;
  if (baseline_peak) baseline_peaks_[baseline] = *baseline_peak;
  NoteGivenUp(planned.cell, Name(outcome.status));
  return outcome;
}

void Sweep::NoteGivenUp(const Cell& cell, const std::string& status) {
  const bool oom = status == Name(Status::kOom);
  if (!oom && status != Name(Status::kTimeout)) return;
  const int64_t batch = cell.setting().batch;
  given_up_[SeriesOf(cell)] = {batch, std::string("ran out of ") + (oom ? "memory" : "time") +
                                          " at batch " + std::to_string(batch)};
}

void Sweep::RunCells() {
  std::vector<double> seconds;
  for (const PlannedCell& planned : plan_) {
    const bool runs = planned.skip_reason.empty() && !done_.count(planned.cell.Name());
    seconds.push_back(runs ? planned.seconds : 0);
  }
  Progress progress(std::move(seconds), flags_.quiet);
  for (const PlannedCell& planned : plan_) {
    const std::string name = planned.cell.Name();
    if (const auto done = done_.find(name); done != done_.end()) {
      NoteGivenUp(planned.cell, done->second);
      progress.Done(name, "already there");
      continue;
    }
    progress.Begin(name);
    const CellOutcome outcome = RunPlanned(planned);
    if (Interrupted()) return;
    Row row = DescribeCell(planned, flags_, target_);
    SetOutcome(planned, outcome, peaks_.fma_gflops, &row);
    results_->Append(row.fields());
    if (!outcome.device.empty())
      device_figures_->Append(DeviceFields(planned.cell, outcome.device));
    done_[name] = Name(outcome.status);
    progress.Done(name, outcome.status == Status::kOk
                            ? Name(outcome.status)
                            : Name(outcome.status) + (": " + outcome.reason));
    // Once for each variant: in its other cells the same term is missing.
    if (!outcome.details.empty() && !flags_.quiet &&
        detailed_.insert(planned.cell.variant()).second) {
      std::fputs(outcome.details.c_str(), stderr);
    }
  }
}

void Sweep::FindCrossovers() {
  const std::vector<std::string> header = {"schema",
                                           "experiment",
                                           "variant",
                                           "phase",
                                           "metric",
                                           "in_modes",
                                           "out_modes",
                                           "ranks",
                                           "cores",
                                           "d",
                                           "rank",
                                           "dtype",
                                           "crossover_batch",
                                           "crossover_batch_model",
                                           "claim_batch",
                                           "k",
                                           "verdict",
                                           "probes"};
  // Bytes by cell name, from the probes of this and of earlier calls.
  const std::vector<std::string> columns = ColumnNames();
  const std::string probes_path = directory_ + "/crossover_probes.csv";
  std::map<std::string, MemoryFigures> figures;
  for (const Row& row : ReadRows(probes_path)) {
    probes_failed_ = probes_failed_ || row.Get("status") != Name(Status::kOk);
    if (row.Get("peak_bytes").empty()) continue;
    auto read = [&](const char* column) -> std::optional<int64_t> {
      const std::string& text = row.Get(column);
      if (text.empty()) return std::nullopt;
      return std::strtoll(text.c_str(), nullptr, 10);
    };
    MemoryFigures& f = figures[row.Get("cell")];
    f.weight = read("weight_bytes");
    f.held = read("held_bytes");
    f.peak = read("peak_bytes");
  }
  CsvAppender probes(probes_path, columns);

  const Limits limits = CellLimits();
  Limits spot_check_limits = limits;
  spot_check_limits.time_ns = kSpotCheckNs;
  auto measure = [&](const Cell& at_any, int64_t batch) -> std::optional<MemoryFigures> {
    const Cell cell = at_any.AtBatch(batch);
    const std::string name = cell.Name();
    if (const auto known = figures.find(name); known != figures.end()) return known->second;
    PlannedCell planned = PlanCell(cell, false, 0, limits);
    if (!planned.skip_reason.empty() || Interrupted()) return std::nullopt;
    const CellOutcome outcome =
        RunCell(cell, OptionsOf(planned, flags_), nullptr, false, Interrupted);
    if (Interrupted()) return std::nullopt;
    Row row = DescribeCell(planned, flags_, target_);
    SetOutcome(planned, outcome, peaks_.fma_gflops, &row);
    probes.Append(row.fields());
    probes_failed_ = probes_failed_ || outcome.status != Status::kOk;
    if (!outcome.memory) return std::nullopt;
    return figures[name] = outcome.memory->bytes;
  };

  // One search for each series of a grid, in the phases it asks for, if the filter left any of its
  // layer's cells; a shard takes its share.
  std::set<std::string> seen;
  std::vector<Cell> searches;
  for (Grid grid : flags_.grids) {
    if (grid.crossover_phases.empty()) continue;
    grid.phases = grid.crossover_phases;
    grid.batches = {1};
    for (const PlannedCell& planned : MakePlan({grid}, "", Limits(), &notes_)) {
      const Cell& cell = planned.cell;
      if (LinearOf(cell).is_dense() || !layers_.count(LayerOf(cell))) continue;
      if (!cell.workload->WhyUnsupported().empty()) continue;
      if (!seen.insert(SeriesOf(cell)).second) continue;
      if (static_cast<int64_t>(seen.size()) % flags_.shard_count != flags_.shard_index) continue;
      searches.push_back(cell);
    }
  }
  Progress progress(std::vector<double>(searches.size(), 1.0), flags_.quiet);
  std::string table = FormatCsvLine(header);
  for (const Cell& cell : searches) {
    const std::string title = "crossover of " + SeriesOf(cell);
    progress.Begin(title);
    const Cell dense = cell.Baseline();
    const Setting setting = cell.setting();
    std::string answers;
    for (CrossoverMetric metric : {CrossoverMetric::kHeld, CrossoverMetric::kPeak}) {
      // What is held does not depend on the optimizer.
      if (metric == CrossoverMetric::kHeld && setting.phase != Phase::kTrain) continue;
      auto is_above = [&](int64_t batch) -> std::optional<bool> {
        const auto ours = measure(cell, batch);
        const auto theirs = measure(dense, batch);
        if (!ours || !theirs) return std::nullopt;
        return *MetricOf(*ours, metric) > *MetricOf(*theirs, metric);
      };
      const Crossover crossover = FindCrossover(
          cell, metric, is_above, LargestBatch(cell, limits, flags_.max_crossover_batch),
          LargestBatch(cell, spot_check_limits, flags_.max_crossover_batch));
      if (Interrupted()) return;
      const TtShape& shape = LinearOf(cell).problem().shape;
      auto text = [](std::optional<int64_t> value) { return value ? std::to_string(*value) : ""; };
      std::string k;
      if (crossover.batch && ClaimedCrossover(shape)) {
        char buffer[32];
        std::snprintf(buffer, sizeof buffer, "%.6g",
                      2.0 * static_cast<double>(*crossover.batch * shape.uniform_rank()) /
                          static_cast<double>(shape.in_features()));
        k = buffer;
      }
      table += FormatCsvLine(
          {std::to_string(kSchemaVersion), flags_.experiment, cell.variant(), Name(setting.phase),
           Name(metric), FormatModes(shape.in_modes()), FormatModes(shape.out_modes()),
           shape.ranks_name(), std::to_string(shape.cores()),
           shape.is_cube() ? std::to_string(shape.n(0)) : "",
           shape.uniform_rank() > 0 ? std::to_string(shape.uniform_rank()) : "",
           Name(setting.dtype), text(crossover.batch), text(crossover.model_batch),
           text(ClaimedCrossover(shape)), k, crossover.verdict, std::to_string(crossover.probes)});
      answers += (answers.empty() ? "" : ", ") + std::string(Name(metric)) + " " +
                 (crossover.batch ? "B = " + std::to_string(*crossover.batch) : crossover.verdict);
    }
    progress.Done(title, answers);
  }
  WriteFile(directory_ + "/crossover.csv", table);
}

int Sweep::ExitStatus() const {
  if (probes_failed_) return kExitFailed;
  for (const PlannedCell& planned : plan_) {
    const auto done = done_.find(planned.cell.Name());
    if (done == done_.end()) continue;
    const std::string& status = done->second;
    const bool expected = status == "ok" || status == "skipped" ||
                          (status == "oom" && planned.memory_budget_bytes > 0);
    if (!expected) return kExitFailed;
  }
  return kExitOk;
}

void Sweep::Resume() {
  const SweepFlags now = flags_;
  const std::string path = UserPath(now.resume) + "/run.json";
  try {
    begun_ = ReadJson(path);
    const std::string difference = DifferenceOfMachines(begun_, machine_);
    if (!difference.empty()) {
      throw UsageError("--resume: the run was begun on another machine: " + difference);
    }
    flags_ = ResumedFlags(begun_.at("flags").get<std::vector<std::string>>(), machine_.cores, now);
  } catch (const json::exception& error) {
    throw UsageError("--resume: " + path + " is not as a sweep writes it: " + error.what());
  }
}

int Sweep::Run(const std::string& command) {
  if (!flags_.resume.empty()) Resume();
  Plan();
  if (!begun_.empty() && gpu_.description.is_object() &&
      begun_.value(ordered_json::json_pointer("/gpu/name"), "") != gpu_.description.at("name")) {
    throw UsageError("--resume: the run was begun without this GPU, " +
                     gpu_.description.at("name").get<std::string>());
  }
  for (const std::string& note : notes_) std::fprintf(stderr, "note: %s\n", note.c_str());
  if (plan_.empty()) {
    std::vector<std::string> all;
    for (const PlannedCell& planned : MakePlan(flags_.grids, "", Limits(), &notes_)) {
      all.push_back(planned.cell.Name());
    }
    std::string near;
    for (const std::string& name : NearNames(flags_.filter, all, 3)) near += "\n  " + name;
    if (flags_.filter.empty()) {
      std::fprintf(stderr, "sweep: part %lld of %lld has no cell\n",
                   static_cast<long long>(flags_.shard_index + 1),
                   static_cast<long long>(flags_.shard_count));
    } else {
      std::fprintf(stderr, "sweep: no cell matches --filter=%s; the nearest are:%s\n",
                   flags_.filter.c_str(), near.c_str());
    }
    return kExitNothing;
  }
  if (flags_.list) return PrintPlan();

  Open();
  const auto start = std::chrono::steady_clock::now();
  std::set<int64_t> threads;
  for (const PlannedCell& planned : plan_) threads.insert(planned.cell.setting().threads);
  peaks_ = MeasurePeaks(machine_, threads);
  info_ = DescribeRun(machine_, peaks_);
  if (UsesCuda()) {
    info_["gpu"] = gpu_.description;
    info_["cuda"] = gpu_.why_not.empty() ? gpu_.description["runtime"] : ordered_json(gpu_.why_not);
  }
  info_["experiment"] = flags_.experiment;
  info_["command"] = command;
  info_["flags"] = flags_.grid_flags;
  info_["notes"] = notes_;
  info_["started_utc"] = UtcNow("%Y-%m-%dT%H:%M:%SZ");
  if (!begun_.empty()) {
    // What the first call found stays; this one's command, peaks and warnings follow it.
    ordered_json resumed;
    for (const char* key : {"started_utc", "command", "git_revision", "fma_peak_gflops",
                            "bandwidth_gb_per_s", "warnings"}) {
      resumed[key] = info_[key];
    }
    if (begun_.value("git_revision", "") != info_["git_revision"]) {
      resumed["warnings"].push_back("the sources are not those that the run was begun with");
    }
    info_ = begun_;
    info_["resumed"].push_back(resumed);
    info_.erase("finished_utc");
  }
  const ordered_json& warnings =
      begun_.empty() ? info_["warnings"] : info_["resumed"].back()["warnings"];
  for (const auto& warning : warnings) {
    std::fprintf(stderr, "warning: %s\n", warning.get<std::string>().c_str());
  }
  // First, so that what there is of a run can always be gone on with.
  WriteRunInfo();
  results_ = std::make_unique<CsvAppender>(directory_ + "/results.csv", ColumnNames());
  if (UsesCuda() && gpu_.why_not.empty()) {
    device_figures_ =
        std::make_unique<CsvAppender>(directory_ + "/device.csv", DeviceFileColumns());
  }

  WarmUp();
  Calibrate();
  if (!Interrupted()) RunCells();
  const bool searches = std::any_of(flags_.grids.begin(), flags_.grids.end(), [](const Grid& grid) {
    return !grid.crossover_phases.empty();
  });
  if (searches && !Interrupted()) FindCrossovers();

  std::map<std::string, int64_t> counts;
  for (const auto& [name, status] : done_) ++counts[status];
  info_["cells"] = counts;
  info_["wall_s"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!Interrupted()) info_["finished_utc"] = UtcNow("%Y-%m-%dT%H:%M:%SZ");
  WriteRunInfo();
  if (Interrupted()) {
    std::fprintf(stderr, "sweep: stopped; all finished rows are kept, go on with --resume=%s\n",
                 directory_.c_str());
    return 128 + g_signal;
  }
  std::string summary;
  for (const auto& [status, count] : counts) {
    summary += (summary.empty() ? "" : ", ") + std::to_string(count) + " " + status;
  }
  std::printf("%s\n%s\n", summary.c_str(), directory_.c_str());
  return ExitStatus();
}

}  // namespace

int SweepMain(int argc, char** argv, const std::string& target) {
  std::signal(SIGINT, NoteSignal);
  std::signal(SIGTERM, NoteSignal);
  std::signal(SIGXFSZ, SIG_IGN);  // A file size limit is a write error like a full disk.
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    const Machine machine = ReadMachine();
    std::string help;
    std::optional<SweepFlags> flags = ParseSweepFlags(arguments, machine.cores, &help);
    if (!flags) {
      std::fputs(help.c_str(), stdout);
      return kExitOk;
    }
    return Sweep(*std::move(flags), machine, target).Run(CommandOf(target, argc, argv));
  } catch (const UsageError& error) {
    std::fprintf(stderr, "sweep: %s\n", error.what());
    return kExitUsage;
  } catch (const ShapeError& error) {
    std::fprintf(stderr, "sweep: %s\n", error.what());
    return kExitUsage;
  } catch (const WriteError& error) {
    std::fprintf(stderr, "sweep: %s; any rows written before are whole\n", error.what());
    return kExitWrite;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sweep: %s\n", error.what());
    return kExitFailed;
  }
}

}  // namespace ttbench
