#include "networks/training/trainer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/rand.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <utility>

namespace ttbench {

bool IsFeedForward(const std::string& parameter) {
  const size_t end = parameter.rfind('.');
  if (end == std::string::npos || parameter.compare(end, std::string::npos, ".bias") == 0) {
    return false;
  }
  return parameter.find(".up.") != std::string::npos ||
         parameter.find(".down.") != std::string::npos;
}

double Schedule::At(int64_t step) const {
  if (step <= warm_up_steps) {
    return learning_rate * static_cast<double>(step) / static_cast<double>(warm_up_steps);
  }
  const double done =
      static_cast<double>(step - warm_up_steps) / static_cast<double>(steps - warm_up_steps + 1);
  return learning_rate * (1 + std::cos(done * M_PI)) / 2;
}

Trainer::Trainer(TransformerXl network, const Schedule& schedule)
    : network_(std::move(network)),
      schedule_(schedule),
      optimizer_(network_->parameters(), torch::optim::AdamOptions(schedule.learning_rate)) {}

Trainer::Step Trainer::Train(const Segment& segment) {
  Step step;
  step.learning_rate = schedule_.At(++steps_);
  optimizer_.zero_grad();
  {
    TransformerXlImpl::Output output = network_->forward(segment.tokens, segment.targets, memory_);
    memory_ = std::move(output.memory);
    step.loss_nats = output.loss.detach().to(at::kDouble).mean().item<double>();
    torch::autograd::backward({output.loss.mean()}, {});
  }
  double squares = 0, feed_forward_squares = 0;
  for (const auto& parameter : network_->named_parameters()) {
    const at::Tensor& gradient = parameter.value().grad();
    if (!gradient.defined()) continue;
    const double norm = gradient.norm().item<double>();
    squares += norm * norm;
    if (IsFeedForward(parameter.key())) feed_forward_squares += norm * norm;
  }
  step.gradient_norm = std::sqrt(squares);
  step.feed_forward_gradient_norm = std::sqrt(feed_forward_squares);
  if (step.gradient_norm > kClipNorm) {
    for (const at::Tensor& parameter : network_->parameters()) {
      if (parameter.grad().defined()) parameter.mutable_grad().mul_(kClipNorm / step.gradient_norm);
    }
  }
  for (torch::optim::OptimizerParamGroup& group : optimizer_.param_groups()) {
    group.options().set_lr(step.learning_rate);
  }
  optimizer_.step();
  return step;
}

double Trainer::Evaluate(const Streams& text, int64_t segments) {
  const at::NoGradGuard no_grad;
  network_->eval();
  double nats = 0;
  std::vector<at::Tensor> memory;
  for (int64_t i = 0; i < segments; ++i) {
    const Segment segment = text.At(i);
    TransformerXlImpl::Output output = network_->forward(segment.tokens, segment.targets, memory);
    memory = std::move(output.memory);
    nats += output.loss.to(at::kDouble).mean().item<double>();
  }
  network_->train();
  return nats / static_cast<double>(segments);
}

void StartAlike(TransformerXl dense, TransformerXl compressed) {
  const at::NoGradGuard no_grad;
  auto parameters = dense->named_parameters();
  for (int64_t layer = 0; layer < dense->options().layers; ++layer) {
    const std::string prefix = "layer" + std::to_string(layer + 1) + ".";
    parameters[prefix + "up.weight"].copy_(compressed->up(layer)->to_dense());
    parameters[prefix + "down.weight"].copy_(compressed->down(layer)->to_dense());
  }
}

void MoveFeedForward(TransformerXl network, double relative, uint64_t seed) {
  const at::NoGradGuard no_grad;
  const at::Generator random = at::detail::createCPUGenerator(seed);
  for (const auto& parameter : network->named_parameters()) {
    if (!IsFeedForward(parameter.key())) continue;
    at::Tensor values = parameter.value();
    // In float64, so that a seed is the same change in every precision.
    const at::Tensor by = at::rand(values.sizes(), random, at::kDouble).sub_(0.5).sign_();
    values.mul_(by.mul_(relative).add_(1));
  }
}

}  // namespace ttbench
