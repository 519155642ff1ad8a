#include "benchmarks/cuda_device.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/cuda_settings.h"

namespace ttbench {
namespace {

using c10::CachingAllocator::StatType;
using nlohmann::ordered_json;

std::string VersionName(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string VersionOfCublas() {
  int parts[3] = {};
  const libraryPropertyType properties[3] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
  for (int i = 0; i < 3; ++i) cublasGetProperty(properties[i], &parts[i]);
  return std::to_string(parts[0]) + "." + std::to_string(parts[1]) + "." + std::to_string(parts[2]);
}

c10::CachingDeviceAllocator::DeviceStats Stats() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0);
}

template <typename StatArray>
const auto& Total(const StatArray& stats) {
  return stats[static_cast<size_t>(StatType::AGGREGATE)];
}

// NVML as far as it is needed, loaded when it is: the library comes with the driver, its header
// with few toolkits. Signatures and numbers: NVML API reference guide.
class Nvml {
 public:
  using Handle = void*;
  static constexpr int kSmClock = 1, kMemoryClock = 2, kGpuTemperature = 0;  // nvmlClockType_t, ..

  Nvml() {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    char bus_id[32];
    if (!library_ || cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, 0) != cudaSuccess) return;
    const auto init = Load<int (*)()>("nvmlInit_v2");
    const auto find = Load<int (*)(const char*, Handle*)>("nvmlDeviceGetHandleByPciBusId_v2");
    ready_ = init && find && init() == kSuccess && find(bus_id, &device_) == kSuccess;
  }

  // What a function of the device gives; false if the library lacks it or the device does not know.
  template <typename Value, typename... Arguments>
  bool Get(const char* name, Value* value, Arguments... arguments) const {
    if (!ready_) return false;
    const auto function = Load<int (*)(Handle, Arguments..., Value*)>(name);
    return function && function(device_, arguments..., value) == kSuccess;
  }

 private:
  static constexpr int kSuccess = 0;  // nvmlReturn_t

  template <typename Function>
  Function Load(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }

  void* library_ = nullptr;  // Stays loaded.
  Handle device_ = nullptr;
  bool ready_ = false;
};

std::string Hex(unsigned long long value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", value);
  return text;
}

}  // namespace

GpuProbe ProbeGpu() {
  GpuProbe probe;
  int devices = 0, driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    probe.why_not = "no CUDA device: there is no NVIDIA driver";
    return probe;
  }
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    probe.why_not = std::string("no CUDA device: ") +
                    (error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists none");
    return probe;
  }
  cudaDeviceProp properties{};
  const cudaError_t read = cudaGetDeviceProperties(&properties, 0);
  if (read != cudaSuccess) {
    probe.why_not = std::string("the CUDA device cannot be used: ") + cudaGetErrorString(read);
    return probe;
  }
  const std::string capability =
      std::to_string(properties.major) + "." + std::to_string(properties.minor);
  if (10 * properties.major + properties.minor < kLeastComputeCapability) {
    probe.why_not = std::string(properties.name) + " has compute capability " + capability +
                    "; 8.0 or later is needed";
    return probe;
  }
  size_t free_bytes = 0, total_bytes = 0;
  const cudaError_t opened = cudaMemGetInfo(&free_bytes, &total_bytes);
  if (opened != cudaSuccess) {
    probe.why_not = std::string("the CUDA device cannot be used: ") + cudaGetErrorString(opened);
    return probe;
  }
  probe.free_bytes = static_cast<int64_t>(free_bytes);
  const Nvml nvml;
  unsigned power_limit_mw = 0, clock = 0;
  ordered_json& about = probe.description;
  about = {{"name", properties.name},
           {"compute_capability", capability},
           {"multiprocessors", properties.multiProcessorCount},
           {"memory_bytes", total_bytes},
           {"free_bytes", free_bytes},
           {"l2_bytes", properties.l2CacheSize},
           {"shared_bytes_per_block", properties.sharedMemPerBlockOptin},
           {"driver_cuda", VersionName(driver)},
           {"runtime", VersionName(runtime)},
           {"cublas", VersionOfCublas()}};
  if (nvml.Get("nvmlDeviceGetPowerManagementLimit", &power_limit_mw))
    about["power_limit_w"] = power_limit_mw / 1000.0;
  if (nvml.Get("nvmlDeviceGetMaxClockInfo", &clock, Nvml::kSmClock))
    about["max_sm_clock_mhz"] = clock;
  if (nvml.Get("nvmlDeviceGetMaxClockInfo", &clock, Nvml::kMemoryClock))
    about["max_memory_clock_mhz"] = clock;
  return probe;
}

void SetUpDevice(const DeviceSettings& settings, int64_t budget_bytes) {
  CudaSettings& chosen = CurrentCudaSettings();
  chosen.tf32 = settings.tf32;
  at::globalContext().setAllowTF32CuBLAS(settings.tf32);
  if (settings.cublas_workspace_bytes > 0) {
    chosen.cublas_workspace_bytes = settings.cublas_workspace_bytes;
    const std::string kib = std::to_string(settings.cublas_workspace_bytes >> 10);
    // LibTorch reads both when it makes its first handle: so many KiB, once.
    setenv("CUBLAS_WORKSPACE_CONFIG", (":" + kib + ":1").c_str(), 1);
    setenv("CUBLASLT_WORKSPACE_SIZE", kib.c_str(), 1);
  }
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  if (budget_bytes > 0) {
    size_t free_bytes = 0, total_bytes = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    c10::cuda::CUDACachingAllocator::setMemoryFraction(
        std::min(1.0, static_cast<double>(budget_bytes) / static_cast<double>(total_bytes)), 0);
  }
}

void SynchronizeDevice() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

DeviceMeter::DeviceMeter() { ResetPeak(); }

int64_t DeviceMeter::live_bytes() const { return Total(Stats().requested_bytes).current; }
int64_t DeviceMeter::peak_bytes() const { return Total(Stats().requested_bytes).peak; }
void DeviceMeter::ResetPeak() { c10::cuda::CUDACachingAllocator::resetPeakStats(0); }

void DeviceMeter::BeginIteration() {
  ResetPeak();
  stages_.clear();
  allocated_peak_bytes_ = reserved_peak_bytes_ = 0;
}

void DeviceMeter::EndStage(const std::string& stage) {
  const auto stats = Stats();
  const int64_t allocated = Total(stats.allocated_bytes).peak;
  const int64_t reserved = Total(stats.reserved_bytes).peak;
  stages_.emplace_back(stage + "_allocated_peak_bytes", std::to_string(allocated));
  stages_.emplace_back(stage + "_reserved_peak_bytes", std::to_string(reserved));
  allocated_peak_bytes_ = std::max(allocated_peak_bytes_, allocated);
  reserved_peak_bytes_ = std::max(reserved_peak_bytes_, reserved);
}

NamedFigures DeviceMeter::Figures() const {
  NamedFigures figures = stages_;
  figures.emplace_back("allocated_peak_bytes", std::to_string(allocated_peak_bytes_));
  figures.emplace_back("reserved_peak_bytes", std::to_string(reserved_peak_bytes_));
  size_t free_bytes = 0, total_bytes = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  figures.emplace_back("driver_used_bytes", std::to_string(total_bytes - free_bytes));
  return figures;
}

struct DeviceTimer::State {
  void* flushed = nullptr;
  size_t flushed_bytes = 0;
  std::vector<cudaEvent_t> events;  // Begin and end of each timed stretch.

  cudaEvent_t Event(size_t i) {
    while (events.size() <= i) {
      cudaEvent_t event = nullptr;
      C10_CUDA_CHECK(cudaEventCreate(&event));
      events.push_back(event);
    }
    return events[i];
  }
};

// Outside LibTorch's allocator, so that the meter does not see it.
DeviceTimer::DeviceTimer(bool flush_cache) : state_(std::make_unique<State>()) {
  if (!flush_cache) return;
  int l2_bytes = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, 0));
  state_->flushed_bytes = 2 * static_cast<size_t>(l2_bytes);
  C10_CUDA_CHECK(cudaMalloc(&state_->flushed, state_->flushed_bytes));
}

DeviceTimer::~DeviceTimer() {
  for (const cudaEvent_t event : state_->events) cudaEventDestroy(event);
  cudaFree(state_->flushed);
}

double DeviceTimer::Time(int64_t iterations, const std::function<void()>& run) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream().stream();
  // Without a flush one stretch over all runs, so that recording events costs none of them.
  const bool flush = state_->flushed != nullptr;
  const size_t stretches = flush ? static_cast<size_t>(iterations) : 1;
  const int64_t runs = flush ? 1 : iterations;
  state_->Event(2 * stretches - 1);
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  for (size_t i = 0; i < stretches; ++i) {
    if (flush) C10_CUDA_CHECK(cudaMemsetAsync(state_->flushed, 0, state_->flushed_bytes, stream));
    C10_CUDA_CHECK(cudaEventRecord(state_->Event(2 * i), stream));
    for (int64_t r = 0; r < runs; ++r) run();
    C10_CUDA_CHECK(cudaEventRecord(state_->Event(2 * i + 1), stream));
  }
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  double ns = 0;
  for (size_t i = 0; i < stretches; ++i) {
    float milliseconds = 0;
    C10_CUDA_CHECK(
        cudaEventElapsedTime(&milliseconds, state_->Event(2 * i), state_->Event(2 * i + 1)));
    ns += 1e6 * static_cast<double>(milliseconds);
  }
  return ns;
}

NamedFigures ReadConditions() {
  const Nvml nvml;
  NamedFigures figures;
  unsigned value = 0;
  int state = 0;
  unsigned long long reasons = 0;
  if (nvml.Get("nvmlDeviceGetClockInfo", &value, Nvml::kSmClock))
    figures.emplace_back("sm_clock_mhz", std::to_string(value));
  if (nvml.Get("nvmlDeviceGetClockInfo", &value, Nvml::kMemoryClock))
    figures.emplace_back("memory_clock_mhz", std::to_string(value));
  if (nvml.Get("nvmlDeviceGetPowerUsage", &value))
    figures.emplace_back("power_w", std::to_string(value / 1000));
  if (nvml.Get("nvmlDeviceGetTemperature", &value, Nvml::kGpuTemperature))
    figures.emplace_back("temperature_c", std::to_string(value));
  if (nvml.Get("nvmlDeviceGetPerformanceState", &state))
    figures.emplace_back("performance_state", "P" + std::to_string(state));
  if (nvml.Get("nvmlDeviceGetCurrentClocksEventReasons", &reasons))
    figures.emplace_back("throttle_reasons", Hex(reasons));
  return figures;
}

}  // namespace ttbench
