#include "kernels/cost/cell_cost.h"

#include <algorithm>
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

CellCost PredictCellCost(Phase phase, DType dtype, int64_t threads,
                         const std::function<TracedCell(cost::Tape& tape)>& make) {
  const bool train = phase != Phase::kInference;
  const bool has_step = phase == Phase::kStepSgd || phase == Phase::kStepAdam;
  CellCost cost;
  Ledger ledger;
  Tape tape(&ledger, ElementBytes(dtype), train, threads);
  const TracedCell cell = make(tape);
  int64_t weight_bytes = 0;
  for (const Tensor& parameter : cell.parameters) weight_bytes += parameter.buffer()->bytes();
  cost.bytes.weight = weight_bytes;
  const int64_t base_bytes = ledger.live_bytes();
  Adam adam(&ledger, ElementBytes(dtype));

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
    std::vector<Tensor> y = cell.forward();
    end_stage(&cost.bytes.forward_peak);
    if (train) {
      cost.bytes.held = ledger.live_bytes() - weight_bytes - state_bytes;
      cost.held_terms.clear();
      for (const Tensor& input : cell.inputs)
        cost.held_terms.push_back({input.name(), input.buffer()->bytes()});
      const std::vector<Term> alive = ledger.live_terms();
      cost.held_terms.insert(cost.held_terms.end(),
                             alive.begin() + static_cast<std::ptrdiff_t>(alive_before),
                             alive.end());
      for (const Tensor& part : y) {
        *cost.bytes.held -= part.buffer()->bytes();
        for (auto term = cost.held_terms.begin(); term != cost.held_terms.end(); ++term) {
          if (term->name != part.name() || term->bytes != part.buffer()->bytes()) continue;
          cost.held_terms.erase(term);
          break;
        }
      }
      std::vector<Tensor> dy;
      for (const Tensor& part : y) dy.push_back(tape.Empty("dy", part.sizes()));
      const bool has_history =
          std::all_of(y.begin(), y.end(), [](const Tensor& part) { return part.requires_grad(); });
      if (cell.backward) {
        cell.backward(y, dy);
      } else if (!has_history) {
        cost.flaw =
            "the model's y has no history, so it has no backward: make it from x and the "
            "parameters by the tape's operators";
      } else {
        tape.RunBackward(y, dy);
      }
      end_stage(&cost.bytes.backward_peak);
      y.clear();
      dy.clear();
      for (const Tensor& input : cell.inputs) tape.ClearGradient(input);
      if (has_step) {
        ledger.ResetPeak();
        if (phase == Phase::kStepAdam) adam.Step(cell.parameters);
        end_stage(&cost.bytes.step_peak);
      }
      tape.ClearGradients();
    }
    y.clear();
    if (cell.release) cell.release();
  };
  // The first step makes the optimizer's state; the second is what every later one is.
  if (has_step) iterate();
  const size_t events_before = ledger.events().size(), copies_before = tape.copies().size();
  const int64_t flops_before = tape.flops();
  const int64_t allocated_before = ledger.allocated_bytes();
  iterate();
  cost.flops = tape.flops() - flops_before;
  cost.allocated_bytes = ledger.allocated_bytes() - allocated_before;
  cost.events.assign(ledger.events().begin() + static_cast<std::ptrdiff_t>(events_before),
                     ledger.events().end());
  cost.copies.assign(tape.copies().begin() + static_cast<std::ptrdiff_t>(copies_before),
                     tape.copies().end());
  for (cost::CopyRecord& copy : cost.copies) {
    copy.source_event -= static_cast<int64_t>(events_before);
    copy.target_event -= static_cast<int64_t>(events_before);
  }
  return cost;
}

}  // namespace ttbench
