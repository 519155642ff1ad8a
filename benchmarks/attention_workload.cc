#include "benchmarks/attention_workload.h"

#include "benchmarks/attention_run.h"
#include "kernels/attention/attention_cost.h"

namespace ttbench {

std::string AttentionWorkload::SizeFlags() const {
  return "--source-len=" + std::to_string(problem_.source_len) +
         " --target-len=" + std::to_string(problem_.target_len) +
         " --hidden=" + std::to_string(problem_.hidden) +
         " --layers=" + std::to_string(problem_.layers);
}

Setting AttentionWorkload::setting() const {
  return {problem_.batch, problem_.phase, problem_.dtype, problem_.threads, problem_.device};
}

std::string AttentionWorkload::reference_key() const {
  const bool gradients = problem_.phase != Phase::kInference;
  return SizeName(problem_) + "/" + std::to_string(problem_.batch) +
         (variant_.is_additive() ? "/additive" : "") + (gradients ? "/gradients" : "");
}

std::vector<std::pair<const char*, std::string>> AttentionWorkload::SizeColumns() const {
  return {{"source_len", std::to_string(problem_.source_len)},
          {"target_len", std::to_string(problem_.target_len)},
          {"hidden", std::to_string(problem_.hidden)},
          {"layers", std::to_string(problem_.layers)}};
}

CellCost AttentionWorkload::Predict() const { return PredictAttentionCost(variant_, problem_); }

double AttentionWorkload::PredictSeconds(const CellCost& cost) const {
  // What a core moves when a buffer is written and read again, and what LibTorch takes for the
  // operators of a step, forward and backward, however small.
  constexpr double kBytesPerSecond = 4e9, kSecondsPerStep = 3e-4;
  const double precision = problem_.dtype == DType::kFloat64 ? 2 : 1;
  return kSecondsPerStep * static_cast<double>(problem_.target_len) +
         precision * static_cast<double>(cost.flops) /
             (variant_.planning_gflops() * 1e9 * static_cast<double>(problem_.threads)) +
         static_cast<double>(cost.allocated_bytes) / kBytesPerSecond;
}

std::shared_ptr<const Workload> AttentionWorkload::Baseline() const {
  return std::make_shared<AttentionWorkload>(*FindAttentionVariant(kAttentionBaseline), problem_);
}

std::shared_ptr<const Workload> AttentionWorkload::AtBatch(int64_t batch) const {
  AttentionProblem problem = problem_;
  problem.batch = batch;
  return std::make_shared<AttentionWorkload>(variant_, problem);
}

std::unique_ptr<Reference> AttentionWorkload::MakeReference(uint64_t seed) const {
  return std::make_unique<AttentionReference>(MakeAttentionReference(variant_, problem_, seed));
}

std::unique_ptr<PhaseRun> AttentionWorkload::MakeRun(uint64_t seed, bool) const {
  return std::make_unique<AttentionRun>(variant_, problem_, seed);
}

Cell AttentionCell(const std::string& variant, const AttentionProblem& problem,
                   const DeviceSettings& device) {
  AttentionProblem on_device = problem;
  on_device.device = device.device;
  on_device.tf32 = device.tf32;
  return {std::make_shared<AttentionWorkload>(*FindAttentionVariant(variant), on_device), device};
}

}  // namespace ttbench
