// A decoder's attention over a sequence, set up to run one phase, and what it must give.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/workload.h"
#include "kernels/attention/oracle.h"
#include "kernels/attention/problem.h"
#include "kernels/attention/variant.h"

namespace ttbench {

// The oracle on the first, the middle and the last row of the batch: rows do not see each other, so
// with no gradient of y elsewhere the parameters' gradients are the whole batch's.
struct AttentionReference : Reference {
  std::vector<int64_t> rows;  // Of the batch, sorted.
  AttentionOracleResult oracle;
};

class AttentionRun : public PhaseRun {
 public:
  // Makes inputs and parameters from `seed` (benchmarks/inputs.h).
  AttentionRun(const AttentionVariant& variant, const AttentionProblem& problem, uint64_t seed);

  Tensors Forward() override;
  Tensors MakeDy(const Reference* reference) const override;
  void Backward(const Tensors& y, const Tensors& dy) override { pass_->Backward(y, dy); }
  void ReleaseBuffers() override { pass_->Release(); }
  // Against an AttentionReference.
  ResultError ErrorOf(const Tensors& y, const Reference& reference) const override;
  ResultError ErrorOfGradients(const Reference& reference) const override;

 private:
  AttentionProblem problem_;
  uint64_t seed_;
  std::unique_ptr<AttentionPass<at::Tensor>> pass_;
};

// Of the very inputs that AttentionRun makes from this seed.
AttentionReference MakeAttentionReference(const AttentionVariant& variant,
                                          const AttentionProblem& problem, uint64_t seed);

}  // namespace ttbench
