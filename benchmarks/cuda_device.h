// A CUDA device as measuring needs it: is there one, what it holds, how long work on it takes, and
// in which state it is. Built with --config=cuda (cuda_device.cc); without, ProbeGpu() says so, and
// nothing else here may be called (cuda_device_none.cc).
//
// A process that has used the driver cannot fork children that use it. The sweep forks: all of this
// is called in its children alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/device.h"

namespace ttbench {

// The oldest compute capability that kernels are compiled for, times ten.
inline constexpr int kLeastComputeCapability = 80;

// Why --device=cuda cannot run here, as a reason for a row; "" if it can.
struct GpuProbe {
  std::string why_not;
  int64_t free_bytes = 0;  // Of its memory, now.
  // For run.json: name, compute capability, memory, L2, multiprocessors, driver, runtime, cuBLAS,
  // power limit and clocks. null without a device.
  nlohmann::ordered_json description;
};
GpuProbe ProbeGpu();

// A column and its value; values that cannot be had are empty.
using NamedFigures = std::vector<std::pair<std::string, std::string>>;

// The columns of device.csv after the cell's, in order (docs/gpu.md).
const std::vector<std::string>& DeviceColumns();

// Chooses TF32 and the workspace for this process, before its first product, and caps what LibTorch
// may take of the device's memory (budget_bytes = 0: no cap).
void SetUpDevice(const DeviceSettings& settings, int64_t budget_bytes);

// Waits until all work given to the device is done. Throws c10::Error if it failed.
void SynchronizeDevice();

// Counts by LibTorch's caching allocator: requested bytes, as the meter of the CPU does; and beside
// them what the allocator handed out (rounded up to its block sizes) and what it holds of the
// driver.
class DeviceMeter {
 public:
  DeviceMeter();
  int64_t live_bytes() const;
  int64_t peak_bytes() const;  // Since construction or the last ResetPeak().
  void ResetPeak();
  // From now on stages count anew.
  void BeginIteration();
  // Notes what was handed out and held at most since the last ResetPeak(), as `stage`: "forward",
  // "backward", "step".
  void EndStage(const std::string& stage);
  int64_t reserved_peak_bytes() const { return reserved_peak_bytes_; }
  // Of the iteration: columns of device.csv.
  NamedFigures Figures() const;

 private:
  NamedFigures stages_;
  int64_t allocated_peak_bytes_ = 0, reserved_peak_bytes_ = 0;
};

// Times by events on the current stream.
class DeviceTimer {
 public:
  // flush_cache: before every run, a buffer of twice the L2 cache is overwritten, untimed.
  explicit DeviceTimer(bool flush_cache);
  ~DeviceTimer();
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;
  // Calls run() so many times and returns the nanoseconds that the device took for all. Returns
  // once it is done.
  double Time(int64_t iterations, const std::function<void()>& run);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Clocks, power, temperature and what holds the clocks down, by NVML if it is there: columns of
// device.csv.
NamedFigures ReadConditions();

}  // namespace ttbench
