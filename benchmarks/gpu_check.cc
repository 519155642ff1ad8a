// Everything that a machine with a GPU is asked, in one program that needs no Bazel there
// (benchmarks/gpu_check_run.py finds it LibTorch and calls it; docs/gpu.md).
//
//   gpu_check device                what the device is, as JSON; or why there is none
//   gpu_check tests [gtest flags]   every test of the device that is linked into it
//   gpu_check sweep [sweep flags]   //benchmarks:sweep
//
// Exit codes: those of the sweep; of `device` and `tests`, 3 without a device, and of `tests`, 1 if
// one fails.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "benchmarks/cuda_device.h"
#include "benchmarks/fingerprint.h"
#include "benchmarks/sweep.h"

namespace {

constexpr int kExitNoDevice = 3;

// In a child: what comes after may fork.
bool HasDevice(ttbench::GpuProbe* probe) {
  *probe = ttbench::ProbeGpuInChild();
  if (probe->why_not.empty()) return true;
  std::fprintf(stderr, "gpu_check: %s\n", probe->why_not.c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  ttbench::GpuProbe probe;
  if (command == "device") {
    if (!HasDevice(&probe)) return kExitNoDevice;
    std::printf("%s\n", probe.description.dump(2).c_str());
    return ttbench::kExitOk;
  }
  if (command == "tests") {
    if (!HasDevice(&probe)) return kExitNoDevice;
    int rest = argc - 1;
    testing::InitGoogleTest(&rest, argv + 1);
    return RUN_ALL_TESTS() == 0 ? ttbench::kExitOk : ttbench::kExitFailed;
  }
  if (command == "sweep") return ttbench::SweepMain(argc - 1, argv + 1, "//benchmarks:sweep");
  std::fprintf(stderr, "gpu_check: say `device`, `tests` or `sweep`, not '%s'\n", command.c_str());
  return ttbench::kExitUsage;
}
