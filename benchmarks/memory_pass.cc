#include "benchmarks/memory_pass.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "benchmarks/memory_meter.h"

namespace ttbench {
namespace {

int64_t StorageBytes(const PhaseRun::Tensors& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.storage().nbytes());
  return bytes;
}

// The order in which buffers are released together says nothing: sort each run of releases.
template <typename Events, typename Bytes>
void SortReleases(Events* events, Bytes bytes) {
  auto released = [&](const auto& event) { return bytes(event) < 0; };
  for (auto first = events->begin(); first != events->end();) {
    first = std::find_if(first, events->end(), released);
    const auto last = std::find_if_not(first, events->end(), released);
    std::sort(first, last, [&](const auto& a, const auto& b) { return bytes(a) < bytes(b); });
    first = last;
  }
}

std::string Signed(int64_t bytes) { return (bytes > 0 ? "+" : "") + std::to_string(bytes); }

}  // namespace

MeasuredMemory MeasureMemory(const Workload& workload, uint64_t seed, int64_t budget_bytes,
                             const Reference* reference) {
  const int64_t resident_before = ResidentBytes();
  const Phase phase = workload.setting().phase;
  MeasuredMemory measured;
  MemoryMeter meter;
  const std::unique_ptr<PhaseRun> run = workload.MakeRun(seed, /*checked=*/reference != nullptr);
  meter.SetBudget(budget_bytes);
  const int64_t weight_bytes = StorageBytes(run->parameters());
  const int64_t base_bytes = weight_bytes + StorageBytes(run->inputs());
  measured.bytes.weight = weight_bytes;
  const bool has_step = phase == Phase::kStepSgd || phase == Phase::kStepAdam;

  auto end_stage = [&](std::optional<int64_t>* stage_peak) {
    *stage_peak = meter.peak_bytes() - base_bytes;
    measured.bytes.peak = std::max(measured.bytes.peak.value_or(0), meter.peak_bytes());
    meter.ResetPeak();
  };
  auto iterate = [&] {
    measured.bytes.peak.reset();
    meter.ResetPeak();
    const int64_t state_bytes = meter.live_bytes() - base_bytes;
    PhaseRun::Tensors y = run->Forward();
    end_stage(&measured.bytes.forward_peak);
    auto note_error = [&](double error) {
      measured.max_relative_error = std::max(measured.max_relative_error, error);
    };
    if (reference) note_error(run->ErrorOf(y, *reference));
    if (phase != Phase::kInference) {
      measured.bytes.held = meter.live_bytes() - weight_bytes - state_bytes - StorageBytes(y);
      PhaseRun::Tensors dy = run->MakeDy(reference);
      run->Backward(y, dy);
      end_stage(&measured.bytes.backward_peak);
      if (reference) note_error(run->ErrorOfGradients(*reference));
      y.clear();
      dy.clear();
      run->ClearInputGradients();
      if (has_step) {
        meter.ResetPeak();
        run->Step();
        end_stage(&measured.bytes.step_peak);
      }
      run->ClearGradients();
    }
    y.clear();
    run->ReleaseBuffers();
  };
  if (has_step) iterate();
  ResetResidentPeak();
  meter.StartRecording();
  iterate();
  measured.events = meter.StopRecording();
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
  if (differences.empty()) return "";
  std::string text = "measured bytes are not the model's:" + differences;

  std::vector<int64_t> got = measured.events;
  std::vector<cost::Ledger::Event> want = model.events;
  SortReleases(&got, [](int64_t bytes) { return bytes; });
  SortReleases(&want, [](const cost::Ledger::Event& event) { return event.bytes; });
  for (size_t i = 0; i < std::max(got.size(), want.size()); ++i) {
    if (i < got.size() && i < want.size() && got[i] == want[i].bytes) continue;
    text += " they part at allocation event " + std::to_string(i + 1) + ": measured " +
            (i < got.size() ? Signed(got[i]) : "none") + ", model " +
            (i < want.size() ? Signed(want[i].bytes) + " (" + want[i].name + ")" : "none");
    break;
  }
  return text;
}

}  // namespace ttbench
