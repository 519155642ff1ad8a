// The training loop against what it should compute, and the same training by every variant: their
// losses may differ by rounding only, step by step, and a gradient that is off by a percent shows.
#include "networks/training/trainer.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/problem.h"
#include "kernels/scalar_type.h"
#include "kernels/variant.h"
#include "networks/text/corpus.h"
#include "networks/text/streams.h"

namespace ttbench {
namespace {

constexpr int64_t kBatch = 8, kLength = 16;

const Corpus& Kjv() {
  static const auto* corpus = new Corpus(ReadCorpus(std::getenv("KJV_TEXT")));
  return *corpus;
}

const Streams& TrainingText() {
  static const auto* streams = new Streams(Kjv().training, kBatch, kLength);
  return *streams;
}

// Two layers of 32 and 64, unequal modes and ranks, an adaptive softmax over the real vocabulary.
TransformerXlOptions Small(const std::string& variant) {
  TransformerXlOptions options;
  options.layers = 2;
  options.d_model = 32;
  options.heads = 2;
  options.d_head = 16;
  options.d_inner = 64;
  options.target_len = kLength;
  options.memory_len = kLength;
  options.vocabulary = Kjv().vocabulary.size();
  options.cutoffs = {500, 2000};
  options.feed_forward_variant = variant;
  if (!options.is_dense()) {
    options.up = TtShape({4, 2, 4}, {2, 8, 4}, {5, 6});
    options.down = TtShape({2, 8, 4}, {4, 2, 4}, {6, 5});
  }
  return options;
}

TransformerXl MakeSmall(const std::string& variant, at::ScalarType dtype = at::kDouble) {
  torch::manual_seed(7);
  TransformerXl start(Small(variant), at::kDouble);  // The same start in every precision.
  TransformerXl network(Small(variant), dtype);
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> from = start->parameters(), to = network->parameters();
  for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
  return network;
}

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() { at::set_num_threads(1); }
};

TEST_F(TrainerTest, TheRateRisesThenFallsAsACosine) {
  const Schedule schedule{0.8, 4, 11};
  EXPECT_DOUBLE_EQ(schedule.At(1), 0.2);
  EXPECT_DOUBLE_EQ(schedule.At(4), 0.8);
  EXPECT_DOUBLE_EQ(schedule.At(8), 0.4);  // Half of the 8 steps after the warm-up.
  EXPECT_NEAR(schedule.At(11), 0.8 * std::pow(std::sin(M_PI / 16), 2), 1e-15);
  EXPECT_DOUBLE_EQ((Schedule{0.8, 0, 3}.At(2)), 0.4);
}

TEST_F(TrainerTest, PositionWiseMatricesAreFoundByName) {
  for (const std::string variant : {"dense", "fused"}) {
    const TransformerXl network = MakeSmall(variant);
    int64_t elements = 0;
    for (const auto& parameter : network->named_parameters()) {
      if (IsFeedForward(parameter.key())) elements += parameter->numel();
    }
    EXPECT_EQ(elements, ParameterCounts(Small(variant)).feed_forward);
  }
}

// Kingma and Ba, "Adam", 2015, algorithm 1, on gradients shortened to kClipNorm; the second segment
// sees the memory of the first.
TEST_F(TrainerTest, AStepIsAdamsOnClippedGradients) {
  const Schedule schedule{0.01, 2, 10};
  TransformerXl network = MakeSmall("dense"), expected = MakeSmall("dense");
  Trainer trainer(network, schedule);
  std::vector<at::Tensor> parameters = expected->parameters(), m, v, memory;
  for (const at::Tensor& p : parameters) {
    m.push_back(at::zeros_like(p));
    v.push_back(at::zeros_like(p));
  }
  for (int64_t step = 1; step <= 3; ++step) {
    const Segment segment = TrainingText().At(step - 1);
    auto output = expected->forward(segment.tokens, segment.targets, memory);
    memory = output.memory;
    const at::Tensor loss = output.loss.mean();
    torch::autograd::backward({loss}, {});
    double squares = 0;
    for (const at::Tensor& p : parameters) squares += p.grad().square().sum().item<double>();
    const double norm = std::sqrt(squares);
    ASSERT_GT(norm, kClipNorm);

    const Trainer::Step done = trainer.Train(segment);
    EXPECT_NEAR(done.loss_nats, loss.item<double>(), 1e-12);
    EXPECT_NEAR(done.gradient_norm, norm, 1e-12 * norm);
    EXPECT_LT(done.feed_forward_gradient_norm, norm);
    EXPECT_GT(done.feed_forward_gradient_norm, 0);

    const at::NoGradGuard no_grad;
    const double rate = std::array{0.005, 0.01, schedule.At(3)}[step - 1];
    EXPECT_DOUBLE_EQ(done.learning_rate, rate);
    for (size_t i = 0; i < parameters.size(); ++i) {
      at::Tensor p = parameters[i];
      const at::Tensor gradient = p.grad() * (kClipNorm / norm);
      m[i] = 0.9 * m[i] + 0.1 * gradient;
      v[i] = 0.999 * v[i] + 0.001 * gradient.square();
      const double n = static_cast<double>(step);
      const at::Tensor direction =
          (m[i] / (1 - std::pow(0.9, n))) / ((v[i] / (1 - std::pow(0.999, n))).sqrt() + 1e-8);
      p.sub_(direction, rate);
      p.mutable_grad() = at::Tensor();
      const double off = (network->parameters()[i] - p).abs().max().item<double>();
      EXPECT_LE(off, 1e-10) << "parameter " << i << ", step " << step;
    }
  }
}

TEST_F(TrainerTest, MemoryIsCarriedUntilItIsForgotten) {
  auto second_loss = [](bool forget) {
    Trainer trainer(MakeSmall("dense"), {1e-3, 0, 10});
    trainer.Train(TrainingText().At(0));
    if (forget) trainer.Forget();
    return trainer.Train(TrainingText().At(1)).loss_nats;
  };
  EXPECT_GT(std::abs(second_loss(false) - second_loss(true)), 1e-6);
}

TEST_F(TrainerTest, EvaluationIsTheMeanOverSegmentsAndChangesNothing) {
  Trainer trainer(MakeSmall("fused"), {1e-3, 0, 10});
  trainer.Train(TrainingText().At(0));
  const Streams held_out(Kjv().held_out, kBatch, kLength);
  TransformerXl network = trainer.network();
  double nats = 0;
  std::vector<at::Tensor> memory;
  for (int64_t i = 0; i < 3; ++i) {
    const Segment segment = held_out.At(i);
    auto output = network->forward(segment.tokens, segment.targets, memory);
    memory = output.memory;
    nats += output.loss.mean().item<double>() / 3;
  }
  const double evaluated = trainer.Evaluate(held_out, 3);
  EXPECT_NEAR(evaluated, nats, 1e-12);
  EXPECT_EQ(trainer.Evaluate(held_out, 3), evaluated);
  Trainer other(MakeSmall("fused"), {1e-3, 0, 10});
  other.Train(TrainingText().At(0));
  EXPECT_EQ(trainer.Train(TrainingText().At(1)).loss_nats,
            other.Train(TrainingText().At(1)).loss_nats);
}

TEST_F(TrainerTest, ADenseNetworkThatStartsAlikeComputesTheSame) {
  TransformerXl dense = MakeSmall("dense"), compressed = MakeSmall("sequential");
  const Segment segment = TrainingText().At(0);
  auto off = [&] {
    const at::NoGradGuard no_grad;
    return (dense->forward(segment.tokens, segment.targets).loss -
            compressed->forward(segment.tokens, segment.targets).loss)
        .abs()
        .max()
        .item<double>();
  };
  EXPECT_GT(off(), 1e-3);
  StartAlike(dense, compressed);
  EXPECT_LE(off(), 1e-12);
}

TEST_F(TrainerTest, MovingChangesEveryElementOfTheCoresAlone) {
  constexpr double kRelative = 1e-5;
  TransformerXl network = MakeSmall("fused"), moved = MakeSmall("fused");
  MoveFeedForward(moved, kRelative, 3);
  const auto before = network->named_parameters(), after = moved->named_parameters();
  int64_t up = 0, down = 0;
  for (const auto& parameter : before) {
    const at::Tensor change = (after[parameter.key()] / parameter.value() - 1) / kRelative;
    if (!IsFeedForward(parameter.key())) {
      EXPECT_TRUE(parameter->equal(after[parameter.key()])) << parameter.key();
      continue;
    }
    EXPECT_LE((change.abs() - 1).abs().max().item<double>(), 1e-9) << parameter.key();
    up += change.gt(0).sum().item<int64_t>();
    down += change.lt(0).sum().item<int64_t>();
  }
  EXPECT_GT(up, 0);
  EXPECT_GT(down, 0);
}

// The same training by every variant.

constexpr int64_t kSteps = 12;
const Schedule kSchedule{2e-3, 4, kSteps};

struct History {
  std::vector<double> losses, norms;  // Of each step; of the gradients of the cores.
};

using Prepare = std::function<void(TransformerXl)>;

History TrainSmall(
    const std::string& variant, at::ScalarType dtype,
    const Prepare& prepare = [](TransformerXl) {}) {
  TransformerXl network = MakeSmall(variant, dtype);
  prepare(network);
  Trainer trainer(network, kSchedule);
  History history;
  for (int64_t step = 0; step < kSteps; ++step) {
    const Trainer::Step done = trainer.Train(TrainingText().At(step));
    history.losses.push_back(done.loss_nats);
    history.norms.push_back(done.feed_forward_gradient_norm);
  }
  return history;
}

// The largest relative difference up to each step.
std::vector<double> Deviations(const std::vector<double>& values,
                               const std::vector<double>& expected) {
  std::vector<double> deviations;
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(values[i] - expected[i]) / expected[i];
    largest = difference <= largest ? largest : difference;  // NaN is taken over.
    deviations.push_back(largest);
  }
  return deviations;
}

// The first step at which a deviation passes its bound, or the number of steps.
size_t FirstBeyond(const std::vector<double>& deviations, const std::vector<double>& bounds) {
  for (size_t i = 0; i < deviations.size(); ++i) {
    if (!(deviations[i] <= bounds[i])) return i;
  }
  return deviations.size();
}

// What every other training is measured against.
const History& Reference(DType dtype) {
  static const auto* histories =
      new std::map<DType, History>{{DType::kFloat64, TrainSmall("fused", at::kDouble)},
                                   {DType::kFloat32, TrainSmall("fused", at::kFloat)}};
  return histories->at(dtype);
}

// The most that a correct variant may be away from the reference up to each step: as
// plotting/training.py has it for //experiments:training. Controls, which are the reference started
// from cores that are off by what Tolerance() lets a correct layer's results be off, tell how far
// that takes losses and norms by this step; whatever grows from rounding is less by far at first,
// but later chance decides who is ahead.
std::vector<double> Bounds(DType dtype, std::vector<double> History::*what) {
  static const auto* controls = [] {
    auto* all = new std::map<DType, std::vector<History>>;
    const TransformerXlOptions options = Small("fused");
    for (const DType type : {DType::kFloat64, DType::kFloat32}) {
      const double off = std::max(Tolerance(*options.up, type), Tolerance(*options.down, type));
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        (*all)[type].push_back(TrainSmall("fused", ScalarTypeOf(type), [&](TransformerXl network) {
          MoveFeedForward(network, off, seed);
        }));
      }
    }
    return all;
  }();
  constexpr double kChance = 3;
  constexpr double kRoundings = 8;  // Of a loss or norm itself, from results that are equal.
  std::vector<double> bounds(kSteps);
  for (const History& control : controls->at(dtype)) {
    const std::vector<double> deviations = Deviations(control.*what, Reference(dtype).*what);
    for (size_t step = 0; step < bounds.size(); ++step) {
      bounds[step] = std::max(bounds[step], kChance * deviations[step]);
    }
  }
  for (double& bound : bounds) bound += kRoundings * UnitRoundoff(dtype);
  return bounds;
}

const std::array kWhats = {&History::losses, &History::norms};

TEST_F(TrainerTest, EveryVariantTrainsTheSame) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    // Else the bounds would allow what matters.
    EXPECT_LE(Bounds(dtype, &History::losses).back(), dtype == DType::kFloat64 ? 1e-12 : 1e-4);
    for (const auto& variant : LinearVariants()) {
      if (variant->is_dense() || !variant->RunsOn(Device::kCpu)) continue;
      SCOPED_TRACE(variant->name() + " " + Name(dtype));
      const History history = TrainSmall(variant->name(), ScalarTypeOf(dtype));
      for (const auto what : kWhats) {
        const std::vector<double> bounds = Bounds(dtype, what);
        const std::vector<double> deviations = Deviations(history.*what, Reference(dtype).*what);
        const size_t beyond = FirstBeyond(deviations, bounds);
        EXPECT_EQ(beyond, bounds.size())
            << (what == &History::losses ? "losses" : "norms") << ", step " << beyond << ": off by "
            << deviations[beyond] << ", allowed " << bounds[beyond];
      }
    }
  }
}

// The training of `fused` with one core's gradients spoiled.
History TrainSpoiled(const std::string& core, DType dtype,
                     const std::function<at::Tensor(const at::Tensor&)>& spoil) {
  return TrainSmall("fused", ScalarTypeOf(dtype), [&](TransformerXl network) {
    network->named_parameters()[core].register_hook(spoil);
  });
}

std::vector<std::string> Cores() {
  std::vector<std::string> names;
  for (const auto& parameter : MakeSmall("fused")->named_parameters()) {
    if (IsFeedForward(parameter.key())) names.push_back(parameter.key());
  }
  return names;
}

// Adam divides a gradient by its size: one that is too long by a percent, always, moves the losses
// through its epsilon and the clipping alone. In float64 they tell all the same, at the second
// step, which is the first after an update; in float32 the norms do, at the first step.
TEST_F(TrainerTest, AGradientThatIsTooLongByAPercentIsFoundAtOnce) {
  for (const std::string& core : Cores()) {
    SCOPED_TRACE(core);
    auto spoil = [](const at::Tensor& gradient) { return gradient * 1.01; };
    const History exact = TrainSpoiled(core, DType::kFloat64, spoil);
    EXPECT_EQ(FirstBeyond(Deviations(exact.losses, Reference(DType::kFloat64).losses),
                          Bounds(DType::kFloat64, &History::losses)),
              1u);
    const History single = TrainSpoiled(core, DType::kFloat32, spoil);
    EXPECT_EQ(FirstBeyond(Deviations(single.norms, Reference(DType::kFloat32).norms),
                          Bounds(DType::kFloat32, &History::norms)),
              0u);
  }
}

// Off by a percent of its own size in a random direction.
TEST_F(TrainerTest, AGradientThatPointsOffByAPercentIsFound) {
  for (const std::string& core : Cores()) {
    SCOPED_TRACE(core);
    auto spoil = [](const at::Tensor& gradient) {
      const at::Tensor direction = at::randn_like(gradient);
      return gradient + direction * (0.01 * gradient.norm() / direction.norm());
    };
    for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
      const History history = TrainSpoiled(core, dtype, spoil);
      size_t beyond = kSteps;
      for (const auto what : kWhats) {
        beyond = std::min(beyond, FirstBeyond(Deviations(history.*what, Reference(dtype).*what),
                                              Bounds(dtype, what)));
      }
      EXPECT_LT(beyond, dtype == DType::kFloat64 ? 2 : kSteps) << Name(dtype);
    }
  }
}

}  // namespace
}  // namespace ttbench
