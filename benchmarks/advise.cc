// Predicts, for a layer of one's own, memory and time of every variant:
//   bazel run //benchmarks:advise -- --shape=2x5x41:10x14x15 --rank=8 --batch=64
// Memory is exact, by the cost models; times are FLOPs over rates that are measured first, on that
// very layer at a few batches.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "benchmarks/advice.h"
#include "benchmarks/calibration.h"
#include "benchmarks/cell_runner.h"
#include "benchmarks/fingerprint.h"
#include "benchmarks/flags.h"
#include "benchmarks/machine.h"
#include "benchmarks/sweep.h"
#include "benchmarks/usage_error.h"

namespace ttbench {
namespace {

constexpr const char* kHelp =
    R"(Predicts memory and time of every variant for a layer of your own, what `auto` picks, and the
batches at which the answer changes. Memory is exact, by the cost models. Times come from rates
measured now, on this machine and this layer, at batches up to 256.

  --shape=768:3072       the layer: plain sizes, or modes as in 8x8x12:12x16x16
  --d=16                 or a cube: all modes d
  --cores=3              TT cores, for --d and plain sizes
  --factor-order=...     ascending, descending or balanced, for plain sizes
  --rank=8               all inner ranks
  --batch=1,64,512       rows of x (tokens)
  --phase=...            inference, train, step-sgd, step-adam [inference,train]
  --variant=...          names or globs [all]
  --dtype=float32        float32, float64, bfloat16
  --threads=...          threads [all cores]

Lists a,b,c and ranges 2:32:x2 are taken everywhere. Exit code: 0; 2 for usage.
)";

int Run(const std::vector<std::string>& arguments) {
  const std::set<std::string> taken = {"shape", "d",     "cores",   "factor-order", "rank",
                                       "batch", "phase", "variant", "dtype",        "threads"};
  for (const std::string& argument : arguments) {
    const std::string name = argument.substr(0, argument.find('='));
    if (name == "--help" || name == "-h") {
      std::fputs(kHelp, stdout);
      return kExitOk;
    }
    if (name.rfind("--", 0) == 0 && !taken.count(name.substr(2))) {
      throw UsageError(name + ": advise takes no such flag; --help lists what it takes");
    }
  }
  auto is_layer = [](const std::string& argument) {
    const std::string name = argument.substr(0, argument.find('='));
    return name == "--shape" || name == "--d";
  };
  if (std::none_of(arguments.begin(), arguments.end(), is_layer)) {
    throw UsageError("there is no layer to advise on: give --shape=768:3072, or --d=16 for a cube");
  }
  const Machine machine = ReadMachine();
  std::string help;
  const std::optional<SweepFlags> flags = ParseSweepFlags(arguments, machine.cores, &help);
  for (const std::string& doubt : Doubts(machine)) {
    std::fprintf(stderr, "warning: %s\n", doubt.c_str());
  }
  const Grid& grid = flags->grids.front();
  CalibrationOptions options;
  options.only_contenders = false;
  options.memory_bytes = AvailableMemoryBytes() / 2;
  options.peak_gflops =
      MeasurePeaks(machine, {grid.threads.begin(), grid.threads.end()}).fma_gflops;
  WarmUp();
  bool first = true;
  for (const int64_t rank : grid.ranks)
    for (const TtShape& shape : ShapesOf(grid, rank))
      for (const DType dtype : grid.dtypes)
        for (const int64_t threads : grid.threads) {
          LinearProblem layer{shape, 1, Phase::kInference, dtype, threads};
          std::set<Phase> timed;
          for (const Phase phase : grid.phases) {
            layer.phase = WithoutOptimizer(phase);
            if (!timed.insert(layer.phase).second) continue;
            options.variants = [&](const LinearProblem&) {
              std::vector<const LinearVariant*> variants = {FindLinearVariant(kBaselineVariant)};
              for (const std::string& name : grid.variants) {
                const LinearVariant* variant = FindLinearVariant(name);
                if (name != kBaselineVariant && name != "auto") variants.push_back(variant);
              }
              return variants;
            };
            for (const SpeedSample& sample : CalibrateLayer(layer, options)) {
              MeasuredSpeeds().Add(sample);
            }
          }
          std::printf("%s%s", first ? "" : "\n",
                      Advise(layer, grid.phases, grid.batches, grid.variants).c_str());
          first = false;
        }
  return kExitOk;
}

}  // namespace
}  // namespace ttbench

int main(int argc, char** argv) {
  using namespace ttbench;
  try {
    return Run({argv + 1, argv + argc});
  } catch (const UsageError& error) {
    std::fprintf(stderr, "advise: %s\n", error.what());
    return kExitUsage;
  } catch (const ShapeError& error) {
    std::fprintf(stderr, "advise: %s\n", error.what());
    return kExitUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "advise: %s\n", error.what());
    return kExitFailed;
  }
}
