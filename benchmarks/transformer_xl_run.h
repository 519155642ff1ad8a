// A Transformer-XL set up to run one phase on one segment, and what it must give.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarks/workload.h"
#include "networks/transformer_xl/problem.h"
#include "networks/transformer_xl/transformer_xl.h"

namespace ttbench {

// The network in float64, dense with the matrices that the cores stand for, on the first and the
// last sequence of the batch: sequences do not see each other, so with no gradient of the other
// losses the parameters' gradients are the whole batch's.
struct TransformerXlReference : Reference {
  std::vector<int64_t> rows;          // Sequences, sorted.
  at::Tensor loss;                    // [T, rows]
  std::vector<at::Tensor> gradients;  // Of all parameters; of the embedding, its checked rows.
};

class TransformerXlRun : public PhaseRun {
 public:
  // Makes memory and parameters from `seed` (benchmarks/inputs.h); words are the problem's.
  TransformerXlRun(const TransformerXlProblem& problem, uint64_t seed);

  Tensors Forward() override;
  Tensors MakeDy(const Reference* reference) const override;
  void Backward(const Tensors& y, const Tensors& dy) override;
  // The memory for the next segment.
  void ReleaseBuffers() override { memory_.clear(); }
  // Against a TransformerXlReference.
  ResultError ErrorOf(const Tensors& y, const Reference& reference) const override;
  ResultError ErrorOfGradients(const Reference& reference) const override;

 private:
  TransformerXlProblem problem_;
  uint64_t seed_;
  TransformerXl model_;
  at::Tensor tokens_, targets_;
  std::vector<at::Tensor> given_memory_, memory_;
};

// Of the very inputs that TransformerXlRun makes from this seed. Computes in one thread.
TransformerXlReference MakeTransformerXlReference(const TransformerXlProblem& problem,
                                                  uint64_t seed);

}  // namespace ttbench
