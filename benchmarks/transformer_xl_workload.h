// The Transformer-XL family as a workload: the whole network, of which a variant of the linear
// family computes the position-wise layers.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/cell.h"
#include "benchmarks/workload.h"
#include "networks/transformer_xl/problem.h"

namespace ttbench {

inline constexpr const char* kTransformerXlFamily = "transformer-xl";

// The variants of the family: the baseline, then those of the linear family that take cores.
std::vector<std::string> TransformerXlVariants();

class TransformerXlWorkload : public Workload {
 public:
  // rank: as asked for, before clipping.
  TransformerXlWorkload(TransformerXlProblem problem, int64_t rank)
      : problem_(std::move(problem)), rank_(rank) {}

  const char* family() const override { return kTransformerXlFamily; }
  std::string variant() const override { return problem_.network.feed_forward_variant; }
  std::string size_name() const override { return SizeName(problem_); }
  std::string SizeFlags() const override;
  Setting setting() const override;
  std::string reference_key() const override;
  std::vector<std::pair<const char*, std::string>> SizeColumns() const override;
  std::string Algorithm() const override;
  std::string WhyUnsupported() const override;
  std::string WhyPeaksUnmodelled() const override;
  double MaxError() const override { return Tolerance(problem_); }
  // Its check, a network in float64, would take longer than the memory pass.
  bool checks_memory_alone() const override { return false; }
  std::vector<LinearProblem> LinearLayers() const override;
  CellCost Predict() const override;
  double PredictSeconds(const CellCost& cost) const override;
  double SetUpTrafficBytes() const override;
  std::shared_ptr<const Workload> Baseline() const override;
  bool is_baseline() const override { return problem_.network.is_dense(); }
  std::string baseline_words() const override { return "the dense network"; }
  std::shared_ptr<const Workload> AtBatch(int64_t batch) const override;
  std::unique_ptr<Reference> MakeReference(uint64_t seed) const override;
  std::unique_ptr<PhaseRun> MakeRun(uint64_t seed, bool checked) const override;

 private:
  TransformerXlProblem problem_;
  int64_t rank_;
};

Cell TransformerXlCell(const TransformerXlProblem& problem, int64_t rank,
                       const std::string& device = "cpu");

}  // namespace ttbench
