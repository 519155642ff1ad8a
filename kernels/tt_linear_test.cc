#include "kernels/tt_linear.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/serialize.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ttbench {
namespace {

class TtLinearTest : public testing::Test {
 protected:
  TtLinearTest() {
    at::set_num_threads(1);
    torch::manual_seed(7);
  }
};

TtShape Unequal() { return TtShape({2, 3, 5}, {3, 2, 4}, {4, 6}); }

TtLinear Float64Layer(const TtShape& shape, bool bias = false) {
  TtLinear layer(shape, TtLinearOptions().bias(bias).dtype(at::kDouble));
  const at::NoGradGuard no_grad;
  if (bias) layer->bias().normal_();
  return layer;
}

std::vector<std::string> CoresVariants() {
  std::vector<std::string> names;
  for (const auto& variant : LinearVariants()) {
    if (!variant->is_dense()) names.push_back(variant->name());
  }
  return names;
}

// Those that can train the layer.
std::vector<std::string> CoresVariants(const TtShape& shape) {
  std::vector<std::string> names;
  for (const std::string& name : CoresVariants()) {
    const LinearProblem problem{shape, 5, Phase::kTrain, DType::kFloat64};
    if (FindLinearVariant(name)->WhyUnsupported(problem).empty()) names.push_back(name);
  }
  return names;
}

double RelativeError(const at::Tensor& got, const at::Tensor& want) {
  if (got.sizes() != want.sizes()) return std::numeric_limits<double>::infinity();
  if (want.numel() == 0) return 0;
  return ((got - want).abs().max() / want.abs().max()).item<double>();
}

// Both sides of a comparison in float64 round differently; K contractions of at most a few hundred
// terms stay far below this.
constexpr double kFloat64Error = 1e-12;

void ExpectSame(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  EXPECT_LE(RelativeError(got, want), kFloat64Error);
}

at::Tensor DenseForward(const TtLinear& layer, const at::Tensor& x) {
  at::Tensor y = at::matmul(x, layer->to_dense().t());
  return layer->bias().defined() ? y + layer->bias().detach() : y;
}

double FrobeniusDistance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>();
}

template <typename Function>
std::string ErrorOf(const Function& function) {
  try {
    function();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

// The mean square of W's elements over independent draws. Its own standard error comes from the
// spread between draws; at 5 of them a right initialisation fails once in a million. Leaving out a
// rank, or taking N for N + M, is off by a factor of 1.5 or more.
TEST_F(TtLinearTest, InitialisesWithTheVarianceOfGlorot) {
  const std::vector<TtShape> shapes = {
      TtShape({6, 4}, {3, 5}, {7}),
      TtShape({4, 3, 5}, {2, 6, 3}, {6, 9}),
      TtShape({4, 3, 2, 3}, {2, 4, 3, 2}, {5, 8, 4}),
      TtShape({2, 3, 2, 3, 2}, {3, 2, 3, 2, 3}, {6, 9, 7, 5}),
      TtShape({2, 3, 2, 2, 3, 2}, {2, 2, 3, 2, 2, 3}, {4, 10, 12, 8, 5}),
  };
  constexpr int kDraws = 1500;
  for (const TtShape& shape : shapes) {
    double sum = 0, sum_of_squares = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      TtLinear layer(shape, TtLinearOptions().dtype(at::kDouble));
      const double mean_square = layer->to_dense().square().mean().item<double>();
      sum += mean_square;
      sum_of_squares += mean_square * mean_square;
    }
    const double mean = sum / kDraws;
    const double standard_error = std::sqrt((sum_of_squares / kDraws - mean * mean) / kDraws);
    const double glorot = 2.0 / static_cast<double>(shape.in_features() + shape.out_features());
    EXPECT_NEAR(mean, glorot, 5 * standard_error) << shape.modes_name();
    EXPECT_LT(5 * standard_error, 0.25 * glorot) << shape.modes_name();
  }
}

TEST_F(TtLinearTest, DrawsAllCoresWithOneSigma) {
  // sigma^(2K) * r_1 * r_2 = 2 / (N + M), so sigma^6 = 2 / (2 * 8000 * 40 * 40).
  TtLinear layer(TtShape::Cube(3, 20, 40), TtLinearOptions().dtype(at::kDouble));
  const double sigma = std::pow(1.0 / (8000.0 * 1600.0), 1.0 / 6);
  for (const at::Tensor& core : layer->cores()) {
    // The relative standard error of a sample deviation is 1 / sqrt(2 n).
    const double bound = 5 / std::sqrt(2.0 * static_cast<double>(core.numel()));
    EXPECT_NEAR(core.std().item<double>() / sigma, 1, bound);
    EXPECT_NEAR(core.mean().item<double>() / sigma, 0,
                5 / std::sqrt(static_cast<double>(core.numel())));
  }
}

TEST_F(TtLinearTest, RegistersCoresAndBias) {
  TtLinear layer(Unequal(), TtLinearOptions().bias(true));
  const auto parameters = layer->named_parameters();
  EXPECT_EQ(parameters.keys(), (std::vector<std::string>{"core1", "core2", "core3", "bias"}));
  EXPECT_EQ(parameters["core1"].sizes(), (at::IntArrayRef{1, 2, 3, 4}));
  EXPECT_EQ(parameters["core2"].sizes(), (at::IntArrayRef{4, 3, 2, 6}));
  EXPECT_EQ(parameters["core3"].sizes(), (at::IntArrayRef{6, 5, 4, 1}));
  EXPECT_EQ(parameters["bias"].sizes(), (at::IntArrayRef{24}));
  EXPECT_EQ(parameters["bias"].abs().max().item<float>(), 0);
  for (const auto& parameter : parameters) {
    EXPECT_TRUE(parameter->requires_grad() && parameter->is_leaf()) << parameter.key();
    EXPECT_EQ(parameter->scalar_type(), at::kFloat) << parameter.key();
  }
  EXPECT_EQ(TtLinear(Unequal())->parameters().size(), 3u);
  EXPECT_EQ(TtLinear(Unequal())->variant().name(), "sequential");
}

TEST_F(TtLinearTest, ForwardIsTheDenseProductForEveryVariant) {
  const std::vector<TtShape> shapes = {
      TtShape({4, 6}, {5, 3}, {7}),
      Unequal(),
      TtShape({2, 1, 3, 2}, {1, 3, 2, 2}, {2, 5, 3}),
      TtShape({2, 3, 1, 2, 2}, {2, 2, 3, 1, 2}, {3, 1, 4, 3}),
      TtShape({2, 2, 3, 2, 1, 2}, {2, 1, 2, 2, 3, 2}, {2, 3, 4, 3, 2}),
  };
  for (const TtShape& shape : shapes) {
    TtLinear layer = Float64Layer(shape, /*bias=*/true);
    for (const std::string& name : CoresVariants(shape)) {
      layer->set_variant(name);
      for (const int64_t rows : {1, 5}) {
        SCOPED_TRACE(name + " " + shape.modes_name() + " b" + std::to_string(rows));
        const at::Tensor x = at::randn({rows, shape.in_features()}, at::kDouble);
        ExpectSame(layer->forward(x).detach(), DenseForward(layer, x));
        const at::NoGradGuard no_grad;
        ExpectSame(layer->forward(x), DenseForward(layer, x));
      }
    }
  }
}

TEST_F(TtLinearTest, TakesAnyLeadingDimensions) {
  TtLinear layer = Float64Layer(Unequal(), /*bias=*/true);
  const std::vector<std::vector<int64_t>> leading_sizes = {{}, {1}, {4}, {2, 3}, {2, 1, 3}};
  for (const std::vector<int64_t>& leading : leading_sizes) {
    std::vector<int64_t> in_sizes = leading, out_sizes = leading;
    in_sizes.push_back(30);
    out_sizes.push_back(24);
    const at::Tensor x = at::randn(in_sizes, at::kDouble);
    const at::Tensor y = layer->forward(x);
    EXPECT_EQ(y.sizes(), at::IntArrayRef(out_sizes));
    EXPECT_TRUE(y.is_contiguous());
    ExpectSame(y.detach(), DenseForward(layer, x));
  }
}

TEST_F(TtLinearTest, TakesAnyStrides) {
  TtLinear layer = Float64Layer(Unequal());
  const at::Tensor storage = at::randn({5, 30, 7}, at::kDouble);
  const std::vector<std::pair<const char*, at::Tensor>> inputs = {
      {"transposed", storage.select(0, 0).t()},
      {"permuted, three dimensions", storage.permute({2, 0, 1})},
      {"rows apart", at::randn({9, 30}, at::kDouble).slice(0, 1, 9, 3)},
      {"columns apart", at::randn({4, 60}, at::kDouble).slice(1, 1, 60, 2)},
      {"expanded", at::randn({30}, at::kDouble).expand({3, 30})},
      {"view at an offset", at::randn({4 * 30 + 13}, at::kDouble).narrow(0, 13, 120).view({4, 30})},
  };
  for (const std::string& name : CoresVariants(Unequal())) {
    layer->set_variant(name);
    for (const auto& [what, input] : inputs) {
      SCOPED_TRACE(name + ", x " + what);
      const at::Tensor x = input.detach().requires_grad_();
      const at::Tensor y = layer->forward(x);
      ExpectSame(y.detach(), DenseForward(layer, x.detach()));
      const at::Tensor dy = at::randn(y.sizes(), at::kDouble);
      torch::autograd::backward({y}, {dy});
      ExpectSame(x.grad(), at::matmul(dy, layer->to_dense()));
    }
  }
}

TEST_F(TtLinearTest, TakesNoRows) {
  TtLinear layer = Float64Layer(Unequal(), /*bias=*/true);
  for (const std::string& name : CoresVariants(Unequal())) {
    SCOPED_TRACE(name);
    layer->set_variant(name);
    layer->zero_grad();
    const at::Tensor x = at::empty({0, 30}, at::kDouble).requires_grad_();
    const at::Tensor y = layer->forward(x);
    ASSERT_EQ(y.sizes(), (at::IntArrayRef{0, 24}));
    torch::autograd::backward({y}, {at::empty({0, 24}, at::kDouble)});
    EXPECT_EQ(x.grad().sizes(), (at::IntArrayRef{0, 30}));
    for (const auto& parameter : layer->named_parameters()) {
      ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
      EXPECT_EQ(parameter->grad().sizes(), parameter->sizes()) << parameter.key();
      EXPECT_EQ(parameter->grad().abs().max().item<double>(), 0) << parameter.key();
    }
    const at::NoGradGuard no_grad;
    EXPECT_EQ(layer->forward(at::empty({3, 0, 30}, at::kDouble)).sizes(),
              (at::IntArrayRef{3, 0, 24}));
  }
}

TEST_F(TtLinearTest, BiasGradientIsTheSumOfDyOverAllRows) {
  TtLinear layer = Float64Layer(Unequal(), /*bias=*/true);
  const at::Tensor y = layer->forward(at::randn({2, 3, 30}, at::kDouble));
  const at::Tensor dy = at::randn({2, 3, 24}, at::kDouble);
  torch::autograd::backward({y}, {dy});
  ExpectSame(layer->bias().grad(), dy.sum(at::IntArrayRef{0, 1}));
}

TEST_F(TtLinearTest, KeepsXAsItIs) {
  TtLinear layer = Float64Layer(Unequal(), /*bias=*/true);
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({4, 30}, at::kDouble), before = x.clone();
  for (const std::string& name : CoresVariants(Unequal())) {
    layer->set_variant(name);
    layer->forward(x);
    EXPECT_TRUE(x.equal(before)) << name;
  }
}

TEST_F(TtLinearTest, ToDenseIsTheDefinition) {
  // W[(j1 j2), (i1 i2)] = sum_a G1[0, i1, j1, a] G2[a, i2, j2, 0] for modes 2x1:1x2 and rank 2.
  TtLinear layer(TtShape({2, 1}, {1, 2}, {2}), TtLinearOptions().dtype(at::kDouble));
  const at::NoGradGuard no_grad;
  const double core1[] = {1, 2, 3, 4};  // G1[0, i1, 0, a]
  const double core2[] = {5, 6, 7, 8};  // G2[a, 0, j2, 0]
  for (int64_t i = 0; i < 4; ++i) {
    layer->cores()[0].view({4}).select(0, i).fill_(core1[i]);
    layer->cores()[1].view({4}).select(0, i).fill_(core2[i]);
  }
  const at::Tensor w = layer->to_dense();
  ASSERT_EQ(w.sizes(), (at::IntArrayRef{2, 2}));
  EXPECT_EQ(w[0][0].item<double>(), 1 * 5 + 2 * 7);
  EXPECT_EQ(w[0][1].item<double>(), 3 * 5 + 4 * 7);
  EXPECT_EQ(w[1][0].item<double>(), 1 * 6 + 2 * 8);
  EXPECT_EQ(w[1][1].item<double>(), 3 * 6 + 4 * 8);
}

TEST_F(TtLinearTest, FromDenseIsExactAtFullRank) {
  const std::vector<std::pair<Modes, Modes>> modes = {{{4, 5}, {3, 6}},
                                                      {{2, 3, 4}, {3, 2, 2}},
                                                      {{2, 1, 3, 2}, {1, 3, 2, 2}},
                                                      {{2, 2, 2, 2, 2}, {2, 1, 2, 3, 2}}};
  for (const auto& [in_modes, out_modes] : modes) {
    const at::Tensor weight = at::randn({Product(out_modes), Product(in_modes)}, at::kDouble);
    const at::Tensor bias = at::randn({Product(out_modes)}, at::kDouble);
    // More than any unfolding has: clipped.
    const Modes ranks(in_modes.size() - 1, 1000);
    TtLinear by_rank = TtLinear::from_dense(weight, in_modes, out_modes, ranks, bias);
    ExpectSame(by_rank->to_dense(), weight);
    EXPECT_TRUE(by_rank->bias().equal(bias));
    EXPECT_EQ(by_rank->shape(), TtShape(in_modes, out_modes, ranks));
    TtLinear by_error = TtLinear::from_dense(weight, in_modes, out_modes, 0.0);
    ExpectSame(by_error->to_dense(), weight);
    EXPECT_FALSE(by_error->bias().defined());
    const at::Tensor x = at::randn({3, Product(in_modes)}, at::kDouble);
    ExpectSame(by_rank->forward(x).detach(), at::matmul(x, weight.t()) + bias);
  }
}

TEST_F(TtLinearTest, FromDenseFindsTheRanksOfATensorTrain) {
  const TtShape shape({3, 4, 3}, {4, 3, 3}, {3, 5});
  const at::Tensor weight = Float64Layer(shape)->to_dense();
  TtLinear by_rank = TtLinear::from_dense(weight, shape.in_modes(), shape.out_modes(), Modes{3, 5});
  ExpectSame(by_rank->to_dense(), weight);
  TtLinear by_error = TtLinear::from_dense(weight, shape.in_modes(), shape.out_modes(), 1e-10);
  EXPECT_EQ(by_error->shape().ranks(), (Modes{1, 3, 5, 1}));
  ExpectSame(by_error->to_dense(), weight);
}

TEST_F(TtLinearTest, FromDenseKeepsTheErrorAskedFor) {
  const Modes in_modes{4, 3, 4, 2}, out_modes{3, 4, 2, 4};
  // Singular values that fall off, as trained weights have: a sum of trains of growing rank and
  // shrinking size.
  at::Tensor weight = at::zeros({96, 96}, at::kDouble);
  for (int64_t i = 0; i < 8; ++i) {
    weight +=
        std::pow(0.4, i) * Float64Layer(TtShape::Uniform(in_modes, out_modes, i + 1))->to_dense();
  }
  const double norm = weight.norm().item<double>();
  int64_t last_parameters = std::numeric_limits<int64_t>::max();
  for (const double error : {1e-6, 1e-3, 1e-2, 0.1, 0.5, 0.9}) {
    TtLinear layer = TtLinear::from_dense(weight, in_modes, out_modes, error);
    EXPECT_LE(FrobeniusDistance(layer->to_dense(), weight), error * norm) << error;
    EXPECT_LE(layer->shape().parameters(), last_parameters) << error;
    last_parameters = layer->shape().parameters();
  }
  EXPECT_LT(last_parameters, TtShape::Uniform(in_modes, out_modes, 8).parameters());
}

// For K = 2 the best layer is known (Eckart and Young): the error is the norm of the singular
// values cut off. For K > 2 no layer of these ranks beats the largest of its unfoldings' errors,
// and TT-SVD is within the root of the sum of their squares (Oseledets 2011, theorem 2.2).
TEST_F(TtLinearTest, FromDenseTruncatesAsWellAsTheUnfoldingsAllow) {
  for (const auto& [in_modes, out_modes, ranks] :
       std::vector<std::tuple<Modes, Modes, Modes>>{{{4, 6}, {5, 3}, {7}},
                                                    {{3, 4, 3}, {4, 3, 3}, {5, 4}},
                                                    {{3, 2, 2, 3}, {2, 3, 2, 2}, {3, 6, 2}}}) {
    const int64_t cores = static_cast<int64_t>(in_modes.size());
    const at::Tensor weight = at::randn({Product(out_modes), Product(in_modes)}, at::kDouble);
    std::vector<int64_t> sizes = out_modes, order;
    sizes.insert(sizes.end(), in_modes.begin(), in_modes.end());
    for (int64_t k = 0; k < cores; ++k) order.insert(order.end(), {cores + k, k});
    const at::Tensor tensor = weight.view(sizes).permute(order).contiguous();
    double largest = 0, sum = 0;
    int64_t rows = 1;
    for (int64_t k = 0; k + 1 < cores; ++k) {
      rows *= in_modes[k] * out_modes[k];
      const at::Tensor s = std::get<1>(tensor.view({rows, -1}).svd());
      const double cut = s.slice(0, ranks[k]).norm().item<double>();
      largest = std::max(largest, cut);
      sum += cut * cut;
    }
    TtLinear layer = TtLinear::from_dense(weight, in_modes, out_modes, ranks);
    EXPECT_EQ(layer->shape(), TtShape(in_modes, out_modes, ranks));
    const double error = FrobeniusDistance(layer->to_dense(), weight);
    EXPECT_GE(error, largest * (1 - 1e-12));
    EXPECT_LE(error, std::sqrt(sum) * (1 + 1e-12));
  }
}

TEST_F(TtLinearTest, OneTtSvdServesAllRanks) {
  const Modes in_modes{3, 4, 3}, out_modes{4, 3, 3};
  const at::Tensor weight = at::randn({36, 36}, at::kDouble), bias = at::randn({36}, at::kDouble);
  TtSvd svd(weight, in_modes, out_modes);
  for (const Modes& ranks : std::vector<Modes>{{12, 9}, {5, 4}, {1, 1}, {5, 9}, {12, 2}}) {
    TtLinear layer = svd.Truncate(ranks, bias);
    TtLinear anew = TtLinear::from_dense(weight, in_modes, out_modes, ranks);
    EXPECT_EQ(layer->shape(), anew->shape());
    EXPECT_TRUE(layer->to_dense().equal(anew->to_dense()));
    EXPECT_TRUE(layer->bias().equal(bias));
  }
  ExpectSame(svd.Truncate({12, 9})->to_dense(), weight);
}

TEST_F(TtLinearTest, FromDenseClipsRanksToWhatTheUnfoldingsHave) {
  const at::Tensor weight = at::randn({8, 27}, at::kDouble);
  // 6 by the modes; after a first rank of 1 only 1 * 3 * 2 columns are left for the second.
  TtLinear layer = TtLinear::from_dense(weight, {3, 3, 3}, {2, 2, 2}, Modes{1, 100});
  EXPECT_EQ(layer->shape().ranks(), (Modes{1, 1, 6, 1}));
  TtLinear wide =
      TtLinear::from_dense(at::randn({4, 8}, at::kDouble), {2, 2, 2}, {1, 2, 2}, Modes{1, 100});
  EXPECT_EQ(wide->shape().ranks(), (Modes{1, 1, 4, 1}));
}

TEST_F(TtLinearTest, FromDenseOfZerosHasRankOne) {
  TtLinear layer = TtLinear::from_dense(at::zeros({8, 27}), {3, 3, 3}, {2, 2, 2}, 0.0);
  EXPECT_EQ(layer->shape().ranks(), (Modes{1, 1, 1, 1}));
  EXPECT_EQ(layer->to_dense().abs().max().item<float>(), 0);
}

TEST_F(TtLinearTest, FromDenseTakesTheDtypeAndAnyStridesOfTheWeight) {
  const at::Tensor weight = at::randn({27, 8}).t().requires_grad_();
  TtLinear layer = TtLinear::from_dense(weight, {3, 3, 3}, {2, 2, 2}, Modes{6, 6});
  for (const at::Tensor& core : layer->parameters()) {
    EXPECT_EQ(core.scalar_type(), at::kFloat);
    EXPECT_TRUE(core.is_leaf() && core.requires_grad());
  }
  // Three roundings of the cores to float32, and three contractions in it.
  EXPECT_LE(RelativeError(layer->to_dense(), weight.detach()), 1e-5);
}

TEST_F(TtLinearTest, CloneIsIndependent) {
  TtLinear layer = Float64Layer(Unequal(), /*bias=*/true);
  layer->set_variant("naive");
  const at::Tensor x = at::randn({4, 30}, at::kDouble);
  const at::Tensor before = layer->forward(x).detach();
  TtLinear copy(std::dynamic_pointer_cast<TtLinearImpl>(layer->clone()));
  EXPECT_EQ(copy->variant().name(), "naive");
  EXPECT_TRUE(copy->forward(x).equal(before));
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& parameter : copy->parameters()) parameter.zero_();
  }
  EXPECT_EQ(copy->forward(x).abs().max().item<double>(), 0);
  EXPECT_TRUE(layer->forward(x).equal(before));
  copy->set_variant("sequential");
  EXPECT_EQ(layer->variant().name(), "naive");
}

TEST_F(TtLinearTest, ConvertsAllParametersAndForwardUsesThem) {
  TtLinear layer(Unequal(), TtLinearOptions().bias(true));
  const at::Tensor x = at::randn({4, 30});
  const at::Tensor y = layer->forward(x).detach();
  layer->to(at::kDouble);
  for (const auto& parameter : layer->named_parameters()) {
    EXPECT_EQ(parameter->scalar_type(), at::kDouble) << parameter.key();
  }
  const at::Tensor wide = layer->forward(x.to(at::kDouble)).detach();
  EXPECT_EQ(wide.scalar_type(), at::kDouble);
  EXPECT_LE(RelativeError(y.to(at::kDouble), wide), Tolerance(layer->shape(), DType::kFloat32));
  // A clone keeps the dtype that the layer has now.
  TtLinear copy(std::dynamic_pointer_cast<TtLinearImpl>(layer->clone()));
  EXPECT_TRUE(copy->forward(x.to(at::kDouble)).equal(wide));
}

TEST_F(TtLinearTest, SurvivesSaveAndLoad) {
  TtLinear saved = Float64Layer(Unequal(), /*bias=*/true);
  std::stringstream stream;
  torch::save(saved, stream);
  TtLinear loaded(Unequal(), TtLinearOptions().bias(true).dtype(at::kDouble));
  torch::load(loaded, stream);
  const at::Tensor x = at::randn({4, 30}, at::kDouble);
  EXPECT_TRUE(loaded->forward(x).equal(saved->forward(x)));
  for (const at::Tensor& core : loaded->cores())
    EXPECT_TRUE(core.is_leaf() && core.requires_grad());
}

TEST_F(TtLinearTest, RefusesToLoadALayerOfOtherRanks) {
  TtLinear saved(TtShape({2, 3, 5}, {3, 2, 4}, {4, 5}));
  std::stringstream stream;
  torch::save(saved, stream);
  TtLinear layer(Unequal());
  const at::Tensor before = layer->to_dense();
  EXPECT_EQ(ErrorOf([&] { torch::load(layer, stream); }),
            "saved core2 is [4, 3, 2, 5]; modes 2x3x5:3x2x4, ranks 1x4x6x1 take [4, 3, 2, 6]");
  EXPECT_TRUE(layer->to_dense().equal(before));
}

TEST_F(TtLinearTest, SaysWhatItIs) {
  std::ostringstream text;
  text << TtLinear(Unequal(), TtLinearOptions().bias(true));
  EXPECT_EQ(text.str(),
            "ttbench::TtLinear(2x3x5:3x2x4, ranks=1x4x6x1, variant=sequential, bias=true)");
}

TEST_F(TtLinearTest, RefusesAWrongFeatureSize) {
  TtLinear layer(Unequal());
  EXPECT_EQ(ErrorOf([&] {
              layer->forward(at::zeros({4, 24}));
            }),
            "x is [4, 24]; a TT layer of 2x3x5:3x2x4 takes [..., 30]");
  EXPECT_EQ(ErrorOf([&] { layer->forward(at::zeros({})); }),
            "x is []; a TT layer of 2x3x5:3x2x4 takes [..., 30]");
  EXPECT_EQ(ErrorOf([&] { layer->forward(at::zeros({0})); }),
            "x is [0]; a TT layer of 2x3x5:3x2x4 takes [..., 30]");
}

TEST_F(TtLinearTest, RefusesADtypeThatIsNotTheCores) {
  TtLinear layer(Unequal());
  EXPECT_EQ(ErrorOf([&] {
              layer->forward(at::zeros({4, 30}, at::kDouble));
            }),
            "x is Double but the cores are Float; convert one with to()");
  layer->to(at::kHalf);
  EXPECT_EQ(ErrorOf([&] {
              layer->forward(at::zeros({4, 30}, at::kHalf));
            }),
            "a TT layer of Half has no variants; use Float, Double or BFloat16");
  EXPECT_EQ(ErrorOf([] { TtLinear(Unequal(), TtLinearOptions().dtype(at::kLong)); }),
            "a TT layer of Long has no variants; use Float, Double or BFloat16");
}

TEST_F(TtLinearTest, RefusesVariantsItCannotRun) {
  TtLinear layer(Unequal());
  std::string names;
  for (const std::string& name : CoresVariants()) names += (names.empty() ? "" : ", ") + name;
  EXPECT_EQ(ErrorOf([&] { layer->set_variant("sequental"); }),
            "there is no variant 'sequental'; use one of " + names);
  EXPECT_EQ(ErrorOf([&] { layer->set_variant("dense"); }),
            "variant 'dense' multiplies by a dense weight, and a TT layer has cores; use one of " +
                names);
  EXPECT_EQ(ErrorOf([] { TtLinear(Unequal(), TtLinearOptions().variant("?")); }),
            "there is no variant '?'; use one of " + names);
  EXPECT_EQ(layer->variant().name(), "sequential");
}

TEST_F(TtLinearTest, SaysWhyAVariantCannotRunTheLayer) {
  TtLinear layer(TtShape::Uniform(Modes(13, 1), Modes(13, 1), 1),
                 TtLinearOptions().variant("einsum"));
  EXPECT_EQ(ErrorOf([&] {
              layer->forward(at::zeros({4, 1}));
            }),
            "variant 'einsum' cannot run this layer: einsum has labels for at most 12 cores");
}

TEST_F(TtLinearTest, FromDenseRefusesWhatDoesNotFit) {
  const at::Tensor weight = at::zeros({8, 27});
  EXPECT_EQ(ErrorOf([&] {
              TtLinear::from_dense(weight.t(), {3, 3, 3}, {2, 2, 2}, 0.1);
            }),
            "weight is [27, 8]; modes 3x3x3:2x2x2 take [8, 27]");
  EXPECT_EQ(ErrorOf([&] {
              TtLinear::from_dense(weight, {3, 3, 3}, {2, 2, 2}, 0.1, at::zeros({27}));
            }),
            "bias is [27]; modes 3x3x3:2x2x2 take [8]");
  for (const double error : {-0.1, 1.0, std::nan("")}) {
    EXPECT_EQ(
        ErrorOf([&] {
          TtLinear::from_dense(weight, {3, 3, 3}, {2, 2, 2}, error);
        }),
        "relative error " + std::to_string(error) + " is not in [0, 1); give ranks as Modes{..}");
  }
  EXPECT_THROW(TtLinear::from_dense(weight, {3, 3, 3}, {2, 2, 2}, Modes{2}), ShapeError);
}

}  // namespace
}  // namespace ttbench
