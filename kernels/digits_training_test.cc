// Training on real data: a small network whose hidden layers are TtLinear learns the 8x8 images of
// handwritten digits that scikit-learn ships (E. Alpaydin and C. Kaynak, UCI Machine Learning
// Repository). Every variant of cores starts from the same parameters and sees the same batches:
// their losses may differ by rounding only, step by step to the end, and so may what they learn.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/problem.h"
#include "kernels/tt_linear.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

constexpr int64_t kPixels = 64, kClasses = 10;

struct Digits {
  at::Tensor pixels;   // [images, 64], in [0, 1]; float64.
  at::Tensor classes;  // [images]
};

// Lines of 64 pixels, 0 to 16, and the digit.
Digits ReadDigits() {
  std::vector<double> pixels;
  std::vector<int64_t> classes;
  std::ifstream file(std::getenv("DIGITS_CSV"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::vector<double> values;
    for (std::string field; std::getline(fields, field, ',');) values.push_back(std::stod(field));
    if (values.size() != kPixels + 1) throw std::runtime_error("not an image: " + line);
    for (int64_t i = 0; i < kPixels; ++i) pixels.push_back(values[i] / 16);
    classes.push_back(static_cast<int64_t>(values.back()));
  }
  const int64_t images = static_cast<int64_t>(classes.size());
  Digits digits{at::empty({images, kPixels}, at::kDouble), at::empty({images}, at::kLong)};
  std::copy(pixels.begin(), pixels.end(), digits.pixels.mutable_data_ptr<double>());
  std::copy(classes.begin(), classes.end(), digits.classes.mutable_data_ptr<int64_t>());
  return digits;
}

const Digits& AllDigits() {
  static const auto* digits = new Digits(ReadDigits());
  return *digits;
}

// Every fifth image is held out.
Digits Split(bool held_out) {
  std::vector<int64_t> images;
  for (int64_t i = 0; i < AllDigits().classes.size(0); ++i) {
    if ((i % 5 == 4) == held_out) images.push_back(i);
  }
  const at::Tensor index = at::empty({static_cast<int64_t>(images.size())}, at::kLong);
  std::copy(images.begin(), images.end(), index.mutable_data_ptr<int64_t>());
  return {AllDigits().pixels.index_select(0, index), AllDigits().classes.index_select(0, index)};
}

// 64 -> 64 -> 128 -> 10, of two TT layers of unequal modes and ranks and a dense one. Smooth: with
// ReLU, a unit within a rounding of zero turns that rounding into a jump of its gradient.
struct Network {
  explicit Network(at::ScalarType dtype)
      : first(TtShape({4, 2, 8}, {2, 8, 4}, {3, 5}), TtLinearOptions().bias(true).dtype(dtype)),
        second(TtShape({4, 4, 4}, {8, 4, 4}, {6, 4}), TtLinearOptions().bias(true).dtype(dtype)),
        weight(at::randn({kClasses, 128}, dtype).mul_(1 / std::sqrt(128.0))),
        bias(at::zeros({kClasses}, dtype)) {
    weight.requires_grad_();
    bias.requires_grad_();
  }

  // The same start in every precision.
  static Network Fresh(at::ScalarType dtype) {
    torch::manual_seed(5);
    const Network start(at::kDouble);
    Network network(dtype);
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> from = start.Parameters(), to = network.Parameters();
    for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
    return network;
  }

  // The cores of `first` and `second` come first.
  std::vector<at::Tensor> Parameters() const {
    std::vector<at::Tensor> all = first->cores();
    all.insert(all.end(), second->cores().begin(), second->cores().end());
    for (const at::Tensor& other : {first->bias(), second->bias(), weight, bias}) {
      all.push_back(other);
    }
    return all;
  }

  at::Tensor Scores(const at::Tensor& x) {
    return at::linear(at::tanh(second->forward(at::tanh(first->forward(x)))), weight, bias);
  }

  TtLinear first, second;
  at::Tensor weight, bias;
};

constexpr size_t kCores = 6;  // Of both layers.
constexpr int64_t kEpochs = 5, kBatch = 50;
constexpr int64_t kHeldOut = 359, kTrained = 1438;
constexpr size_t kStepsPerEpoch = (kTrained + kBatch - 1) / kBatch;
constexpr double kRate = 0.05, kMomentum = 0.9;

struct Training {
  std::vector<double> losses;  // Of each step, before its update.
  int64_t right = 0;           // Of the images held out.
};

// Called with the network before the first step, and with its gradients in each step.
struct Hooks {
  std::function<void(Network&)> start = [](Network&) {};
  std::function<void(Network&)> gradients = [](Network&) {};
};

// Stochastic gradient descent with momentum; the last batch of an epoch is a smaller one.
Training Train(const std::string& variant, at::ScalarType dtype, const Hooks& hooks = {},
               int64_t epochs = kEpochs) {
  Network network = Network::Fresh(dtype);
  network.first->set_variant(variant);
  network.second->set_variant(variant);
  hooks.start(network);
  const std::vector<at::Tensor> parameters = network.Parameters();
  std::vector<at::Tensor> velocities;
  for (const at::Tensor& p : parameters) velocities.push_back(at::zeros(p.sizes(), dtype));

  const Digits digits = Split(/*held_out=*/false);
  const at::Tensor pixels = digits.pixels.to(dtype);
  const int64_t images = pixels.size(0);
  const at::Tensor order = at::empty({images}, at::kLong);
  int64_t* const shuffled = order.mutable_data_ptr<int64_t>();
  std::iota(shuffled, shuffled + images, 0);
  std::mt19937_64 random(9);
  Training training;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    for (int64_t i = images - 1; i > 0; --i) {
      std::swap(shuffled[i], shuffled[random() % static_cast<uint64_t>(i + 1)]);
    }
    for (int64_t begin = 0; begin < images; begin += kBatch) {
      const at::Tensor batch = order.slice(0, begin, std::min(begin + kBatch, images));
      const at::Tensor loss = at::cross_entropy_loss(network.Scores(pixels.index_select(0, batch)),
                                                     digits.classes.index_select(0, batch));
      training.losses.push_back(loss.item<double>());
      torch::autograd::backward({loss}, {});
      hooks.gradients(network);
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < parameters.size(); ++i) {
        at::Tensor p = parameters[i];
        velocities[i].mul_(kMomentum).add_(p.grad());
        p.sub_(velocities[i], kRate);
        p.mutable_grad() = at::Tensor();
      }
    }
  }
  const at::NoGradGuard no_grad;
  const Digits test = Split(/*held_out=*/true);
  const at::Tensor right = network.Scores(test.pixels.to(dtype)).argmax(1).eq(test.classes);
  training.right = right.sum().item<int64_t>();
  return training;
}

// What every other run is measured against: `sequential` in float64.
const Training& Exact() {
  static const auto* training = new Training(Train("sequential", at::kDouble));
  return *training;
}

// The largest |loss - exact loss| up to each step.
std::vector<double> Deviations(const Training& training) {
  std::vector<double> deviations;
  double largest = 0;
  for (size_t step = 0; step < training.losses.size(); ++step) {
    const double difference = std::abs(training.losses[step] - Exact().losses[step]);
    largest = difference <= largest ? largest : difference;  // NaN is taken over.
    deviations.push_back(largest);
  }
  return deviations;
}

// By how much training amplifies: the deviation up to each step if every parameter of the start is
// off by `kOff` relative to itself, divided by `kOff`. A property of the task, not of a variant.
const std::vector<double>& Growth() {
  static const auto* growth = [] {
    constexpr double kOff = 1e-7;
    Hooks hooks;
    hooks.start = [](Network& network) {
      const at::NoGradGuard no_grad;
      for (at::Tensor p : network.Parameters()) {
        p.mul_(at::randn(p.sizes(), at::kDouble).sign_().mul_(kOff).add_(1));
      }
    };
    auto* deviations = new std::vector<double>(Deviations(Train("sequential", at::kDouble, hooks)));
    for (double& deviation : *deviations) deviation /= kOff;
    return deviations;
  }();
  return *growth;
}

// How far a correct variant's losses may be from the exact ones up to each step. A pass may be off
// by as much as Tolerance() allows, forward, which is as if the parameters were, and backward,
// which moves them by the learning rate times that; what one update moves, all later steps amplify,
// as Growth() says, and errors of all updates so far add up to at most their number. (The rounding
// of the update itself is far less.) The loss is then rounded in a few operations of its own.
std::vector<double> Bounds(DType dtype) {
  const Network network = Network::Fresh(at::kDouble);
  const double tolerance =
      std::max(Tolerance(network.first->shape(), dtype), Tolerance(network.second->shape(), dtype));
  constexpr double kLossRoundings = 8;
  const double loss_rounding = kLossRoundings * UnitRoundoff(dtype) * Exact().losses[0];
  std::vector<double> bounds;
  for (const double growth : Growth()) {
    const double updates = static_cast<double>(bounds.size());
    bounds.push_back(tolerance * growth * (1 + kRate * updates) + loss_rounding);
  }
  return bounds;
}

// The first step at which a deviation passes its bound, or the number of steps.
size_t FirstBeyond(const std::vector<double>& deviations, const std::vector<double>& bounds) {
  for (size_t step = 0; step < deviations.size(); ++step) {
    if (!(deviations[step] <= bounds[step])) return step;
  }
  return deviations.size();
}

class DigitsTest : public testing::Test {
 protected:
  DigitsTest() { at::set_num_threads(1); }
};

TEST_F(DigitsTest, TheImagesAreAllThere) {
  // The counts in scikit-learn's description of the set.
  const std::array<int64_t, kClasses> counts = {178, 182, 177, 183, 181, 182, 181, 179, 174, 180};
  ASSERT_EQ(AllDigits().pixels.sizes(), (at::IntArrayRef{1797, kPixels}));
  EXPECT_EQ(AllDigits().pixels.min().item<double>(), 0);
  EXPECT_EQ(AllDigits().pixels.max().item<double>(), 1);
  EXPECT_EQ(Split(/*held_out=*/true).classes.size(0), kHeldOut);
  EXPECT_EQ(Split(/*held_out=*/false).classes.size(0), kTrained);
  for (int64_t digit = 0; digit < kClasses; ++digit) {
    EXPECT_EQ(AllDigits().classes.eq(digit).sum().item<int64_t>(), counts[digit]) << digit;
  }
}

TEST_F(DigitsTest, EveryVariantLearnsTheSame) {
  // Chance is 0.1.
  EXPECT_GE(Exact().right, 9 * kHeldOut / 10);
  EXPECT_EQ(Exact().losses.size(), kEpochs * kStepsPerEpoch);
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const std::vector<double> bounds = Bounds(dtype);
    // Else the bounds would allow what matters.
    EXPECT_LE(bounds.back(), (dtype == DType::kFloat64 ? 1e-9 : 1e-2) * Exact().losses.back());
    for (const auto& variant : LinearVariants()) {
      const LinearProblem first{TtShape({4, 2, 8}, {2, 8, 4}, {3, 5}), 1, Phase::kTrain, dtype};
      if (variant->is_dense() || !variant->WhySkipped(first).empty()) continue;
      SCOPED_TRACE(variant->name() + " " + Name(dtype));
      const Training training =
          Train(variant->name(), dtype == DType::kFloat64 ? at::kDouble : at::kFloat);
      const std::vector<double> deviations = Deviations(training);
      ASSERT_EQ(deviations.size(), bounds.size());
      const size_t beyond = FirstBeyond(deviations, bounds);
      EXPECT_EQ(beyond, bounds.size()) << "step " << beyond << ": off by " << deviations[beyond]
                                       << ", allowed " << bounds[beyond];
      // In float32 an image may lie within a rounding of two classes.
      EXPECT_NEAR(training.right, Exact().right, dtype == DType::kFloat64 ? 0 : 1);
    }
  }
}

// The comparison sees a core that does not learn, and one whose gradient is off by a percent.
TEST_F(DigitsTest, AWrongGradientIsCaughtInTheFirstEpoch) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const std::vector<double> bounds = Bounds(dtype);
    for (size_t core = 0; core < kCores; ++core) {
      for (const double factor : {0.0, 1.01}) {
        Hooks hooks;
        hooks.gradients = [&](Network& network) {
          network.Parameters()[core].mutable_grad().mul_(factor);
        };
        const Training training =
            Train("fused", dtype == DType::kFloat64 ? at::kDouble : at::kFloat, hooks, 1);
        EXPECT_LT(FirstBeyond(Deviations(training), bounds), kStepsPerEpoch)
            << "core " << core + 1 << ", gradient times " << factor << ", " << Name(dtype);
      }
    }
  }
}

}  // namespace
}  // namespace ttbench
