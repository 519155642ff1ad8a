// What the fused variants promise beyond every variant's contract: the model's bytes, the same bits
// on every run and right results at any number of threads, and any layout of inputs.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "benchmarks/linear_workload.h"
#include "benchmarks/memory_pass.h"
#include "benchmarks/reference.h"
#include "kernels/cost/linear_cost.h"
#include "kernels/tt_linear.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

constexpr uint64_t kSeed = 3;

const std::vector<TtShape>& Shapes() {
  static const auto* shapes = new std::vector<TtShape>{
      TtShape::Cube(3, 8, 4),
      TtShape::Cube(2, 20, 9),
      TtShape({2, 5, 41}, {10, 14, 15}, {8, 8}),
      TtShape({2, 3, 4, 2, 3, 2}, {2, 2, 4, 2, 2, 3}, {2, 3, 4, 3, 2}),
      TtShape({1, 3, 5}, {3, 1, 4}, {1, 3}),
  };
  return *shapes;
}

class FusedTest : public testing::TestWithParam<std::string> {
 protected:
  ~FusedTest() override { at::set_num_threads(1); }
  const LinearVariant& variant() const { return *FindLinearVariant(GetParam()); }
};

TEST_P(FusedTest, BytesAreTheModelsAndResultsRightOnAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 8}) {
    at::set_num_threads(threads);
    for (const TtShape& shape : Shapes()) {
      for (const int64_t batch : {1, 77}) {
        for (const DType dtype : kDTypes) {
          const LinearProblem problem{shape, batch, Phase::kTrain, dtype, threads};
          if (!variant().WhySkipped(problem).empty()) continue;
          SCOPED_TRACE(shape.modes_name() + " b" + std::to_string(batch) + " " + Name(dtype) +
                       " t" + std::to_string(threads));
          const LinearReference reference = MakeReference(problem, kSeed);
          const MeasuredMemory measured =
              MeasureMemory(LinearWorkload(variant(), problem), kSeed, 0, &reference);
          EXPECT_EQ(CompareWithModel(measured, PredictLinearCost(variant(), problem)), "");
          EXPECT_LE(measured.max_relative_error, Tolerance(shape, dtype));
        }
      }
    }
  }
}

// More rows than a block of them that bfloat16 is widened by.
TEST_P(FusedTest, BytesAreTheModelsAndResultsRightForManyRowsOfBFloat16) {
  for (const int threads : {1, 2, 8}) {
    at::set_num_threads(threads);
    for (const TtShape& shape : {TtShape::Cube(2, 6, 35), TtShape({3, 4, 5}, {5, 4, 3}, {4, 6})}) {
      const LinearProblem problem{shape, 700, Phase::kTrain, DType::kBFloat16, threads};
      ASSERT_EQ(variant().WhySkipped(problem), "");
      EXPECT_EQ(variant().WhyPeaksUnmodelled(problem), "");
      const LinearWorkload workload(variant(), problem);
      const auto reference = workload.MakeReference(kSeed);
      const MeasuredMemory measured = MeasureMemory(workload, kSeed, 0, reference.get());
      EXPECT_EQ(CompareWithModel(measured, PredictLinearCost(variant(), problem)), "");
      EXPECT_LE(measured.max_relative_error, Tolerance(problem));
    }
  }
}

TEST_P(FusedTest, RepeatsBitForBitOnAnyNumberOfThreads) {
  const TtShape shape({6, 5, 7}, {4, 9, 8}, {7, 5});
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int threads : {1, 2, 3, 8}) {
      SCOPED_TRACE(std::string(c10::toString(dtype)) + " t" + std::to_string(threads));
      at::set_num_threads(threads);
      std::vector<at::Tensor> inputs = {at::rand({250, shape.in_features()}, dtype)};
      for (int64_t k = 0; k < shape.cores(); ++k) {
        inputs.push_back(at::rand(shape.CoreSizes(k), dtype));
      }
      const at::Tensor dy = at::rand({250, shape.out_features()}, dtype);
      std::vector<at::Tensor> first;
      for (int run = 0; run < 5; ++run) {
        for (at::Tensor& input : inputs) {
          input.requires_grad_();
          input.mutable_grad() = at::Tensor();
        }
        std::vector<at::Tensor> results = {
            variant().Forward(shape, inputs[0], at::TensorList(inputs).slice(1))};
        torch::autograd::backward({results[0]}, {dy});
        for (const at::Tensor& input : inputs) results.push_back(input.grad());
        if (run == 0) first = results;
        for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(results[i].equal(first[i])) << i;
      }
    }
  }
}

// Contiguous inputs that begin inside a storage, at no vector's boundary, and a dy that is a view.
TEST_P(FusedTest, TakesInputsAtAnyOffset) {
  const TtShape shape({3, 4, 5}, {5, 4, 3}, {4, 6});
  auto shifted = [](const at::Tensor& t) {
    at::Tensor moved = at::empty({t.numel() + 3}).slice(0, 3).view(t.sizes());
    moved.copy_(t);
    return moved;
  };
  std::vector<at::Tensor> plain = {at::rand({21, shape.in_features()})}, moved;
  for (int64_t k = 0; k < shape.cores(); ++k) plain.push_back(at::rand(shape.CoreSizes(k)));
  for (at::Tensor& t : plain) moved.push_back(shifted(t));
  const at::Tensor dy = at::rand({21, shape.out_features()});
  const at::Tensor strided = dy.t().contiguous().t();
  ASSERT_FALSE(strided.is_contiguous());
  std::vector<at::Tensor> results;
  for (auto* inputs : {&plain, &moved}) {
    for (at::Tensor& t : *inputs) t.requires_grad_();
    const at::Tensor y = variant().Forward(shape, (*inputs)[0], at::TensorList(*inputs).slice(1));
    torch::autograd::backward({y}, {inputs == &plain ? dy : strided});
    results.push_back(y);
    for (at::Tensor& t : *inputs) results.push_back(t.grad());
  }
  const size_t half = results.size() / 2;
  for (size_t i = 0; i < half; ++i) EXPECT_TRUE(results[i].equal(results[half + i])) << i;
}

TEST_P(FusedTest, TakesStridedInputsThroughTheModule) {
  const TtShape shape({3, 4, 5}, {5, 4, 3}, {4, 6});
  TtLinear layer(shape, TtLinearOptions().variant(GetParam()));
  const at::Tensor strided = at::rand({shape.in_features(), 21}).t();
  ASSERT_FALSE(strided.is_contiguous());
  EXPECT_TRUE(layer->forward(strided).equal(layer->forward(strided.contiguous())));
}

INSTANTIATE_TEST_SUITE_P(Variants, FusedTest, testing::Values("fused", "fused-panel"),
                         [](const auto& info) {
                           return info.param == "fused" ? "Fused" : "FusedPanel";
                         });

// Training and inference peaks of `fused` against the dense layer's, wherever it has at most half
// of the dense parameters.
TEST(FusedMemoryTest, NeverNeedsMoreThanDense) {
  const LinearVariant& fused = *FindLinearVariant("fused");
  const LinearVariant& dense = *FindLinearVariant(kBaselineVariant);
  for (const int64_t d : {4, 5, 8, 16, 20}) {
    for (const int64_t rank : {1, 2, 4, 8, 16, 32}) {
      const TtShape shape = TtShape::Cube(3, d, rank);
      if (2 * shape.parameters() > shape.dense_parameters()) continue;
      for (const int64_t batch : {1, 32, 1024}) {
        for (const int64_t threads : {1, 2, 8}) {
          for (const Phase phase : {Phase::kInference, Phase::kTrain}) {
            const LinearProblem problem{shape, batch, phase, DType::kFloat32, threads};
            EXPECT_LE(*PredictLinearCost(fused, problem).bytes.peak,
                      *PredictLinearCost(dense, problem).bytes.peak)
                << "d" << d << " r" << rank << " b" << batch << " t" << threads << " "
                << Name(phase);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ttbench
