#include "benchmarks/fingerprint.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "benchmarks/child_process.h"

namespace ttbench {
namespace {

using nlohmann::ordered_json;

// The first line a command prints; "" if it fails.
std::string FirstLineOf(const std::string& command) {
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"),
                                             pclose);
  std::array<char, 256> line{};
  if (!pipe || !std::fgets(line.data(), line.size(), pipe.get())) return "";
  const std::string text = line.data();
  return text.substr(0, text.find('\n'));
}

// Of the workspace that `bazel run` was called in; with "-dirty" if files differ from it.
std::string GitRevision() {
  const char* workspace = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (!workspace || std::string(workspace).find('\'') != std::string::npos) return "";
  return FirstLineOf("git -C '" + std::string(workspace) + "' describe --always --dirty");
}

std::string GemmLibrary() {
  if (!at::hasMKL()) return "LibTorch without MKL";
  const std::string version = at::get_mkl_version();
  return version.substr(0, version.find('\n'));
}

ordered_json MachineJson(const Machine& machine) {
  return {{"cpu_model", machine.cpu_model},
          {"vector_extensions", machine.vector_extensions},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"l1_data_bytes", machine.l1_data_bytes},
          {"l2_bytes", machine.l2_bytes},
          {"l3_bytes", machine.l3_bytes},
          {"kernel", machine.kernel},
          {"compiler", machine.compiler}};
}

}  // namespace

std::string PeakKey(DType dtype, int64_t threads) {
  return std::string(Name(dtype)) + "/t" + std::to_string(threads);
}

Peaks MeasurePeaks(const Machine& machine, const std::set<int64_t>& threads) {
  const ChildResult child = RunInChild(
      [&] {
        Peaks peaks;
        for (int64_t t : threads) {
          const int count = static_cast<int>(t);
          const std::string suffix = "/t" + std::to_string(t);
          peaks.fma_gflops[PeakKey(DType::kFloat32, t)] = MeasureFmaPeakFloat32(count);
          peaks.fma_gflops[PeakKey(DType::kFloat64, t)] = MeasureFmaPeakFloat64(count);
          peaks.bandwidth_gb_per_s["memory" + suffix] =
              MeasureBandwidth(count, BeyondCachesBytes(machine) / t);
          if (machine.l2_bytes > 0) {
            peaks.bandwidth_gb_per_s["l2" + suffix] = MeasureBandwidth(count, machine.l2_bytes / 2);
          }
        }
        return nlohmann::json::array({peaks.fma_gflops, peaks.bandwidth_gb_per_s}).dump();
      },
      std::chrono::minutes(1));
  if (child.end != ChildResult::End::kExited || child.exit_code != 0) return {};
  const nlohmann::json found = nlohmann::json::parse(child.output);
  return {found.at(0), found.at(1)};
}

ordered_json DescribeRun(const Machine& machine, const Peaks& peaks) {
  ordered_json info;
  info["machine"] = MachineJson(machine);
  info["libtorch"] = TORCH_VERSION;
  info["gemm_library"] = GemmLibrary();
  info["cuda"] = nullptr;
  info["gpu"] = nullptr;
  info["git_revision"] = GitRevision();
  info["fma_peak_gflops"] = peaks.fma_gflops;
  info["bandwidth_gb_per_s"] = peaks.bandwidth_gb_per_s;
  std::vector<std::string> warnings = Doubts(machine);
  if (at::hasMKL() && machine.cpu_model.find("AMD") != std::string::npos &&
      machine.vector_extensions.find("avx512") != std::string::npos) {
    warnings.push_back(
        "MKL, the GEMM library behind `dense`, runs AVX2 code on AMD processors and leaves their "
        "AVX-512 unused; compare with `dense-onednn` as well");
  }
  info["warnings"] = warnings;
  return info;
}

std::string DifferenceOfMachines(const ordered_json& info, const Machine& machine) {
  const ordered_json now = MachineJson(machine);
  for (const char* key : {"cpu_model", "vector_extensions", "cores"}) {
    const ordered_json& then = info.at("machine").at(key);
    if (then != now.at(key))
      return std::string(key) + " was " + then.dump() + ", is " + now.at(key).dump();
  }
  if (info.at("libtorch") != TORCH_VERSION) {
    return "libtorch was " + info.at("libtorch").dump() + ", is " TORCH_VERSION;
  }
  return "";
}

}  // namespace ttbench
