// The network with every variant in its position-wise layers: losses and gradients are those of the
// float64 network, measured bytes are the model's, in every phase and precision.
#include "benchmarks/transformer_xl_workload.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "benchmarks/memory_pass.h"
#include "benchmarks/transformer_xl_run.h"
#include "kernels/variant.h"
#include "networks/transformer_xl/transformer_xl_cost.h"

namespace ttbench {
namespace {

constexpr uint64_t kSeed = 3;

// Sizes at which the products are as large as LibTorch's other code paths want them.
std::vector<TransformerXlProblem> Problems(const std::string& variant) {
  TransformerXlProblem problem;
  TransformerXlOptions& network = problem.network;
  network.layers = 2;
  network.d_model = 12;
  network.heads = 3;
  network.d_head = 4;
  network.d_inner = 24;
  network.target_len = 6;
  network.memory_len = 4;
  network.vocabulary = 50;
  network.cutoffs = {10, 18, 40};
  network.feed_forward_variant = variant;
  network.up = TtShape({2, 3, 2}, {2, 4, 3}, {3, 2});
  network.down = TtShape({2, 3, 4}, {3, 2, 2}, {2, 4});
  problem.batch = 3;
  std::vector<TransformerXlProblem> problems{problem};

  network.memory_len = 6;
  problems.push_back(problem);
  network.memory_len = 9;
  network.cutoffs.clear();
  problem.batch = 2;
  problems.push_back(problem);
  network.memory_len = 0;
  problem.batch = 1;
  problems.push_back(problem);
  // Clusters in which there are no targets.
  network.vocabulary = 3000;
  network.cutoffs = {2900, 2950};
  problems.push_back(problem);
  // The published factors.
  network = CompressedWt103Base(variant, 3);
  network.layers = 1;
  network.vocabulary = 300;
  network.cutoffs = {40, 90};
  network.target_len = 7;
  network.memory_len = 7;
  problem.batch = 2;
  problems.push_back(problem);
  return problems;
}

class TransformerXlWorkloadTest : public testing::TestWithParam<std::string> {
 protected:
  ~TransformerXlWorkloadTest() override { at::set_num_threads(1); }

  template <typename Check>
  void ForEachProblem(const Check& check) const {
    int cases = 0;
    for (TransformerXlProblem problem : Problems(GetParam())) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
        for (const Phase phase : kPhases) {
          problem.dtype = dtype;
          problem.phase = phase;
          const TransformerXlWorkload workload(problem, 3);
          if (!workload.WhyUnsupported().empty()) continue;
          SCOPED_TRACE(SizeName(problem) + " b" + std::to_string(problem.batch) + " " +
                       Name(phase) + " " + Name(dtype));
          ++cases;
          check(problem, workload);
        }
      }
    }
    EXPECT_GT(cases, 0);
  }
};

void ExpectModel(const MeasuredMemory& measured, const Workload& workload) {
  const CellCost model = workload.Predict();
  const std::string difference =
      CompareWithModel(measured, model, workload.WhyPeaksUnmodelled().empty());
  ASSERT_EQ(difference, "") << ShowBesideModel(measured, model);
}

TEST_P(TransformerXlWorkloadTest, ResultsAreTheReferencesAndBytesTheModels) {
  at::set_num_threads(1);
  ForEachProblem([&](const TransformerXlProblem& problem, const TransformerXlWorkload& workload) {
    const TransformerXlReference reference = MakeTransformerXlReference(problem, kSeed);
    const MeasuredMemory measured = MeasureMemory(workload, kSeed, 0, &reference);
    EXPECT_LE(measured.max_relative_error, Tolerance(problem)) << measured.max_error_of;
    ExpectModel(measured, workload);
  });
}

TEST_P(TransformerXlWorkloadTest, BytesAreTheModelsOnTwoThreads) {
  ForEachProblem([&](TransformerXlProblem problem, const TransformerXlWorkload&) {
    if (problem.phase != Phase::kTrain || problem.dtype != DType::kFloat32) return;
    problem.threads = 2;
    at::set_num_threads(2);
    const TransformerXlWorkload workload(problem, 3);
    ExpectModel(MeasureMemory(workload, kSeed, 0), workload);
  });
}

INSTANTIATE_TEST_SUITE_P(Family, TransformerXlWorkloadTest,
                         testing::ValuesIn(TransformerXlVariants()), [](const auto& variant) {
                           std::string name = variant.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace ttbench
