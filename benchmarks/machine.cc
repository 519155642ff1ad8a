#include "benchmarks/machine.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace ttbench {
namespace {

namespace fs = std::filesystem;

// "" where there is no such file.
std::string ReadText(const fs::path& file) {
  std::ifstream in(file);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

std::string FirstWord(const std::string& text) {
  std::string word;
  std::istringstream(text) >> word;
  return word;
}

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// The value of the first "field : value" line; "" if there is none.
std::string Field(const std::string& text, const std::string& field) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && Trimmed(line.substr(0, colon)) == field) {
      return Trimmed(line.substr(colon + 1));
    }
  }
  return "";
}

// Nothing where there is no such file, or it says "max".
std::optional<int64_t> ReadNumber(const fs::path& file) {
  std::ifstream in(file);
  int64_t number;
  if (in >> number) return number;
  return std::nullopt;
}

// The number after the name in "name number" lines; 0 if there is none.
int64_t ReadNamedNumber(const fs::path& file, const std::string& wanted) {
  std::ifstream in(file);
  std::string name;
  int64_t number;
  while (in >> name >> number) {
    if (name == wanted) return number;
  }
  return 0;
}

std::optional<double> CgroupCores(const fs::path& group) {
  std::ifstream both(group / "cpu.max");  // Version 2: "200000 100000", or "max 100000".
  double quota = 0;
  double period = 0;
  if (both >> quota >> period) return quota / period;
  const std::optional<int64_t> quota_us = ReadNumber(group / "cpu.cfs_quota_us");
  const std::optional<int64_t> period_us = ReadNumber(group / "cpu.cfs_period_us");
  if (!quota_us || *quota_us < 0 || !period_us) return std::nullopt;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

void ApplyLimits(const fs::path& group, internal::CgroupLimits& limits) {
  if (const std::optional<double> cores = CgroupCores(group)) {
    limits.cores = std::min(limits.cores, *cores);
  }
  std::optional<int64_t> limit = ReadNumber(group / "memory.max");
  int64_t used = ReadNumber(group / "memory.current").value_or(0) -
                 ReadNamedNumber(group / "memory.stat", "inactive_file");
  if (!limit) {
    limit = ReadNumber(group / "memory.limit_in_bytes");
    used = ReadNumber(group / "memory.usage_in_bytes").value_or(0) -
           ReadNamedNumber(group / "memory.stat", "total_inactive_file");
  }
  if (!limit) return;
  limits.memory_bytes = std::min(limits.memory_bytes, *limit);
  limits.memory_left_bytes =
      std::min(limits.memory_left_bytes, std::max<int64_t>(0, *limit - std::max<int64_t>(0, used)));
}

internal::CgroupLimits ReadOwnCgroupLimits() {
  return internal::ReadCgroupLimits("/sys/fs/cgroup", ReadText("/proc/self/cgroup"));
}

// The numbers of the CPUs that this thread may run on.
std::vector<int> CpusInAffinity() {
  for (int most = 1024;; most *= 2) {
    cpu_set_t* const set = CPU_ALLOC(most);
    const size_t bytes = CPU_ALLOC_SIZE(most);
    const bool fits = sched_getaffinity(0, bytes, set) == 0;
    const bool too_small = !fits && errno == EINVAL;
    std::vector<int> cpus;
    for (int cpu = 0; fits && cpu < most; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (!too_small) return cpus;
  }
}

void PinThisThread(int cpu) {
  cpu_set_t* const set = CPU_ALLOC(cpu + 1);
  const size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
  CPU_ZERO_S(bytes, set);
  CPU_SET_S(cpu, bytes, set);
  sched_setaffinity(0, bytes, set);
  CPU_FREE(set);
}

fs::path OwnCpuDirectory() {
  return "/sys/devices/system/cpu/cpu" + std::to_string(std::max(0, sched_getcpu()));
}

std::string Compiler() {
#if defined(__clang__)
  return "clang++ " + FirstWord(__clang_version__);
#else
  return "g++ " + FirstWord(__VERSION__);
#endif
}

std::string MiB(int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// ---- The peak rates of fused multiply-adds and of moving data ----

// Two FMA units with a latency of up to five cycles need ten accumulators. Twelve, the factor and
// the addend fit in the sixteen registers of AVX2.
constexpr int kAccumulators = 12;

// Defines a function that runs `rounds` rounds of one multiply-add on each accumulator, in vectors
// of `Vector`, and returns something that depends on all of them. `target` is an attribute that
// admits the instructions; a template would not do, since it cannot take them on from an argument.
// The values converge to 1: they stay finite, normal and unequal to the compiler.
#define TTBENCH_FMA_ROUNDS(name, target, Scalar, Vector, broadcast, multiply_add) \
  target Scalar name(int64_t rounds) {                                            \
    Vector acc[kAccumulators];                                                    \
    for (int i = 0; i < kAccumulators; ++i) {                                     \
      acc[i] = broadcast(static_cast<Scalar>(i + 2));                             \
    }                                                                             \
    const Vector factor = broadcast(static_cast<Scalar>(0.75));                   \
    const Vector addend = broadcast(static_cast<Scalar>(0.25));                   \
    for (int64_t round = 0; round < rounds; ++round) {                            \
      _Pragma("GCC unroll 12") for (int i = 0; i < kAccumulators; ++i) {          \
        acc[i] = multiply_add(acc[i], factor, addend);                            \
      }                                                                           \
    }                                                                             \
    Scalar sum = 0;                                                               \
    for (const Vector& vector : acc) sum += vector[0];                            \
    return sum;                                                                   \
  }

// Defines the triad a = b + s c over whole vectors of `Vector`, in the compiler's own notation.
#define TTBENCH_TRIAD(name, target, Vector)                                                        \
  target void name(float* a, const float* b, const float* c, int64_t elements) {                   \
    typedef Vector Lanes __attribute__((may_alias));                                               \
    constexpr int64_t kLanes = sizeof(Lanes) / sizeof(float);                                      \
    const Lanes scale = 0.5f - Lanes{};                                                            \
    _Pragma("GCC unroll 4") for (int64_t i = 0; i < elements; i += kLanes) {                       \
      *reinterpret_cast<Lanes*>(a + i) =                                                           \
          *reinterpret_cast<const Lanes*>(b + i) + scale * *reinterpret_cast<const Lanes*>(c + i); \
    }                                                                                              \
  }

using Triad = void (*)(float* a, const float* b, const float* c, int64_t elements);

template <typename Scalar>
struct FmaRounds {
  Scalar (*run)(int64_t rounds);
  int lanes;
};

#if defined(__aarch64__)

#define TTBENCH_NEON_F32(a, b, c) vfmaq_f32(c, a, b)
#define TTBENCH_NEON_F64(a, b, c) vfmaq_f64(c, a, b)
TTBENCH_FMA_ROUNDS(NeonFloat32, , float, float32x4_t, vdupq_n_f32, TTBENCH_NEON_F32)
TTBENCH_FMA_ROUNDS(NeonFloat64, , double, float64x2_t, vdupq_n_f64, TTBENCH_NEON_F64)
#undef TTBENCH_NEON_F32
#undef TTBENCH_NEON_F64
TTBENCH_TRIAD(NeonTriad, , float32x4_t)

FmaRounds<float> WidestFloat32() { return {NeonFloat32, 4}; }
FmaRounds<double> WidestFloat64() { return {NeonFloat64, 2}; }
Triad WidestTriad() { return NeonTriad; }

#else

// Vectors of 16 bytes in the compiler's own notation, multiplied and then added.
template <typename Scalar>
struct Portable {
  typedef Scalar Vector __attribute__((vector_size(16)));
  static Vector Broadcast(Scalar value) { return value - Vector{}; }
  static Vector MultiplyAdd(Vector a, Vector b, Vector c) { return a * b + c; }
};
TTBENCH_FMA_ROUNDS(PortableFloat32, , float, Portable<float>::Vector, Portable<float>::Broadcast,
                   Portable<float>::MultiplyAdd)
TTBENCH_FMA_ROUNDS(PortableFloat64, , double, Portable<double>::Vector, Portable<double>::Broadcast,
                   Portable<double>::MultiplyAdd)
TTBENCH_TRIAD(PortableTriad, , Portable<float>::Vector)

#if defined(__x86_64__)

#define TTBENCH_AVX512 __attribute__((target("avx512f")))
#define TTBENCH_AVX2 __attribute__((target("avx2,fma")))
TTBENCH_FMA_ROUNDS(Avx512Float32, TTBENCH_AVX512, float, __m512, _mm512_set1_ps, _mm512_fmadd_ps)
TTBENCH_FMA_ROUNDS(Avx512Float64, TTBENCH_AVX512, double, __m512d, _mm512_set1_pd, _mm512_fmadd_pd)
TTBENCH_FMA_ROUNDS(Avx2Float32, TTBENCH_AVX2, float, __m256, _mm256_set1_ps, _mm256_fmadd_ps)
TTBENCH_FMA_ROUNDS(Avx2Float64, TTBENCH_AVX2, double, __m256d, _mm256_set1_pd, _mm256_fmadd_pd)
TTBENCH_TRIAD(Avx512Triad, TTBENCH_AVX512, __m512)
TTBENCH_TRIAD(Avx2Triad, TTBENCH_AVX2, __m256)
#undef TTBENCH_AVX512
#undef TTBENCH_AVX2

bool HasAvx512() { return __builtin_cpu_supports("avx512f"); }
bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

FmaRounds<float> WidestFloat32() {
  if (HasAvx512()) return {Avx512Float32, 16};
  if (HasAvx2()) return {Avx2Float32, 8};
  return {PortableFloat32, 4};
}

FmaRounds<double> WidestFloat64() {
  if (HasAvx512()) return {Avx512Float64, 8};
  if (HasAvx2()) return {Avx2Float64, 4};
  return {PortableFloat64, 2};
}

Triad WidestTriad() {
  if (HasAvx512()) return Avx512Triad;
  if (HasAvx2()) return Avx2Triad;
  return PortableTriad;
}

#else

FmaRounds<float> WidestFloat32() { return {PortableFloat32, 4}; }
FmaRounds<double> WidestFloat64() { return {PortableFloat64, 2}; }
Triad WidestTriad() { return PortableTriad; }

#endif
#endif
#undef TTBENCH_FMA_ROUNDS
#undef TTBENCH_TRIAD

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kSlice{2};

// Lets `threads` threads go on together, again and again. Waiting spins for a slice's time before
// it yields: a thread that yields at once gives its core to a neighbour for longer than a slice.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}

  void Wait() {
    const int64_t arrival = arrived_.fetch_add(1);
    const int64_t all = (arrival / threads_ + 1) * threads_;
    const Clock::time_point patience = Clock::now() + kSlice;
    while (arrived_.load() < all) {
      if (Clock::now() > patience) std::this_thread::yield();
    }
  }

 private:
  const int64_t threads_;
  std::atomic<int64_t> arrived_{0};
};

// How many rounds take one thread about a slice; running them also wakes the wide units.
template <typename Scalar>
int64_t RoundsPerSlice(const FmaRounds<Scalar>& fma) {
  for (int64_t rounds = 1 << 10;; rounds *= 2) {
    const Clock::time_point start = Clock::now();
    volatile Scalar consumed = fma.run(rounds);
    static_cast<void>(consumed);
    const std::chrono::duration<double> took = Clock::now() - start;
    if (2 * took >= kSlice) {
      return std::max<int64_t>(1, static_cast<int64_t>(rounds * (kSlice / took)));
    }
  }
}

// The wall time of the best of `slices` slices of work, from the first thread's start until the
// slowest is done. prepare(i) is called on thread i and returns its work for a slice.
template <typename Prepare>
Clock::duration BestSlice(int threads, int slices, const Prepare& prepare) {
  struct Span {
    Clock::time_point start, end;
  };
  std::vector<std::vector<Span>> spans(threads, std::vector<Span>(slices));
  Barrier barrier(threads);
  // With a thread for every CPU each gets its own, or a neighbour drives two onto one. With fewer
  // the system chooses better: it knows which CPUs share a core.
  const std::vector<int> cpus = CpusInAffinity();
  const bool pinned = cpus.size() == static_cast<size_t>(threads);
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) {
    workers.emplace_back([&, i] {
      if (pinned) PinThisThread(cpus[i]);
      const auto work = prepare(i);
      for (Span& span : spans[i]) {
        barrier.Wait();
        span.start = Clock::now();
        work();
        span.end = Clock::now();
      }
    });
  }
  for (std::thread& worker : workers) worker.join();

  Clock::duration best = Clock::duration::max();
  for (int slice = 0; slice < slices; ++slice) {
    Clock::time_point first = Clock::time_point::max();
    Clock::time_point last = Clock::time_point::min();
    for (const std::vector<Span>& own : spans) {
      first = std::min(first, own[slice].start);
      last = std::max(last, own[slice].end);
    }
    best = std::min(best, last - first);
  }
  return best;
}

template <typename Scalar>
double MeasureFmaPeak(const FmaRounds<Scalar>& fma, int threads, int milliseconds) {
  if (threads < 1) throw std::invalid_argument("the FMA peak needs at least one thread");
  const int64_t rounds = RoundsPerSlice(fma);
  const int slices = std::max(1, static_cast<int>(milliseconds / kSlice.count()));
  const Clock::duration best = BestSlice(threads, slices, [&](int) {
    return [&] {
      volatile Scalar consumed = fma.run(rounds);
      static_cast<void>(consumed);
    };
  });
  const double flops = 2.0 * kAccumulators * fma.lanes * static_cast<double>(rounds) * threads;
  return flops / std::chrono::duration<double, std::nano>(best).count();
}

}  // namespace

namespace internal {

std::string CpuModel(const std::string& cpuinfo) {
  const std::string name = Field(cpuinfo, "model name");
  const std::string family = Field(cpuinfo, "cpu family");
  if (!family.empty()) {
    return name + " (family " + family + " model " + Field(cpuinfo, "model") + ")";
  }
  if (!name.empty()) return name;
  const std::string implementer = Field(cpuinfo, "CPU implementer");
  const std::string part = Field(cpuinfo, "CPU part");
  if (implementer.empty()) return "";
  // Arm's numbers for its server cores, from the Main ID Register of each reference manual.
  const std::pair<const char*, const char*> cores[] = {
      {"0xd0c", "N1"}, {"0xd40", "V1"}, {"0xd49", "N2"}, {"0xd4f", "V2"}};
  for (const auto& [number, core] : cores) {
    if (implementer == "0x41" && part == number) return std::string("Arm Neoverse-") + core;
  }
  return "Arm implementer " + implementer + " part " + part;
}

std::string VectorExtensions(const std::string& cpuinfo) {
  std::istringstream words(Field(cpuinfo, "flags") + " " + Field(cpuinfo, "Features"));
  const std::set<std::string> flags(std::istream_iterator<std::string>(words), {});
  for (const char* const extension : {"avx512f", "avx2", "sse2", "asimd"}) {
    if (flags.count(extension) > 0) return extension;
  }
  return "";
}

int64_t MeminfoBytes(const std::string& meminfo, const std::string& field) {
  int64_t kilobytes = 0;
  std::istringstream(Field(meminfo, field)) >> kilobytes;
  return kilobytes * 1024;
}

Caches ReadCaches(const std::string& directory) {
  Caches caches;
  for (int i = 0;; ++i) {
    const fs::path index = fs::path(directory) / ("index" + std::to_string(i));
    std::istringstream size(ReadText(index / "size"));
    int64_t bytes = 0;
    char unit = '\0';
    if (!(size >> bytes)) return caches;
    size >> unit;
    if (unit == 'K') bytes <<= 10;
    if (unit == 'M') bytes <<= 20;
    const int64_t level = ReadNumber(index / "level").value_or(0);
    if (FirstWord(ReadText(index / "type")) == "Instruction") continue;
    if (level == 1) caches.l1_data_bytes = bytes;
    if (level == 2) caches.l2_bytes = bytes;
    if (level == 3) caches.l3_bytes = bytes;
  }
}

CgroupLimits ReadCgroupLimits(const std::string& mount, const std::string& self_cgroup) {
  CgroupLimits limits;
  std::istringstream lines(self_cgroup);
  std::string id, controllers, path;
  while (std::getline(lines, id, ':') && std::getline(lines, controllers, ':') &&
         std::getline(lines, path)) {
    // Version 2 has no controllers here, and sits in a folder of its own beside version 1.
    std::vector<std::string> folders;
    if (controllers.empty()) folders = {"", "unified"};
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');) {
      if (name == "cpu" || name == "memory") folders.push_back(name);
    }
    // In a container the path may be the host's and not be here; its own group is then the root.
    for (const std::string& folder : folders) {
      fs::path group;
      ApplyLimits(fs::path(mount) / folder, limits);
      for (const fs::path& part : fs::path(path).relative_path()) {
        group /= part;
        ApplyLimits(fs::path(mount) / folder / group, limits);
      }
    }
  }
  return limits;
}

std::vector<std::string> Doubts(const Machine& machine, const Conditions& conditions) {
  std::vector<std::string> doubts;
  if (machine.debug_build) {
    doubts.push_back("this is a debug build: its times mean nothing, build with -c opt");
  }
  if (conditions.load_average > 0.25 * static_cast<double>(machine.cores)) {
    std::ostringstream text;
    text.precision(2);
    text << std::fixed << "other work is running: the load average is " << conditions.load_average
         << " on " << machine.cores << (machine.cores == 1 ? " core" : " cores");
    doubts.push_back(text.str());
  }
  if (!conditions.governor.empty() && conditions.governor != "performance") {
    doubts.push_back("the CPU frequency governor is " + conditions.governor +
                     ", so the clock may change while measuring; performance holds it");
  }
  if (conditions.available_memory_bytes < machine.memory_bytes / 20) {
    doubts.push_back("memory is almost used up: " + MiB(conditions.available_memory_bytes) +
                     " of " + MiB(machine.memory_bytes) + " are left");
  }
  return doubts;
}

}  // namespace internal

Machine ReadMachine() {
  const std::string cpuinfo = ReadText("/proc/cpuinfo");
  const internal::CgroupLimits limits = ReadOwnCgroupLimits();
  Machine machine;
  machine.cpu_model = internal::CpuModel(cpuinfo);
  machine.vector_extensions = internal::VectorExtensions(cpuinfo);
  machine.cores = static_cast<int64_t>(CpusInAffinity().size());
  if (limits.cores < static_cast<double>(machine.cores)) {
    machine.cores = std::max<int64_t>(1, static_cast<int64_t>(limits.cores));
  }
  machine.memory_bytes =
      std::min(internal::MeminfoBytes(ReadText("/proc/meminfo"), "MemTotal"), limits.memory_bytes);
  const internal::Caches caches = internal::ReadCaches(OwnCpuDirectory() / "cache");
  machine.l1_data_bytes = caches.l1_data_bytes;
  machine.l2_bytes = caches.l2_bytes;
  machine.l3_bytes = caches.l3_bytes;
  utsname kernel;
  if (uname(&kernel) == 0) {
    machine.kernel = std::string(kernel.sysname) + " " + kernel.release;
  }
  machine.compiler = Compiler();
#ifndef NDEBUG
  machine.debug_build = true;
#endif
  return machine;
}

int64_t AvailableMemoryBytes() {
  return std::min(internal::MeminfoBytes(ReadText("/proc/meminfo"), "MemAvailable"),
                  ReadOwnCgroupLimits().memory_left_bytes);
}

std::vector<std::string> Doubts(const Machine& machine) {
  internal::Conditions conditions;
  if (getloadavg(&conditions.load_average, 1) != 1) conditions.load_average = 0;
  conditions.governor = FirstWord(ReadText(OwnCpuDirectory() / "cpufreq" / "scaling_governor"));
  conditions.available_memory_bytes = AvailableMemoryBytes();
  return internal::Doubts(machine, conditions);
}

double MeasureFmaPeakFloat32(int threads, int milliseconds) {
  return MeasureFmaPeak(WidestFloat32(), threads, milliseconds);
}

double MeasureFmaPeakFloat64(int threads, int milliseconds) {
  return MeasureFmaPeak(WidestFloat64(), threads, milliseconds);
}

double MeasureBandwidth(int threads, int64_t bytes_per_thread) {
  if (threads < 1) throw std::invalid_argument("the bandwidth needs at least one thread");
  constexpr int kPasses = 10;
  constexpr int64_t kArrays = 3, kLine = 64, kLineFloats = kLine / sizeof(float);
  // A pass over less would be too short for the clock.
  constexpr int64_t kLeastBytesPerPass = int64_t{32} << 20;
  const int64_t lines = std::max<int64_t>(1, bytes_per_thread / (kArrays * kLine));
  const int64_t elements = lines * kLineFloats;
  const int64_t bytes = lines * kLine * kArrays;
  const int64_t repeats = std::max<int64_t>(1, kLeastBytesPerPass / bytes);
  // Arrays a few lines apart, or a load would wait for a store to the same place of another page.
  const int64_t stride = elements + 5 * kLineFloats;
  const Triad triad = WidestTriad();
  const Clock::duration best = BestSlice(threads, kPasses, [&](int) {
    const auto deleter = [](float* memory) { std::free(memory); };
    const std::shared_ptr<float> memory(
        static_cast<float*>(std::aligned_alloc(kLine, kArrays * stride * sizeof(float))), deleter);
    if (!memory) throw std::bad_alloc();
    std::fill_n(memory.get(), kArrays * stride, 1.0f);  // By this thread, so near it.
    return [=] {
      float* const a = memory.get();
      for (int64_t i = 0; i < repeats; ++i) triad(a, a + stride, a + 2 * stride, elements);
    };
  });
  const double moved = static_cast<double>(bytes) * static_cast<double>(repeats) * threads;
  return moved / std::chrono::duration<double, std::nano>(best).count();
}

int64_t BeyondCachesBytes(const Machine& machine) {
  return std::clamp<int64_t>(4 * machine.l3_bytes, int64_t{64} << 20, int64_t{512} << 20);
}

}  // namespace ttbench
