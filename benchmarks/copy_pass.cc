#include "benchmarks/copy_pass.h"

#include <algorithm>
#include <memory>

#include "benchmarks/memory_meter.h"

namespace ttbench {
namespace {

std::string Show(int64_t bytes, int64_t source_event, int64_t target_event,
                 const std::string& what) {
  auto buffer = [](int64_t event) {
    return event < 0 ? "what was given" : "buffer " + std::to_string(event + 1);
  };
  return std::to_string(bytes) + " bytes from " + buffer(source_event) + " into " +
         buffer(target_event) + " (" + what + ")";
}

std::string Show(const RecordedCopy& copy) {
  std::string chain;
  for (const std::string& op : copy.chain) chain += (chain.empty() ? "" : ": ") + op;
  return Show(copy.bytes, copy.source_event, copy.target_event, chain);
}

std::string Show(const cost::CopyRecord& copy) {
  return Show(copy.bytes, copy.source_event, copy.target_event, copy.target);
}

bool AreSame(const RecordedCopy& measured, const cost::CopyRecord& model) {
  return measured.bytes == model.bytes && measured.target_event == model.target_event &&
         measured.source_event == std::max<int64_t>(model.source_event, -1);
}

}  // namespace

MeasuredCopies MeasureCopies(const Workload& workload, uint64_t seed) {
  MemoryMeter meter;
  const std::unique_ptr<PhaseRun> run = workload.MakeRun(seed, /*checked=*/false);
  meter.StartRecording();
  CopyRecorder recorder(meter, run->inputs(), run->parameters());
  const PhaseRun::Tensors y = run->Forward();
  recorder.EndForward(y);
  if (workload.setting().phase != Phase::kInference) {
    const PhaseRun::Tensors dy = run->MakeDy(nullptr);
    recorder.BeginBackward(dy);
    run->Backward(y, dy);
    recorder.EndBackward();
  }
  return {recorder.copies(), recorder.scratch(), recorder.computed_bytes(),
          recorder.computed_flops()};
}

std::string CompareCopies(const MeasuredCopies& measured, const CellCost& model) {
  const size_t count = std::max(measured.copies.size(), model.copies.size());
  for (size_t i = 0; i < count; ++i) {
    const bool in_both = i < measured.copies.size() && i < model.copies.size();
    if (in_both && AreSame(measured.copies[i], model.copies[i])) continue;
    return "copy " + std::to_string(i + 1) + " is not the model's: measured " +
           (i < measured.copies.size() ? Show(measured.copies[i]) : "none") + ", model " +
           (i < model.copies.size() ? Show(model.copies[i]) : "none");
  }
  return "";
}

}  // namespace ttbench
