// The registry as a plain Google Benchmark program with its usual flags, for kernel writers:
//   bazel run //benchmarks:microbench -- --benchmark_filter=sequential/16x16x16.*/r8/b512/train
// Benchmarks are named as cells are. Nothing is checked here; the sweep does that.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <benchmark/benchmark.h>

#include <memory>
#include <optional>

#include "benchmarks/cell.h"
#include "benchmarks/linear_workload.h"
#include "benchmarks/machine.h"
#include "benchmarks/memory_meter.h"

namespace ttbench {
namespace {

void RunCellBenchmark(benchmark::State& state, const Cell& cell) {
  at::set_num_threads(static_cast<int>(cell.setting().threads));
  const std::unique_ptr<PhaseRun> run = cell.workload->MakeRun(1, /*checked=*/false);
  PhaseRun::Tensors dy;
  if (cell.setting().phase == Phase::kTrain) dy = run->MakeDy(nullptr);
  for (auto _ : state) {
    PhaseRun::Tensors y = run->Forward();
    if (!dy.empty()) {
      run->Backward(y, dy);
      run->ClearGradients();
    }
    benchmark::DoNotOptimize(y.data());
  }
  const CellCost cost = cell.workload->Predict();
  state.counters["FLOP/s"] = benchmark::Counter(static_cast<double>(cost.flops),
                                                benchmark::Counter::kIsIterationInvariantRate);
  state.counters["peak_bytes"] = static_cast<double>(*cost.bytes.peak);
  state.SetLabel(cell.workload->Algorithm());
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
            const Cell cell = LinearCell(
                variant->name(),
                {TtShape::Cube(3, d, rank), batch, phase, DType::kFloat32, threads}, rank);
            if (!cell.workload->WhyUnsupported().empty()) continue;
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
