// What machine this is, how fast it can be, and what would make its figures doubtful.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace ttbench {

// Facts that are read, not measured. Fields that cannot be read are empty or 0.
struct Machine {
  // "AMD EPYC 9B45 (family 26 model 2)". Hypervisors shorten the name to "AMD EPYC", and the family
  // and model still tell Zen 4 from Zen 5. On Arm "Arm Neoverse-V2", or the numbers of the part.
  std::string cpu_model;
  std::string vector_extensions;  // The widest of avx512f, avx2, sse2 (or asimd on Arm).
  int64_t cores = 0;              // Cores this process may run on (affinity and cgroup).
  int64_t memory_bytes = 0;       // MemTotal, or the cgroup's limit where that is less.
  int64_t l1_data_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // One core's L1d and L2; the L3 it sees.
  std::string kernel;                                     // "Linux 6.1.0"
  std::string compiler;                                   // "g++ 12.2.0"
  bool debug_build = false;                               // NDEBUG is not defined.
};

Machine ReadMachine();

// Memory that can be had now: MemAvailable, or what the cgroup leaves where that is less.
int64_t AvailableMemoryBytes();

// Reasons to doubt the times taken now, one sentence each: a debug build; a load average above a
// quarter of the cores; a CPU frequency governor other than performance where one can be read;
// less than a twentieth of the memory left. Empty on a quiet machine.
std::vector<std::string> Doubts(const Machine& machine);

// The best rate of independent fused multiply-adds in GFLOP/s (one FMA is two FLOPs) that `threads`
// threads reach together with the widest vectors the CPU has, over `milliseconds`: what
// `fraction_of_peak` is against. Enough accumulators to hide the latency of two FMA units, each
// started at another value (equal ones are folded into one by the compiler).
//
// The time is cut into slices of about 2 ms that all threads start together. A slice's rate is its
// FLOPs over the wall time until the slowest thread is done; the best slice counts, so that a
// neighbour's burst does not lower the figure.
double MeasureFmaPeakFloat32(int threads, int milliseconds = 100);
double MeasureFmaPeakFloat64(int threads, int milliseconds = 100);

// The rate in GB/s (1e9 bytes) at which `threads` threads together run the triad a = b + s c over
// float arrays of their own, `bytes_per_thread` each in all: the roof over kernels that are bound
// by moving data. Counted as STREAM does: the bytes that the program reads (b, c) and writes (a),
// 12 for each element, and not the lines of a that a cache may read before they are written. The
// best of ten passes that all threads start together; over a small array a pass repeats.
double MeasureBandwidth(int threads, int64_t bytes_per_thread);

// Bytes over all threads that no cache of the machine holds: four times the L3, from 64 MiB up to
// 512 MiB so that measuring stays short.
int64_t BeyondCachesBytes(const Machine& machine);

// What the functions above make of the text of system files.
namespace internal {

std::string CpuModel(const std::string& cpuinfo);                            // /proc/cpuinfo
std::string VectorExtensions(const std::string& cpuinfo);                    // /proc/cpuinfo
int64_t MeminfoBytes(const std::string& meminfo, const std::string& field);  // "MemTotal"; 0: none

struct Caches {
  int64_t l1_data_bytes = 0, l2_bytes = 0, l3_bytes = 0;
};
// directory: /sys/devices/system/cpu/cpu<n>/cache
Caches ReadCaches(const std::string& directory);

// The tightest of the limits on a process's control groups and their ancestors, version 1 or 2.
struct CgroupLimits {
  double cores = std::numeric_limits<double>::infinity();
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
  // The limit less what is in use; file cache that can be dropped does not count as used.
  int64_t memory_left_bytes = std::numeric_limits<int64_t>::max();
};
// mount: /sys/fs/cgroup; self_cgroup: the text of /proc/self/cgroup
CgroupLimits ReadCgroupLimits(const std::string& mount, const std::string& self_cgroup);

struct Conditions {
  double load_average = 0;  // Over one minute.
  std::string governor;     // "performance"; "" where none can be read.
  int64_t available_memory_bytes = 0;
};
std::vector<std::string> Doubts(const Machine& machine, const Conditions& conditions);

}  // namespace internal

}  // namespace ttbench
