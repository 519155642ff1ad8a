// What a cell computes, as measuring sees it: a variant of some family on one problem. Each family
// has one implementation (linear_workload.h, attention_workload.h); nothing else here knows
// families apart, but for the flags that name their sizes and the search for crossovers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cost/cell_cost.h"
#include "kernels/problem.h"

namespace ttbench {

// What every family's problems have.
struct Setting {
  int64_t batch = 1;
  Phase phase = Phase::kInference;
  DType dtype = DType::kFloat32;
  int64_t threads = 1;
};

// What a cell's results must be, on a few rows of the very inputs that the cell runs on; the
// gradient of y is zero outside those rows. The family's own (reference.h, attention_run.h).
class Reference {
 public:
  virtual ~Reference() = default;
};

// How far results are from the reference: the largest error of a tensor, relative to the tensor's
// largest element, and which tensor it is of: "y", "the gradient of core 2".
struct ResultError {
  double relative = 0;
  std::string of;

  // Takes over the other if that is larger.
  void Raise(const ResultError& other) {
    if (other.relative > relative) *this = other;
  }
};

// A variant that breaks its contract: what() is one sentence that says what to do.
class BrokenContract : public std::logic_error {
  using std::logic_error::logic_error;
};

// A problem set up to run one phase: its inputs, its parameters and its optimizer.
class PhaseRun {
 public:
  using Tensors = std::vector<at::Tensor>;

  PhaseRun();
  virtual ~PhaseRun();
  PhaseRun(const PhaseRun&) = delete;
  PhaseRun& operator=(const PhaseRun&) = delete;

  virtual Tensors Forward() = 0;
  // The gradients of y, from the seed; with a reference, zero except in its rows.
  virtual Tensors MakeDy(const Reference* reference) const = 0;
  // Leaves the gradients in the inputs and in the parameters.
  virtual void Backward(const Tensors& y, const Tensors& dy) = 0;
  // The optimizer's update of the parameters; nothing in phases without one.
  void Step();
  void ClearInputGradients();
  void ClearGradients();
  // Frees what the variant keeps from one iteration to the next, if it does: the memory pass counts
  // it as the iteration's own; timing leaves it there.
  virtual void ReleaseBuffers() {}

  // Throws BrokenContract where y is not what Forward() has to return: contiguous, and sharing
  // memory with no input and no parameter.
  virtual void CheckResult(const Tensors& y) const;

  // The largest error against the reference: of y; and, after Backward() with MakeDy(reference), of
  // the inputs' and parameters' gradients.
  virtual ResultError ErrorOf(const Tensors& y, const Reference& reference) const = 0;
  virtual ResultError ErrorOfGradients(const Reference& reference) const = 0;

  const Tensors& inputs() const { return inputs_; }
  const Tensors& parameters() const { return parameters_; }

 protected:
  // Once inputs and parameters are made: they ask for gradients, and the optimizer is set up.
  void Prepare(Phase phase);

  Tensors inputs_, parameters_;

 private:
  struct Optimizer;
  std::unique_ptr<Optimizer> optimizer_;
};

class Workload {
 public:
  virtual ~Workload() = default;

  // Parts of the cell's name (cell.h), and the flags that say the same.
  virtual const char* family() const = 0;
  virtual std::string variant() const = 0;
  virtual std::string size_name() const = 0;
  virtual std::string SizeFlags() const = 0;
  virtual Setting setting() const = 0;
  // The same for all workloads that share inputs, and with them the reference.
  virtual std::string reference_key() const = 0;
  // Columns of the result table that say the sizes.
  virtual std::vector<std::pair<const char*, std::string>> SizeColumns() const = 0;

  virtual std::string Algorithm() const = 0;
  // Reasons for the result row; "" if there are none.
  virtual std::string WhyUnsupported() const = 0;
  virtual std::string WhyPeaksUnmodelled() const { return ""; }
  // The largest error that a PhaseRun may find.
  virtual double MaxError() const = 0;
  // Whether results are checked where memory alone is measured.
  virtual bool checks_memory_alone() const { return true; }
  // Layers of the linear family that the variant computes, for which `auto` wants measured rates.
  virtual std::vector<LinearProblem> LinearLayers() const { return {}; }

  // Throws ShapeError if a count passes 64 bits.
  virtual CellCost Predict() const = 0;
  // Seconds that one run of the phase is expected to take, from what Predict() gave. For planning
  // only.
  virtual double PredictSeconds(const CellCost& cost) const = 0;
  // Most bytes alive while inputs and parameters of the workload and its baseline are made, and
  // bytes written and read meanwhile. For planning only.
  virtual int64_t SetUpPeakBytes() const { return 0; }
  virtual double SetUpTrafficBytes() const { return 0; }

  // What ratios are taken against, on the same problem; another of the same where it is that.
  virtual std::shared_ptr<const Workload> Baseline() const = 0;
  virtual bool is_baseline() const = 0;
  // How a reason calls it.
  virtual std::string baseline_words() const = 0;
  virtual std::shared_ptr<const Workload> AtBatch(int64_t batch) const = 0;

  virtual std::unique_ptr<Reference> MakeReference(uint64_t seed) const = 0;
  // `checked`: results will be compared with the reference; otherwise nobody looks at them, and
  // what takes long to make may be simpler.
  virtual std::unique_ptr<PhaseRun> MakeRun(uint64_t seed, bool checked) const = 0;
};

}  // namespace ttbench
