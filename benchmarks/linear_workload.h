// The linear family as a workload.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/cell.h"
#include "benchmarks/workload.h"
#include "kernels/problem.h"
#include "kernels/variant.h"

namespace ttbench {

class LinearWorkload : public Workload {
 public:
  // The variant must outlive it. `rank` is as asked for; the shape's ranks may be clipped below it.
  LinearWorkload(const LinearVariant& variant, LinearProblem problem, int64_t rank = 0)
      : variant_(variant), problem_(std::move(problem)), rank_(rank) {}

  const char* family() const override { return "linear"; }
  std::string variant() const override { return variant_.name(); }
  std::string size_name() const override;
  std::string SizeFlags() const override;
  Setting setting() const override;
  std::string reference_key() const override;
  std::vector<std::pair<const char*, std::string>> SizeColumns() const override;
  std::string Algorithm() const override { return variant_.Algorithm(problem_); }
  std::string WhyUnsupported() const override { return variant_.WhyUnsupported(problem_); }
  std::string WhyPeaksUnmodelled() const override { return variant_.WhyPeaksUnmodelled(problem_); }
  double MaxError() const override { return Tolerance(problem_); }
  std::vector<LinearProblem> LinearLayers() const override { return {problem_}; }
  CellCost Predict() const override;
  double PredictSeconds(const CellCost& cost) const override;
  int64_t SetUpPeakBytes() const override;
  double SetUpTrafficBytes() const override;
  std::shared_ptr<const Workload> Baseline() const override;
  bool is_baseline() const override { return variant_.name() == kBaselineVariant; }
  std::string baseline_words() const override { return "the dense layer"; }
  std::shared_ptr<const Workload> AtBatch(int64_t batch) const override;
  std::unique_ptr<Reference> MakeReference(uint64_t seed) const override;
  std::unique_ptr<PhaseRun> MakeRun(uint64_t seed, bool checked) const override;

  bool is_dense() const { return variant_.is_dense(); }
  const LinearProblem& problem() const { return problem_; }

 private:
  const LinearVariant& variant_;
  LinearProblem problem_;
  int64_t rank_;
};

// A cell of a registered variant.
Cell LinearCell(const std::string& variant, const LinearProblem& problem, int64_t rank,
                const std::string& device = "cpu");
// The workload of a cell of this family.
const LinearWorkload& LinearOf(const Cell& cell);

}  // namespace ttbench
