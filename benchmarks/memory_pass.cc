#include "benchmarks/memory_pass.h"

#include <algorithm>
#include <iomanip>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

namespace ttbench {
namespace {

int64_t StorageBytes(const PhaseRun::Tensors& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.storage().nbytes());
  return bytes;
}

// The order in which buffers are released together says nothing: sorts each run of releases.
template <typename Event>
std::vector<Event> WithSortedReleases(std::vector<Event> events) {
  auto released = [](const Event& event) { return event.bytes < 0; };
  for (auto first = events.begin(); first != events.end();) {
    first = std::find_if(first, events.end(), released);
    const auto last = std::find_if_not(first, events.end(), released);
    std::stable_sort(first, last, [](const Event& a, const Event& b) { return a.bytes < b.bytes; });
    first = last;
  }
  return events;
}

// Both sequences, and the first place at which they differ; the length of the longer if none.
struct Sequences {
  Sequences(const MeasuredMemory& memory, const CellCost& cost)
      : measured(WithSortedReleases(memory.events)), model(WithSortedReleases(cost.events)) {
    while (parting < std::min(measured.size(), model.size()) &&
           measured[parting].bytes == model[parting].bytes) {
      ++parting;
    }
  }
  size_t size() const { return std::max(measured.size(), model.size()); }

  std::vector<MemoryMeter::Event> measured;
  std::vector<cost::Ledger::Event> model;
  size_t parting = 0;
};

std::string Signed(int64_t bytes) { return (bytes > 0 ? "+" : "") + std::to_string(bytes); }

std::string SiteOf(const MemoryMeter::Event& event) {
  return event.site.empty() ? "no operator" : event.site;
}

std::string Show(const MemoryMeter::Event& event) {
  return Signed(event.bytes) + " (" + SiteOf(event) + ")";
}

std::string Show(const cost::Ledger::Event& event) {
  return Signed(event.bytes) + " (" + event.name + ")";
}

}  // namespace

MeasuredMemory MeasureMemory(const Workload& workload, uint64_t seed, int64_t budget_bytes,
                             const Reference* reference) {
  const int64_t resident_before = ResidentBytes();
  const Phase phase = workload.setting().phase;
  MeasuredMemory measured;
  MemoryMeter meter;
  std::optional<DeviceMeter> device;
  if (workload.setting().device == Device::kCuda) device.emplace();
  auto live_bytes = [&] { return device ? device->live_bytes() : meter.live_bytes(); };
  auto peak_bytes = [&] { return device ? device->peak_bytes() : meter.peak_bytes(); };
  auto reset_peak = [&] { device ? device->ResetPeak() : meter.ResetPeak(); };
  const std::unique_ptr<PhaseRun> run = workload.MakeRun(seed, /*checked=*/reference != nullptr);
  if (!device) meter.SetBudget(budget_bytes);
  const int64_t weight_bytes = StorageBytes(run->parameters());
  const int64_t base_bytes = weight_bytes + StorageBytes(run->inputs());
  measured.bytes.weight = weight_bytes;
  const bool has_step = phase == Phase::kStepSgd || phase == Phase::kStepAdam;

  auto end_stage = [&](const char* stage, std::optional<int64_t>* stage_peak) {
    if (device) device->EndStage(stage);
    *stage_peak = peak_bytes() - base_bytes;
    measured.bytes.peak = std::max(measured.bytes.peak.value_or(0), peak_bytes());
    reset_peak();
  };
  ResultError error;
  auto iterate = [&] {
    measured.bytes.peak.reset();
    device ? device->BeginIteration() : meter.ResetPeak();
    const int64_t state_bytes = live_bytes() - base_bytes;
    PhaseRun::Tensors y = run->Forward();
    end_stage("forward", &measured.bytes.forward_peak);
    run->CheckResult(y);
    if (reference) error.Raise(run->ErrorOf(y, *reference));
    if (phase != Phase::kInference) {
      measured.bytes.held = live_bytes() - weight_bytes - state_bytes - StorageBytes(y);
      PhaseRun::Tensors dy = run->MakeDy(reference);
      run->Backward(y, dy);
      end_stage("backward", &measured.bytes.backward_peak);
      // Where y is wrong, gradients are too.
      if (reference && error.relative <= workload.MaxError())
        error.Raise(run->ErrorOfGradients(*reference));
      y.clear();
      dy.clear();
      run->ClearInputGradients();
      if (has_step) {
        reset_peak();
        run->Step();
        end_stage("step", &measured.bytes.step_peak);
      }
      run->ClearGradients();
    }
    y.clear();
    run->ReleaseBuffers();
  };
  if (has_step || device) iterate();
  ResetResidentPeak();
  if (device) {
    iterate();
    measured.reserved_peak_bytes = device->reserved_peak_bytes();
    measured.device = device->Figures();
  } else {
    meter.StartRecording();
    iterate();
    measured.events = meter.StopRecording();
    measured.leaks = meter.LiveOfRecording();
  }
  measured.max_relative_error = error.relative;
  measured.max_error_of = error.of;
  measured.rss_peak_bytes = std::max<int64_t>(ResidentPeakBytes() - resident_before, 0);
  return measured;
}

std::string CompareWithModel(const MeasuredMemory& measured, const CellCost& model,
                             bool with_peaks) {
  std::string differences;
  auto compare = [&](const char* name, std::optional<int64_t> got, std::optional<int64_t> want) {
    if (got == want) return;
    auto show = [](std::optional<int64_t> v) { return v ? std::to_string(*v) : "none"; };
    differences += std::string(" ") + name + " " + show(got) + " against " + show(want) + ";";
  };
  compare("weight", measured.bytes.weight, model.bytes.weight);
  compare("held", measured.bytes.held, model.bytes.held);
  if (with_peaks) {
    compare("forward peak", measured.bytes.forward_peak, model.bytes.forward_peak);
    compare("backward peak", measured.bytes.backward_peak, model.bytes.backward_peak);
    compare("step peak", measured.bytes.step_peak, model.bytes.step_peak);
    compare("peak", measured.bytes.peak, model.bytes.peak);
  }
  if (!measured.leaks.empty()) {
    int64_t bytes = 0;
    for (const MemoryMeter::Event& leak : measured.leaks) bytes += leak.bytes;
    return std::to_string(bytes) + " bytes outlive the iteration, the first by " +
           SiteOf(measured.leaks.front()) +
           ": what Forward() and the backward allocate has to be gone with y and the gradients";
  }
  if (differences.empty()) return "";
  const Sequences events(measured, model);
  std::string text = "measured bytes are not the model's:" + differences;
  if (!events.measured.empty() && events.parting < events.size()) {
    text +=
        " they part at allocation event " + std::to_string(events.parting + 1) + ": measured " +
        (events.parting < events.measured.size() ? Show(events.measured[events.parting]) : "none") +
        ", model " +
        (events.parting < events.model.size() ? Show(events.model[events.parting]) : "none");
  }
  if (!model.flaw.empty()) text += "; " + model.flaw;
  return text;
}

std::string ShowBesideModel(const MeasuredMemory& measured, const CellCost& model) {
  constexpr size_t kBefore = 12, kAfter = 24;
  const Sequences events(measured, model);
  const size_t first = events.parting - std::min(events.parting, kBefore);
  const size_t last = std::min(events.size(), events.parting + kAfter);
  std::ostringstream table;
  auto more = [&](size_t count) {
    if (count > 0) table << "  ... " << count << " more\n";
  };
  table << "  Allocated (+) and released (-) in one iteration, in bytes and in order:\n  "
        << std::setw(4) << ""
        << "  " << std::left << std::setw(44) << "   measured, by"
        << "|    the model's term\n";
  more(first);
  for (size_t i = first; i < last; ++i) {
    table << (i == events.parting ? "> " : "  ") << std::right << std::setw(4) << i + 1 << "  ";
    auto cell = [&](int64_t bytes, const std::string& name) {
      table << std::right << std::setw(12) << Signed(bytes) << "  " << std::left << std::setw(30)
            << name;
    };
    if (i < events.measured.size()) {
      cell(events.measured[i].bytes, SiteOf(events.measured[i]));
    } else {
      table << std::setw(44) << "";
    }
    table << "|";
    if (i < events.model.size()) {
      table << std::right << std::setw(12) << Signed(events.model[i].bytes) << "  "
            << events.model[i].name;
    }
    if (i == events.parting) table << "   <- they part here";
    table << "\n";
  }
  more(events.size() - last);
  return table.str();
}

}  // namespace ttbench
