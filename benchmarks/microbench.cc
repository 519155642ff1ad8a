// The registry as a plain Google Benchmark program with its usual flags, for kernel writers:
//   bazel run //benchmarks:microbench -- --benchmark_filter=sequential/16x16x16.*/r8/b512/train
// Benchmarks are named as cells are. Nothing is checked here; the sweep does that.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <benchmark/benchmark.h>

#include <optional>
#include <string>

#include "benchmarks/cell.h"
#include "benchmarks/linear_run.h"
#include "benchmarks/machine.h"
#include "benchmarks/memory_meter.h"
#include "kernels/cost/linear_cost.h"

namespace ttbench {
namespace {

void RunCellBenchmark(benchmark::State& state, const Cell& cell) {
  const LinearVariant& variant = *FindLinearVariant(cell.variant);
  at::set_num_threads(static_cast<int>(cell.problem.threads));
  LinearRun run(variant, cell.problem, 1, LinearRun::DenseWeight::kPattern);
  at::Tensor dy;
  if (cell.problem.phase == Phase::kTrain) dy = run.MakeDy();
  for (auto _ : state) {
    at::Tensor y = run.Forward();
    if (dy.defined()) {
      run.Backward(y, dy);
      run.ClearGradients();
    }
    benchmark::DoNotOptimize(y);
  }
  const LinearCost cost = PredictLinearCost(variant, cell.problem);
  state.counters["FLOP/s"] = benchmark::Counter(static_cast<double>(cost.flops),
                                                benchmark::Counter::kIsIterationInvariantRate);
  state.counters["peak_bytes"] = static_cast<double>(*cost.bytes.peak);
  state.SetLabel(variant.Algorithm(cell.problem));
}

// What the memory meter costs an allocation; timing passes run without it.
void RunMeterBenchmark(benchmark::State& state, bool metered) {
  std::optional<MemoryMeter> meter;
  if (metered) meter.emplace();
  for (auto _ : state) benchmark::DoNotOptimize(at::empty({256}, at::kFloat));
}

void RegisterAll(int64_t threads) {
  benchmark::RegisterBenchmark("meter/off", RunMeterBenchmark, false);
  benchmark::RegisterBenchmark("meter/on", RunMeterBenchmark, true);
  for (const auto& variant : LinearVariants()) {
    for (int64_t d : {8, 16}) {
      for (int64_t rank : {4, 8, 16}) {
        for (int64_t batch : {1, 64, 512}) {
          for (Phase phase : {Phase::kInference, Phase::kTrain}) {
            if (variant->is_dense() && rank != 4) continue;
            const Cell cell{variant->name(),
                            variant->is_dense(),
                            {TtShape::Cube(3, d, rank), batch, phase, DType::kFloat32, threads},
                            rank,
                            "cpu"};
            if (!variant->WhyUnsupported(cell.problem).empty()) continue;
            benchmark::RegisterBenchmark(cell.Name().c_str(), RunCellBenchmark, cell)
                ->UseRealTime()
                ->Unit(benchmark::kMicrosecond);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ttbench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  ttbench::RegisterAll(ttbench::ReadMachine().cores);
  if (benchmark::RunSpecifiedBenchmarks() == 0) return 3;
  benchmark::Shutdown();
}
