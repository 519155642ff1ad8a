// Checks of every variant linked beside them, against the float64 oracle: forward, gradients, and
// the contract of LinearVariant::Forward(). //kernels/linear:variants_test is the repository's;
// ttbench_sweep() (benchmarks/defs.bzl) makes the test of anyone else's.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/inputs.h"
#include "kernels/oracle.h"
#include "kernels/scalar_type.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

constexpr uint64_t kSeed = 11;

const std::vector<TtShape>& Shapes() {
  static const auto* shapes = new std::vector<TtShape>{
      TtShape::Cube(2, 6, 3),
      TtShape::Cube(3, 6, 4),
      TtShape::Cube(4, 4, 5),
      // Unequal modes and ranks, K = 2..6.
      TtShape({5, 3}, {4, 7}, {6}),
      TtShape({2, 3, 5}, {3, 2, 4}, {2, 4}),
      TtShape({6, 2, 3, 4}, {3, 5, 4, 2}, {7, 3, 5}),
      TtShape({2, 3, 2, 3, 2}, {3, 2, 2, 2, 3}, {3, 6, 2, 5}),
      TtShape({2, 3, 4, 2, 3, 2}, {2, 2, 4, 2, 2, 3}, {2, 3, 4, 3, 2}),
      // Ranks of 1, all or some.
      TtShape({5, 3}, {4, 7}, {1}),
      TtShape({2, 3, 5}, {3, 2, 4}, {1, 1}),
      TtShape({2, 3, 5}, {3, 2, 4}, {1, 3}),
      TtShape({2, 3, 5, 2}, {3, 2, 4, 3}, {3, 1, 2}),
      // Modes of 1, at either end, inside, on one side or both; a single input or output.
      TtShape({1, 3, 5}, {3, 1, 4}, {2, 3}),
      TtShape({2, 1, 5}, {3, 1, 4}, {2, 2}),
      TtShape({3, 1}, {1, 4}, {1}),
      TtShape({4, 3, 1, 1}, {1, 2, 4, 3}, {2, 3, 2}),
      TtShape({5, 4, 3}, {1, 1, 1}, {4, 2}),
      TtShape({1, 1, 1}, {5, 4, 3}, {4, 2}),
      TtShape({1, 1}, {1, 1}, {1}),
  };
  return *shapes;
}

// For what does not depend on the shape; of several numbers of cores, as not all are supported.
std::vector<TtShape> FewShapes() {
  return {TtShape({5, 3}, {4, 7}, {6}), TtShape({2, 3, 5}, {3, 2, 4}, {2, 4}),
          TtShape({6, 2, 3, 4}, {3, 5, 4, 2}, {7, 3, 5})};
}

std::vector<double> Values(uint64_t stream, double scale, int64_t count) {
  const UniformValues uniform(kSeed, stream, scale);
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = uniform[i];
  return values;
}

at::Tensor ToTensor(const std::vector<double>& values, at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
  return tensor.to(type);
}

// A problem's inputs, exact in every dtype but for the dense weight, and its right results.
struct Reference {
  Reference(const TtShape& shape, int64_t batch) : shape(shape), batch(batch) {
    for (int64_t k = 0; k < shape.cores(); ++k) {
      cores.push_back(Values(StreamOfCore(k), CoreScale(shape, k), Product(shape.CoreSizes(k))));
    }
    x = Values(kStreamX, 1, batch * shape.in_features());
    dy = Values(kStreamDy, 1, batch * shape.out_features());
    result = EvaluateOracle(shape, cores, x, dy);
    weight = MatrixByDefinition(shape, cores);
    dweight.assign(weight.size(), 0);  // dy^T x
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t j = 0; j < shape.out_features(); ++j)
        for (int64_t i = 0; i < shape.in_features(); ++i)
          dweight[j * shape.in_features() + i] +=
              dy[b * shape.out_features() + j] * x[b * shape.in_features() + i];
  }

  std::vector<at::Tensor> Parameters(const LinearVariant& variant, at::ScalarType type) const {
    if (variant.is_dense()) {
      return {ToTensor(weight, {shape.out_features(), shape.in_features()}, type)};
    }
    std::vector<at::Tensor> tensors;
    for (int64_t k = 0; k < shape.cores(); ++k) {
      tensors.push_back(ToTensor(cores[k], shape.CoreSizes(k), type));
    }
    return tensors;
  }
  at::Tensor X(at::ScalarType type) const {
    return ToTensor(x, {batch, shape.in_features()}, type);
  }
  at::Tensor Dy(at::ScalarType type) const {
    return ToTensor(dy, {batch, shape.out_features()}, type);
  }

  TtShape shape;
  int64_t batch;
  std::vector<std::vector<double>> cores;
  std::vector<double> x, dy, weight, dweight;
  OracleResult result;
};

// Relative to the largest element; infinite where the counts differ or an element is not finite.
double MaxRelativeError(const at::Tensor& got, const std::vector<double>& want) {
  const at::Tensor wide = got.detach().to(at::kDouble).contiguous();
  if (wide.numel() != static_cast<int64_t>(want.size())) return HUGE_VAL;
  double error = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(wide.const_data_ptr<double>()[i] - want[i]);
    error = std::isfinite(difference) ? std::max(error, difference) : HUGE_VAL;
    largest = std::max(largest, std::abs(want[i]));
  }
  return largest == 0 ? error : error / largest;
}

// Shared by all tests and variants; the oracle runs once for each.
const Reference& ReferenceOf(const TtShape& shape, int64_t batch) {
  static auto* references =
      new std::map<std::pair<std::string, int64_t>, std::unique_ptr<const Reference>>();
  auto& reference = (*references)[{shape.modes_name() + " " + shape.ranks_name(), batch}];
  if (!reference) reference = std::make_unique<const Reference>(shape, batch);
  return *reference;
}

class VariantTest : public testing::TestWithParam<const LinearVariant*> {
 protected:
  VariantTest() { at::set_num_threads(1); }
  const LinearVariant& variant() const { return *GetParam(); }
  bool Supports(const TtShape& shape, int64_t batch, Phase phase, DType dtype) const {
    return variant().WhySkipped({shape, batch, phase, dtype}).empty();
  }
  // The variant's, whose exceptions say what to do about them.
  at::Tensor Forward(const TtShape& shape, const at::Tensor& x, at::TensorList parameters) const {
    try {
      return variant().Forward(shape, x, parameters);
    } catch (const std::exception& error) {
      const std::string what = error.what();
      throw std::runtime_error(
          "'" + variant().name() + "' throws on " + shape.modes_name() + " with ranks " +
          shape.ranks_name() + " and batch " + std::to_string(x.size(0)) +
          ", which its WhyUnsupported() does not refuse: " + what.substr(0, what.find('\n')) +
          "; return a reason there, or compute it");
    }
  }
};

TEST_P(VariantTest, EqualsTheOracle) {
  int cases = 0;
  for (const TtShape& shape : Shapes()) {
    for (const int64_t batch : {1, 2, 7, 33}) {
      const Reference& reference = ReferenceOf(shape, batch);
      for (const DType dtype : kDTypes) {
        if (!Supports(shape, batch, Phase::kTrain, dtype)) continue;
        // A gradient of one element is a sum that may cancel, and the roundings of its terms are
        // large beside it.
        if (dtype == DType::kBFloat16 && shape.dense_parameters() == 1) continue;
        SCOPED_TRACE(shape.modes_name() + " ranks " + shape.ranks_name() + " b" +
                     std::to_string(batch) + " " + Name(dtype));
        ++cases;
        const double tolerance = Tolerance(shape, dtype);
        const at::ScalarType type = ScalarTypeOf(dtype);
        const at::Tensor x = reference.X(type).requires_grad_();
        std::vector<at::Tensor> parameters = reference.Parameters(variant(), type);
        for (at::Tensor& parameter : parameters) parameter.requires_grad_();

        const at::Tensor y = Forward(shape, x, parameters);
        ASSERT_EQ(y.sizes(), (at::IntArrayRef{batch, shape.out_features()}));
        EXPECT_EQ(y.scalar_type(), type);
        EXPECT_LE(MaxRelativeError(y, reference.result.y), tolerance)
            << "y of '" << variant().name() << "' is not the oracle's: correct Forward()";
        ASSERT_TRUE(y.requires_grad())
            << "y of '" << variant().name() << "' has no history: compute it by differentiable "
            << "operators or a torch::autograd::Function";

        torch::autograd::backward({y}, {reference.Dy(type)});
        const std::string wrong_gradient =
            "' is not the oracle's: correct the backward of '" + variant().name() + "'";
        ASSERT_TRUE(x.grad().defined()) << "x got no gradient from '" << variant().name() << "'";
        EXPECT_EQ(x.grad().sizes(), x.sizes());
        EXPECT_LE(MaxRelativeError(x.grad(), reference.result.dx), tolerance)
            << "the gradient of 'x" << wrong_gradient;
        for (size_t i = 0; i < parameters.size(); ++i) {
          ASSERT_TRUE(parameters[i].grad().defined())
              << "parameter " << i + 1 << " got no gradient from '" << variant().name() << "'";
          EXPECT_EQ(parameters[i].grad().sizes(), parameters[i].sizes());
          EXPECT_LE(MaxRelativeError(parameters[i].grad(), variant().is_dense()
                                                               ? reference.dweight
                                                               : reference.result.dcores[i]),
                    tolerance)
              << "the gradient of 'parameter " << i + 1 << wrong_gradient;
        }

        const at::NoGradGuard no_grad;
        EXPECT_LE(MaxRelativeError(Forward(shape, x, parameters), reference.result.y), tolerance)
            << "without autograd";
      }
    }
  }
  EXPECT_GT(cases, 0) << "the variant supports none of the shapes";
}

// Central differences of sum(y * dy) in float64. y is linear in each single element of x, a core or
// a weight, so that they carry no error but rounding, even with a step of 1/2.
TEST_P(VariantTest, GradientsAreCentralDifferences) {
  std::mt19937_64 random(3);
  for (const TtShape& shape : Shapes()) {
    constexpr int64_t kBatch = 3;
    if (!Supports(shape, kBatch, Phase::kTrain, DType::kFloat64)) continue;
    SCOPED_TRACE(shape.modes_name() + " ranks " + shape.ranks_name());
    const Reference& reference = ReferenceOf(shape, kBatch);
    const at::Tensor dy = reference.Dy(at::kDouble);
    std::vector<at::Tensor> leaves = reference.Parameters(variant(), at::kDouble);
    leaves.insert(leaves.begin(), reference.X(at::kDouble));
    auto forward = [&] { return Forward(shape, leaves[0], at::TensorList(leaves).slice(1)); };
    for (at::Tensor& leaf : leaves) leaf.requires_grad_();
    torch::autograd::backward({forward()}, {dy});

    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < leaves.size(); ++i) {
      const at::Tensor gradient = leaves[i].grad().contiguous();
      const double largest = gradient.abs().max().item<double>();
      double* element = leaves[i].mutable_data_ptr<double>();
      for (int draw = 0; draw < 6; ++draw) {
        const int64_t at =
            static_cast<int64_t>(random() % static_cast<uint64_t>(leaves[i].numel()));
        const double value = element[at];
        auto loss_at = [&](double moved) {
          element[at] = moved;
          return forward().mul(dy).sum().item<double>();
        };
        const double difference = loss_at(value + 0.5) - loss_at(value - 0.5);
        element[at] = value;
        EXPECT_NEAR(gradient.const_data_ptr<double>()[at], difference, 1e-11 * (1 + largest))
            << (i == 0 ? "x" : "parameter " + std::to_string(i)) << ", element " << at;
      }
    }
  }
}

TEST_P(VariantTest, GivesGradientsOnlyWhereAsked) {
  for (const TtShape& shape : FewShapes()) {
    if (!Supports(shape, 5, Phase::kTrain, DType::kFloat32)) continue;
    SCOPED_TRACE(shape.modes_name());
    const Reference& reference = ReferenceOf(shape, 5);
    const std::vector<at::Tensor> parameters = reference.Parameters(variant(), at::kFloat);
    for (size_t leaf = 0; leaf <= parameters.size(); ++leaf) {
      std::vector<at::Tensor> inputs = reference.Parameters(variant(), at::kFloat);
      inputs.insert(inputs.begin(), reference.X(at::kFloat));
      inputs[leaf].requires_grad_();
      const at::Tensor y = Forward(shape, inputs[0], at::TensorList(inputs).slice(1));
      torch::autograd::backward({y}, {reference.Dy(at::kFloat)});
      for (size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_EQ(inputs[i].grad().defined(), i == leaf) << i << " of " << leaf;
      }
      const std::vector<double>& want = leaf == 0              ? reference.result.dx
                                        : variant().is_dense() ? reference.dweight
                                                               : reference.result.dcores[leaf - 1];
      EXPECT_LE(MaxRelativeError(inputs[leaf].grad(), want), Tolerance(shape, DType::kFloat32));
    }
  }
}

TEST_P(VariantTest, OutputIsContiguousAndAliasesNothing) {
  for (const TtShape& shape : Shapes()) {
    for (const int64_t batch : {1, 7}) {
      const Reference& reference = ReferenceOf(shape, batch);
      for (const bool with_grad : {false, true}) {
        if (!Supports(shape, batch, with_grad ? Phase::kTrain : Phase::kInference,
                      DType::kFloat32)) {
          continue;
        }
        SCOPED_TRACE(shape.modes_name() + " b" + std::to_string(batch));
        const at::AutoGradMode mode(with_grad);
        std::vector<at::Tensor> inputs = reference.Parameters(variant(), at::kFloat);
        inputs.insert(inputs.begin(), reference.X(at::kFloat));
        for (at::Tensor& input : inputs) input.requires_grad_();
        const at::Tensor y = Forward(shape, inputs[0], at::TensorList(inputs).slice(1));
        EXPECT_TRUE(y.is_contiguous());
        EXPECT_EQ(y.storage_offset(), 0);
        EXPECT_EQ(y.storage().nbytes(), static_cast<size_t>(y.numel()) * sizeof(float));
        for (const at::Tensor& input : inputs) {
          EXPECT_FALSE(y.is_alias_of(input))
              << "y of '" << variant().name() << "' shares its memory with x or a parameter: "
              << "Forward() has to return a tensor of its own; clone() it";
        }
        EXPECT_EQ(y.requires_grad(), with_grad);
        EXPECT_EQ(y.grad_fn() != nullptr, with_grad);
      }
    }
  }
}

TEST_P(VariantTest, LeavesItsInputsAlone) {
  for (const TtShape& shape : FewShapes()) {
    if (!Supports(shape, 5, Phase::kTrain, DType::kFloat32)) continue;
    SCOPED_TRACE(shape.modes_name());
    const Reference& reference = ReferenceOf(shape, 5);
    std::vector<at::Tensor> inputs = reference.Parameters(variant(), at::kFloat);
    inputs.insert(inputs.begin(), reference.X(at::kFloat));
    std::vector<at::Tensor> before;
    for (at::Tensor& input : inputs) {
      before.push_back(input.clone());
      input.requires_grad_();
    }
    const at::Tensor dy = reference.Dy(at::kFloat);
    torch::autograd::backward({Forward(shape, inputs[0], at::TensorList(inputs).slice(1))}, {dy});
    for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(inputs[i].equal(before[i])) << i;
    EXPECT_TRUE(dy.equal(reference.Dy(at::kFloat)));
  }
}

TEST_P(VariantTest, TakesNoRows) {
  for (const TtShape& shape : Shapes()) {
    if (!Supports(shape, 0, Phase::kTrain, DType::kFloat32)) continue;
    SCOPED_TRACE(shape.modes_name());
    const Reference& reference = ReferenceOf(shape, 1);
    std::vector<at::Tensor> inputs = reference.Parameters(variant(), at::kFloat);
    inputs.insert(inputs.begin(), at::empty({0, shape.in_features()}));
    for (at::Tensor& input : inputs) input.requires_grad_();
    const at::Tensor y = Forward(shape, inputs[0], at::TensorList(inputs).slice(1));
    ASSERT_EQ(y.sizes(), (at::IntArrayRef{0, shape.out_features()}));
    torch::autograd::backward({y}, {at::empty({0, shape.out_features()})});
    for (size_t i = 1; i < inputs.size(); ++i) {
      EXPECT_EQ(inputs[i].grad().abs().max().item<float>(), 0) << "parameter " << i;
    }
  }
}

TEST_P(VariantTest, RepeatsBitForBitOnOneThread) {
  for (const TtShape& shape : FewShapes()) {
    for (const DType dtype : kDTypes) {
      constexpr int64_t kBatch = 33;
      if (!Supports(shape, kBatch, Phase::kTrain, dtype)) continue;
      const Reference& reference = ReferenceOf(shape, kBatch);
      const at::ScalarType type = ScalarTypeOf(dtype);
      std::vector<at::Tensor> first;
      for (int run = 0; run < 3; ++run) {
        std::vector<at::Tensor> inputs = reference.Parameters(variant(), type);
        inputs.insert(inputs.begin(), reference.X(type));
        for (at::Tensor& input : inputs) input.requires_grad_();
        std::vector<at::Tensor> results{Forward(shape, inputs[0], at::TensorList(inputs).slice(1))};
        torch::autograd::backward({results[0]}, {reference.Dy(type)});
        for (const at::Tensor& input : inputs) results.push_back(input.grad());
        if (run == 0) first = results;
        for (size_t i = 0; i < results.size(); ++i) {
          EXPECT_TRUE(results[i].equal(first[i]))
              << shape.modes_name() << " " << Name(dtype) << ", result " << i;
        }
      }
    }
  }
}

TEST_P(VariantTest, NamesItself) {
  const std::string name = variant().name();
  EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos);
  EXPECT_EQ(FindLinearVariant(name), &variant());
  EXPECT_NE(variant().Algorithm({TtShape::Cube(3, 4, 2), 5, Phase::kTrain, DType::kFloat32}), "");
  EXPECT_GT(variant().planning_gflops(), 0);
}

std::vector<const LinearVariant*> CpuVariants() {
  std::vector<const LinearVariant*> variants;
  for (const auto& variant : LinearVariants()) {
    if (variant->RunsOn(Device::kCpu)) variants.push_back(variant.get());
  }
  return variants;
}

INSTANTIATE_TEST_SUITE_P(Registry, VariantTest, testing::ValuesIn(CpuVariants()),
                         [](const auto& info) {
                           std::string name = info.param->name();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(LinearVariantsTest, BaselineComesFirstAndTheRestByName) {
  const std::vector<const LinearVariant*> variants = CpuVariants();
  ASSERT_GE(variants.size(), 2u);
  EXPECT_EQ(variants[0]->name(), kBaselineVariant);
  EXPECT_TRUE(std::is_sorted(
      variants.begin() + 1, variants.end(),
      [](const LinearVariant* a, const LinearVariant* b) { return a->name() < b->name(); }));
  EXPECT_EQ(FindLinearVariant("no such variant"), nullptr);
}

}  // namespace
}  // namespace ttbench
