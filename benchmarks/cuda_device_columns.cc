#include "benchmarks/cuda_device.h"

namespace ttbench {

const std::vector<std::string>& DeviceColumns() {
  static const auto* columns = new std::vector<std::string>{"forward_allocated_peak_bytes",
                                                            "forward_reserved_peak_bytes",
                                                            "backward_allocated_peak_bytes",
                                                            "backward_reserved_peak_bytes",
                                                            "step_allocated_peak_bytes",
                                                            "step_reserved_peak_bytes",
                                                            "allocated_peak_bytes",
                                                            "reserved_peak_bytes",
                                                            "driver_used_bytes",
                                                            "sm_clock_mhz",
                                                            "memory_clock_mhz",
                                                            "power_w",
                                                            "temperature_c",
                                                            "performance_state",
                                                            "throttle_reasons"};
  return *columns;
}

}  // namespace ttbench
