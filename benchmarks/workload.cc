#include "benchmarks/workload.h"

#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <string>

namespace ttbench {

struct PhaseRun::Optimizer {
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

PhaseRun::PhaseRun() = default;
PhaseRun::~PhaseRun() = default;

void PhaseRun::MoveTo(at::Device device) {
  for (Tensors* tensors : {&inputs_, &parameters_})
    for (at::Tensor& tensor : *tensors) tensor = tensor.to(device);
}

void PhaseRun::Prepare(Phase phase) {
  if (phase == Phase::kInference) return;
  for (at::Tensor& input : inputs_) input.requires_grad_();
  for (at::Tensor& parameter : parameters_) parameter.requires_grad_();
  // The same operations as at any other rate, and the parameters stay as they were.
  constexpr double kLearningRate = 0;
  if (phase == Phase::kStepSgd) {
    optimizer_ = std::make_unique<Optimizer>();
    optimizer_->optimizer = std::make_unique<torch::optim::SGD>(parameters_, kLearningRate);
  } else if (phase == Phase::kStepAdam) {
    optimizer_ = std::make_unique<Optimizer>();
    optimizer_->optimizer = std::make_unique<torch::optim::Adam>(parameters_, kLearningRate);
  }
}

void PhaseRun::CheckResult(const Tensors& y) const {
  auto refuse_aliases = [&](const Tensors& tensors, const char* of) {
    for (const at::Tensor& part : y)
      for (const at::Tensor& tensor : tensors) {
        if (!part.is_alias_of(tensor)) continue;
        throw BrokenContract(std::string("y shares its memory with ") + of +
                             ": Forward() has to return a tensor of its own; clone() it");
      }
  };
  refuse_aliases(inputs_, "x");
  refuse_aliases(parameters_, "a parameter");
  for (const at::Tensor& part : y) {
    if (!part.is_contiguous()) {
      throw BrokenContract("y is not contiguous: end Forward() with contiguous() or reshape()");
    }
  }
}

void PhaseRun::Step() {
  if (optimizer_) optimizer_->optimizer->step();
}

void PhaseRun::ClearInputGradients() {
  for (at::Tensor& input : inputs_) input.mutable_grad() = at::Tensor();
}

void PhaseRun::ClearGradients() {
  ClearInputGradients();
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
}

}  // namespace ttbench
