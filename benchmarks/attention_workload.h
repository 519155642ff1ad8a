// The attention family as a workload.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/cell.h"
#include "benchmarks/workload.h"
#include "kernels/attention/problem.h"
#include "kernels/attention/variant.h"

namespace ttbench {

class AttentionWorkload : public Workload {
 public:
  // The variant must outlive it.
  AttentionWorkload(const AttentionVariant& variant, const AttentionProblem& problem)
      : variant_(variant), problem_(problem) {}

  const char* family() const override { return "attention"; }
  std::string variant() const override { return variant_.name(); }
  std::string size_name() const override { return SizeName(problem_); }
  std::string SizeFlags() const override;
  Setting setting() const override;
  std::string reference_key() const override;
  std::vector<std::pair<const char*, std::string>> SizeColumns() const override;
  std::string Algorithm() const override { return variant_.Algorithm(problem_); }
  std::string WhyUnsupported() const override { return variant_.WhySkipped(problem_); }
  double MaxError() const override { return Tolerance(problem_); }
  CellCost Predict() const override;
  double PredictSeconds(const CellCost& cost) const override;
  std::shared_ptr<const Workload> Baseline() const override;
  bool is_baseline() const override { return variant_.name() == kAttentionBaseline; }
  std::string baseline_words() const override { return kAttentionBaseline; }
  std::shared_ptr<const Workload> AtBatch(int64_t batch) const override;
  std::unique_ptr<Reference> MakeReference(uint64_t seed) const override;
  std::unique_ptr<PhaseRun> MakeRun(uint64_t seed, bool checked) const override;

 private:
  const AttentionVariant& variant_;
  AttentionProblem problem_;
};

// A cell of a registered variant, on this device whatever the problem says.
Cell AttentionCell(const std::string& variant, const AttentionProblem& problem,
                   const DeviceSettings& device = {});

}  // namespace ttbench
