// A linear layer set up to run one phase: its inputs, its parameters and its optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/reference.h"
#include "kernels/problem.h"
#include "kernels/variant.h"

namespace ttbench {

class LinearRun {
 public:
  // What a dense weight holds. Making the product takes longer than many a cell.
  enum class DenseWeight {
    kProduct,  // The product of the cores: every variant computes the same layer.
    kPattern,  // One row of values, repeated: for runs whose results nobody looks at.
  };
  // Makes x and the parameters from `seed` (benchmarks/inputs.h).
  LinearRun(const LinearVariant& variant, const LinearProblem& problem, uint64_t seed,
            DenseWeight dense_weight);
  ~LinearRun();

  at::Tensor Forward() const;
  // The gradient of y, made from the seed; with `rows`, zero except in those rows.
  at::Tensor MakeDy() const;
  at::Tensor MakeDy(const std::vector<int64_t>& rows) const;
  // Leaves the gradients in x and in the parameters.
  void Backward(const at::Tensor& y, const at::Tensor& dy) const;
  void ClearInputGradient();
  // The optimizer's update of the parameters; nothing in phases without one.
  void Step();
  void ClearGradients();

  // The largest error against the reference, relative to the largest element of the same tensor:
  // of y; and, after Backward() with MakeDy(reference.rows), of x's and every parameter's gradient.
  double ErrorOf(const at::Tensor& y, const LinearReference& reference) const;
  double ErrorOfGradients(const LinearReference& reference) const;

  const LinearVariant& variant() const { return variant_; }
  const LinearProblem& problem() const { return problem_; }
  const at::Tensor& x() const { return x_; }
  const std::vector<at::Tensor>& parameters() const { return parameters_; }

 private:
  struct Optimizer;
  const LinearVariant& variant_;
  LinearProblem problem_;
  uint64_t seed_;
  at::Tensor x_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace ttbench
