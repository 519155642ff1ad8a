#include <stdexcept>

#include "benchmarks/cuda_device.h"

namespace ttbench {
namespace {

constexpr const char* kWhy = "built without CUDA; build with --config=cuda";

[[noreturn]] void Refuse() { throw std::logic_error(kWhy); }

}  // namespace

GpuProbe ProbeGpu() { return {kWhy, 0, nullptr}; }

struct DeviceTimer::State {};

void SetUpDevice(const DeviceSettings&, int64_t) { Refuse(); }
void SynchronizeDevice() { Refuse(); }
DeviceMeter::DeviceMeter() { Refuse(); }
int64_t DeviceMeter::live_bytes() const { Refuse(); }
int64_t DeviceMeter::peak_bytes() const { Refuse(); }
void DeviceMeter::ResetPeak() { Refuse(); }
void DeviceMeter::BeginIteration() { Refuse(); }
void DeviceMeter::EndStage(const std::string&) { Refuse(); }
NamedFigures DeviceMeter::Figures() const { Refuse(); }
DeviceTimer::DeviceTimer(bool) { Refuse(); }
DeviceTimer::~DeviceTimer() = default;
double DeviceTimer::Time(int64_t, const std::function<void()>&) { Refuse(); }
NamedFigures ReadConditions() { Refuse(); }

}  // namespace ttbench
