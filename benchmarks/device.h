// The device axis of a sweep: where a cell runs, and what is chosen for that device.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/problem.h"

namespace ttbench {

struct DeviceSettings {
  Device device = Device::kCpu;
  // Of CUDA devices alone. float32 products on tensor cores, their operands rounded to TF32.
  bool tf32 = false;
  // What cuBLAS is given to work in, whole KiB; 0: the library's default.
  int64_t cublas_workspace_bytes = 0;

  bool is_cuda() const { return device == Device::kCuda; }
  // The part of a cell's name, and the row's `device`: "cpu", "cuda", "cuda-tf32-ws8192KiB".
  std::string Label() const {
    std::string label = Name(device);
    if (tf32) label += "-tf32";
    if (cublas_workspace_bytes > 0)
      label += "-ws" + std::to_string(cublas_workspace_bytes >> 10) + "KiB";
    return label;
  }
  // The flags that say the same.
  std::string Flags() const {
    std::string flags = std::string("--device=") + Name(device);
    if (tf32) flags += " --tf32=on";
    if (cublas_workspace_bytes > 0)
      flags += " --cublas-workspace=" + std::to_string(cublas_workspace_bytes >> 10) + "KiB";
    return flags;
  }
};

}  // namespace ttbench
