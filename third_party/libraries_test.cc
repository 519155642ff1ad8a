// Each library that the suite stands on links and gives right values.
#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <libxsmm.h>
#include <rapidcheck.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

TEST(LibTorchTest, Matmul) {
  const at::Tensor a = at::tensor({1.0, 2.0, 3.0, 4.0}).reshape({2, 2});
  const at::Tensor b = at::tensor({5.0, 6.0, 7.0, 8.0}).reshape({2, 2});
  const at::Tensor c = at::matmul(a, b);
  const std::vector<double> values(c.data_ptr<double>(), c.data_ptr<double>() + c.numel());
  EXPECT_EQ(values, (std::vector<double>{19, 22, 43, 50}));
}

TEST(LibxsmmTest, DispatchedKernelMultiplies) {
  // Column-major C[m, n] += A[m, k] * B[k, n], of small integers: exact in float.
  const int m = 5, n = 7, k = 3;
  const libxsmm_smmfunction kernel =
      libxsmm_smmdispatch(m, n, k, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
  if (kernel == nullptr) GTEST_SKIP() << "LIBXSMM generates no code for this CPU";
  std::vector<float> a(m * k), b(k * n), c(m * n, 1.0f), expected(m * n, 1.0f);
  for (int i = 0; i < m * k; ++i) a[i] = static_cast<float>(i - 4);
  for (int i = 0; i < k * n; ++i) b[i] = static_cast<float>(2 * i - 9);
  for (int j = 0; j < n; ++j) {
    for (int p = 0; p < k; ++p) {
      for (int i = 0; i < m; ++i) expected[j * m + i] += a[p * m + i] * b[j * k + p];
    }
  }
  kernel(a.data(), b.data(), c.data());
  EXPECT_EQ(c, expected);
}

class CountingReporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) iterations += run.iterations;
  }
  int64_t iterations = 0;
};

TEST(GoogleBenchmarkTest, RunsOneIterationForACustomReporter) {
  int calls = 0;
  benchmark::RegisterBenchmark("one", [&calls](benchmark::State& state) {
    for ([[maybe_unused]] auto _ : state) ++calls;
  })->Iterations(1);
  CountingReporter reporter;
  EXPECT_EQ(benchmark::RunSpecifiedBenchmarks(&reporter), 1u);
  EXPECT_EQ(reporter.iterations, 1);
  EXPECT_EQ(calls, 1);
}

TEST(Cli11Test, Parses) {
  CLI::App app;
  std::vector<int> ranks;
  std::string phase;
  app.add_option("--rank", ranks)->delimiter(',');
  app.add_option("--phase", phase);
  app.parse("--rank=2,8 --phase=train");
  EXPECT_EQ(ranks, (std::vector<int>{2, 8}));
  EXPECT_EQ(phase, "train");
  EXPECT_THROW(app.parse("--rank=two"), CLI::ConversionError);
}

TEST(JsonTest, RoundTrip) {
  const std::string text = R"({"bytes":9223372036854775807,"cpu":"x \"y\"","peak":0.1})";
  const nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["bytes"].get<int64_t>(), INT64_MAX);
  EXPECT_EQ(json["cpu"], "x \"y\"");
  EXPECT_EQ(json.dump(), text);
}

TEST(FmtTest, Formats) {
  EXPECT_EQ(fmt::format("{}x{:02}: {:.3g}", 16, 8, 2.0 / 3.0), "16x08: 0.667");
}

TEST(RapidCheckTest, HoldsAndRefutes) {
  EXPECT_TRUE(rc::check("reversing twice changes nothing", [](const std::vector<int>& values) {
    std::vector<int> twice = values;
    std::reverse(twice.begin(), twice.end());
    std::reverse(twice.begin(), twice.end());
    RC_ASSERT(twice == values);
  }));
  EXPECT_FALSE(rc::check("no element is negative", [](const std::vector<int>& values) {
    for (int value : values) RC_ASSERT(value >= 0);
  }));
}

}  // namespace
