// A linear layer set up to run one phase.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "benchmarks/workload.h"
#include "kernels/problem.h"
#include "kernels/variant.h"

namespace ttbench {

class LinearRun : public PhaseRun {
 public:
  // What a dense weight holds. Making the product takes longer than many a cell.
  enum class DenseWeight {
    kProduct,  // The product of the cores: every variant computes the same layer.
    kPattern,  // One row of values, repeated: for runs whose results nobody looks at.
  };
  // Makes x and the parameters from `seed` (benchmarks/inputs.h).
  LinearRun(const LinearVariant& variant, const LinearProblem& problem, uint64_t seed,
            DenseWeight dense_weight);

  // Of one tensor, y [B, M].
  Tensors Forward() override;
  Tensors MakeDy(const Reference* reference) const override;
  void Backward(const Tensors& y, const Tensors& dy) override;
  // Of x's type and of the layer's sizes too, and with a history where there is a backward.
  void CheckResult(const Tensors& y) const override;
  // Against a LinearReference. Throws BrokenContract where a gradient is missing.
  ResultError ErrorOf(const Tensors& y, const Reference& reference) const override;
  ResultError ErrorOfGradients(const Reference& reference) const override;

 private:
  const at::Tensor& x() const { return inputs_.front(); }

  const LinearVariant& variant_;
  LinearProblem problem_;
  uint64_t seed_;
};

}  // namespace ttbench
