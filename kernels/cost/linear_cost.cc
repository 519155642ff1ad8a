#include "kernels/cost/linear_cost.h"

#include <string>
#include <utility>

namespace ttbench {
namespace {

using cost::Ledger;
using cost::Tape;
using cost::Tensor;
using cost::Term;

// torch::optim::Adam's buffers: two moments per parameter, made by the first step; in each update
// the square root and its quotient by the bias correction, and scalars.
class Adam {
 public:
  Adam(Ledger* ledger, int64_t element_bytes) : ledger_(ledger), element_bytes_(element_bytes) {}

  void Step(const std::vector<Tensor>& parameters) {
    for (const Tensor& parameter : parameters) {
      const std::string& name = parameter.name();
      const int64_t bytes = parameter.buffer()->bytes();
      if (state_.size() < 2 * parameters.size()) {
        state_.push_back(ledger_->Allocate("Adam's mean of " + name, bytes));
        state_.push_back(ledger_->Allocate("Adam's mean square of " + name, bytes));
      }
      Scalar();  // mean *= beta1
      Scalar();  // mean square *= beta2
      Ledger::Handle denominator;
      {
        const auto root = ledger_->Allocate("Adam's root for " + name, bytes);
        const auto correction = Scalar();
        denominator = ledger_->Allocate("Adam's denominator for " + name, bytes);
      }
      Scalar();  // denominator += epsilon
    }
  }

 private:
  // A number that an operator wraps into a float64 tensor, and then converts to the other operand's
  // type, for its own duration.
  std::pair<Ledger::Handle, Ledger::Handle> Scalar() {
    auto wrapped = ledger_->Allocate("scalar", 8);
    return {wrapped,
            ledger_->Allocate("scalar, converted", element_bytes_ == 8 ? 0 : element_bytes_)};
  }

  Ledger* ledger_;
  int64_t element_bytes_;
  std::vector<Ledger::Handle> state_;
};

}  // namespace

LinearCost PredictLinearCost(const LinearVariant& variant, const LinearProblem& problem) {
  const TtShape& shape = problem.shape;
  const bool train = problem.phase != Phase::kInference;
  LinearCost cost;
  Ledger ledger;
  Tape tape(&ledger, ElementBytes(problem.dtype), train, problem.threads);
  std::vector<Tensor> parameters;
  if (variant.is_dense()) {
    parameters.push_back(tape.Leaf("weight", {shape.out_features(), shape.in_features()}));
  } else {
    for (int64_t k = 0; k < shape.cores(); ++k) {
      parameters.push_back(tape.Leaf("G" + std::to_string(k + 1), shape.CoreSizes(k)));
    }
  }
  const int64_t weight_bytes = ledger.live_bytes();
  cost.bytes.weight = weight_bytes;
  const Tensor x = tape.Leaf("x", {problem.batch, shape.in_features()});
  const int64_t base_bytes = ledger.live_bytes();
  Adam adam(&ledger, ElementBytes(problem.dtype));

  auto end_stage = [&](std::optional<int64_t>* stage_peak) {
    *stage_peak = ledger.peak_bytes() - base_bytes;
    if (ledger.peak_bytes() > cost.bytes.peak.value_or(0)) {
      cost.bytes.peak = ledger.peak_bytes();
      cost.peak_terms = ledger.peak_terms();
    }
    ledger.ResetPeak();
  };
  auto iterate = [&] {
    cost.bytes.peak.reset();
    ledger.ResetPeak();
    const int64_t state_bytes = ledger.live_bytes() - base_bytes;
    const size_t alive_before = ledger.live_terms().size();
    Tensor y = variant.Trace(tape, shape, x, parameters);
    end_stage(&cost.bytes.forward_peak);
    if (!train) return;
    cost.bytes.held = ledger.live_bytes() - weight_bytes - state_bytes - y.buffer()->bytes();
    cost.held_terms = {{x.name(), x.buffer()->bytes()}};
    const std::vector<Term> alive = ledger.live_terms();
    for (size_t i = alive_before; i < alive.size(); ++i) {
      if (alive[i].name != y.name()) cost.held_terms.push_back(alive[i]);
    }
    Tensor dy = tape.Empty("dy", y.sizes());
    tape.RunBackward(y, dy);
    end_stage(&cost.bytes.backward_peak);
    y = Tensor();
    dy = Tensor();
    tape.ClearGradient(x);
    if (problem.phase == Phase::kStepSgd || problem.phase == Phase::kStepAdam) {
      ledger.ResetPeak();
      if (problem.phase == Phase::kStepAdam) adam.Step(parameters);
      end_stage(&cost.bytes.step_peak);
    }
    tape.ClearGradients();
  };
  // The first step makes the optimizer's state; the second is what every later one is.
  if (problem.phase == Phase::kStepSgd || problem.phase == Phase::kStepAdam) iterate();
  const size_t events_before = ledger.events().size();
  const int64_t flops_before = tape.flops();
  const int64_t allocated_before = ledger.allocated_bytes();
  iterate();
  cost.flops = tape.flops() - flops_before;
  cost.allocated_bytes = ledger.allocated_bytes() - allocated_before;
  cost.events.assign(ledger.events().begin() + static_cast<std::ptrdiff_t>(events_before),
                     ledger.events().end());
  return cost;
}

}  // namespace ttbench
