#include "benchmarks/machine.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ttbench {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

// A tree of small files that stands in for one of the system's.
class FakeTree {
 public:
  FakeTree() {
    std::string name = testing::TempDir() + "/machine_test.XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
    root_ = name;
  }
  ~FakeTree() { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  std::string root() const { return root_; }

 private:
  fs::path root_;
};

constexpr char kAmd[] =
    "processor\t: 0\n"
    "vendor_id\t: AuthenticAMD\n"
    "cpu family\t: 26\n"
    "model\t\t: 2\n"
    "model name\t: AMD EPYC 9B45\n"
    "flags\t\t: fpu sse sse2 ssse3 avx avx2 fma avx512f avx512dq\n"
    "\n"
    "processor\t: 1\n"
    "cpu family\t: 99\n"
    "model name\t: another\n";
constexpr char kOldIntel[] =
    "processor\t: 0\n"
    "cpu family\t: 6\n"
    "model\t\t: 79\n"
    "model name\t: Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz\n"
    "flags\t\t: fpu sse sse2 avx avx2 fma\n";
constexpr char kGraviton[] =
    "processor\t: 0\n"
    "BogoMIPS\t: 2100.00\n"
    "Features\t: fp asimd evtstrm aes sve asimddp\n"
    "CPU implementer\t: 0x41\n"
    "CPU architecture: 8\n"
    "CPU variant\t: 0x1\n"
    "CPU part\t: 0xd40\n"
    "CPU revision\t: 1\n";

TEST(CpuinfoTest, ModelOnX86) {
  EXPECT_EQ(internal::CpuModel(kAmd), "AMD EPYC 9B45 (family 26 model 2)");
  EXPECT_EQ(internal::CpuModel(kOldIntel),
            "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz (family 6 model 79)");
}

TEST(CpuinfoTest, ModelOnArm) {
  EXPECT_EQ(internal::CpuModel(kGraviton), "Arm Neoverse-V1");
  EXPECT_EQ(internal::CpuModel("CPU implementer\t: 0x61\nCPU part\t: 0x022\n"),
            "Arm implementer 0x61 part 0x022");
  EXPECT_EQ(internal::CpuModel("CPU implementer\t: 0x61\nCPU part\t: 0xd40\n"),
            "Arm implementer 0x61 part 0xd40")
      << "part numbers are the implementer's own";
}

TEST(CpuinfoTest, NothingFromNothing) {
  EXPECT_EQ(internal::CpuModel(""), "");
  EXPECT_EQ(internal::VectorExtensions(""), "");
}

TEST(CpuinfoTest, WidestVectorExtension) {
  EXPECT_EQ(internal::VectorExtensions(kAmd), "avx512f");
  EXPECT_EQ(internal::VectorExtensions(kOldIntel), "avx2");
  EXPECT_EQ(internal::VectorExtensions("flags : fpu sse sse2 avx\n"), "sse2");
  EXPECT_EQ(internal::VectorExtensions("flags : avx512fp16\n"), "") << "whole words only";
  EXPECT_EQ(internal::VectorExtensions(kGraviton), "asimd");
}

TEST(MeminfoTest, KilobytesToBytes) {
  const std::string meminfo =
      "MemTotal:        8152604 kB\nMemFree:          123456 kB\nMemAvailable:    7000000 kB\n";
  EXPECT_EQ(internal::MeminfoBytes(meminfo, "MemTotal"), 8152604 * kKiB);
  EXPECT_EQ(internal::MeminfoBytes(meminfo, "MemAvailable"), 7000000 * kKiB);
  EXPECT_EQ(internal::MeminfoBytes(meminfo, "Mem"), 0);
  EXPECT_EQ(internal::MeminfoBytes("", "MemTotal"), 0);
}

TEST(CachesTest, TakesDataAndUnifiedCaches) {
  const FakeTree tree;
  const struct {
    const char *level, *type, *size;
  } caches[] = {{"1", "Data", "48K"},
                {"1", "Instruction", "32K"},
                {"2", "Unified", "1024K"},
                {"3", "Unified", "32M"}};
  for (int i = 0; i < 4; ++i) {
    const std::string index = "index" + std::to_string(i);
    tree.Write(index + "/level", caches[i].level);
    tree.Write(index + "/type", caches[i].type);
    tree.Write(index + "/size", caches[i].size);
  }
  const internal::Caches read = internal::ReadCaches(tree.root());
  EXPECT_EQ(read.l1_data_bytes, 48 * kKiB);
  EXPECT_EQ(read.l2_bytes, 1 * kMiB);
  EXPECT_EQ(read.l3_bytes, 32 * kMiB);
}

TEST(CachesTest, NoneWhereNoneAreShown) {
  const internal::Caches none = internal::ReadCaches("/nonexistent");
  EXPECT_EQ(none.l1_data_bytes, 0);
  EXPECT_EQ(none.l2_bytes, 0);
  EXPECT_EQ(none.l3_bytes, 0);
}

TEST(CgroupTest, NoLimitIsNoLimit) {
  const FakeTree tree;
  tree.Write("job/memory.max", "max");
  tree.Write("job/memory.current", "1000");
  tree.Write("job/cpu.max", "max 100000");
  for (const char* const self : {"0::/job\n", "0::/\n", ""}) {
    const internal::CgroupLimits limits = internal::ReadCgroupLimits(tree.root(), self);
    EXPECT_EQ(limits.cores, std::numeric_limits<double>::infinity());
    EXPECT_EQ(limits.memory_bytes, std::numeric_limits<int64_t>::max());
    EXPECT_EQ(limits.memory_left_bytes, std::numeric_limits<int64_t>::max());
  }
}

TEST(CgroupTest, VersionTwo) {
  const FakeTree tree;
  tree.Write("job/memory.max", std::to_string(2 * kGiB));
  tree.Write("job/memory.current", std::to_string(1 * kGiB));
  tree.Write("job/memory.stat", "anon 5\nfile 7\ninactive_file " + std::to_string(256 * kMiB));
  tree.Write("job/cpu.max", "150000 100000");
  const internal::CgroupLimits limits = internal::ReadCgroupLimits(tree.root(), "0::/job\n");
  EXPECT_EQ(limits.cores, 1.5);
  EXPECT_EQ(limits.memory_bytes, 2 * kGiB);
  EXPECT_EQ(limits.memory_left_bytes, 1 * kGiB + 256 * kMiB);
}

TEST(CgroupTest, TheTightestAncestorCounts) {
  const FakeTree tree;
  tree.Write("a/memory.max", std::to_string(1 * kGiB));
  tree.Write("a/memory.current", std::to_string(900 * kMiB));
  tree.Write("a/cpu.max", "max 100000");
  tree.Write("a/b/memory.max", std::to_string(4 * kGiB));
  tree.Write("a/b/memory.current", std::to_string(100 * kMiB));
  tree.Write("a/b/cpu.max", "400000 100000");
  tree.Write("a/b/c/cpu.max", "800000 100000");
  const internal::CgroupLimits limits = internal::ReadCgroupLimits(tree.root(), "0::/a/b/c\n");
  EXPECT_EQ(limits.cores, 4);
  EXPECT_EQ(limits.memory_bytes, 1 * kGiB);
  EXPECT_EQ(limits.memory_left_bytes, 124 * kMiB);
}

TEST(CgroupTest, VersionOneBesideAnEmptyVersionTwo) {
  const FakeTree tree;
  tree.Write("memory/job/memory.limit_in_bytes", std::to_string(3 * kGiB));
  tree.Write("memory/job/memory.usage_in_bytes", std::to_string(1 * kGiB));
  tree.Write("memory/job/memory.stat",
             "inactive_file 1\ntotal_inactive_file " + std::to_string(512 * kMiB));
  tree.Write("memory/memory.limit_in_bytes", "9223372036854771712");
  tree.Write("cpu/job/cpu.cfs_quota_us", "50000");
  tree.Write("cpu/job/cpu.cfs_period_us", "100000");
  tree.Write("cpu/cpu.cfs_quota_us", "-1");
  tree.Write("cpu/cpu.cfs_period_us", "100000");
  const internal::CgroupLimits limits = internal::ReadCgroupLimits(
      tree.root(), "9:name=systemd:/\n4:memory:/job\n2:cpu,cpuacct:/job\n0::/\n");
  EXPECT_EQ(limits.cores, 0.5);
  EXPECT_EQ(limits.memory_bytes, 3 * kGiB);
  EXPECT_EQ(limits.memory_left_bytes, 2 * kGiB + 512 * kMiB);
}

TEST(CgroupTest, InAContainerTheRootCounts) {
  const FakeTree tree;
  tree.Write("memory.max", std::to_string(1 * kGiB));
  tree.Write("memory.current", std::to_string(2 * kGiB));
  const internal::CgroupLimits limits =
      internal::ReadCgroupLimits(tree.root(), "0::/docker/0123456789ab\n");
  EXPECT_EQ(limits.memory_bytes, 1 * kGiB);
  EXPECT_EQ(limits.memory_left_bytes, 0) << "over the limit is nothing left, not less";
}

Machine QuietMachine() {
  Machine machine;
  machine.cores = 8;
  machine.memory_bytes = 64 * kGiB;
  return machine;
}

internal::Conditions QuietConditions() {
  internal::Conditions conditions;
  conditions.load_average = 2.0;
  conditions.governor = "performance";
  conditions.available_memory_bytes = 32 * kGiB;
  return conditions;
}

TEST(DoubtsTest, NoneOnAQuietMachine) {
  EXPECT_TRUE(internal::Doubts(QuietMachine(), QuietConditions()).empty());
  internal::Conditions unreadable = QuietConditions();
  unreadable.governor = "";
  EXPECT_TRUE(internal::Doubts(QuietMachine(), unreadable).empty());
}

TEST(DoubtsTest, OneSentenceForEach) {
  Machine machine = QuietMachine();
  internal::Conditions conditions = QuietConditions();
  machine.debug_build = true;
  conditions.load_average = 2.01;
  conditions.governor = "powersave";
  conditions.available_memory_bytes = 3 * kGiB;
  EXPECT_EQ(internal::Doubts(machine, conditions),
            (std::vector<std::string>{
                "this is a debug build: its times mean nothing, build with -c opt",
                "other work is running: the load average is 2.01 on 8 cores",
                "the CPU frequency governor is powersave, so the clock may change while "
                "measuring; performance holds it",
                "memory is almost used up: 3072 MiB of 65536 MiB are left"}));
}

TEST(MachineTest, ThisOneCanBeRead) {
  const Machine machine = ReadMachine();
  EXPECT_NE(machine.cpu_model, "");
  EXPECT_NE(machine.vector_extensions, "");
  EXPECT_GE(machine.cores, 1);
  EXPECT_LE(machine.cores, static_cast<int64_t>(sysconf(_SC_NPROCESSORS_ONLN)));
  EXPECT_GT(machine.memory_bytes, 64 * kMiB);
  EXPECT_LE(machine.memory_bytes,
            static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE));
  EXPECT_EQ(machine.kernel.substr(0, 6), "Linux ");
  EXPECT_NE(machine.compiler.find("++ "), std::string::npos);
#ifdef NDEBUG
  EXPECT_FALSE(machine.debug_build);
#else
  EXPECT_TRUE(machine.debug_build);
#endif
  EXPECT_GT(AvailableMemoryBytes(), 0);
  EXPECT_LE(AvailableMemoryBytes(), machine.memory_bytes);
  printf("%s, %s, %ld cores, %ld MiB, L1d %ld, L2 %ld, L3 %ld, %s, %s\n", machine.cpu_model.c_str(),
         machine.vector_extensions.c_str(), long{machine.cores}, long{machine.memory_bytes / kMiB},
         long{machine.l1_data_bytes}, long{machine.l2_bytes}, long{machine.l3_bytes},
         machine.kernel.c_str(), machine.compiler.c_str());
  for (const std::string& doubt : Doubts(machine)) printf("doubt: %s\n", doubt.c_str());
}

TEST(MachineTest, CoresFollowTheAffinity) {
  std::thread([] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(ReadMachine().cores, 1);
  }).join();
}

TEST(FmaPeakTest, PrintsThePeaks) {
  for (int threads = 1; threads <= ReadMachine().cores; threads *= 2) {
    const double single = MeasureFmaPeakFloat32(threads);
    const double half = MeasureFmaPeakFloat64(threads);
    EXPECT_GT(single, 0);
    EXPECT_GT(half, 0);
    printf("%d threads: %.1f GFLOP/s float32, %.1f GFLOP/s float64\n", threads, single, half);
  }
}

TEST(FmaPeakTest, MoreThreadsThanCoresEnd) { EXPECT_GT(MeasureFmaPeakFloat32(16, 20), 0); }

TEST(FmaPeakTest, NeedsAThread) {
  EXPECT_THROW(MeasureFmaPeakFloat32(0), std::invalid_argument);
  EXPECT_GT(MeasureFmaPeakFloat32(1, 0), 0) << "one slice at the least";
}

TEST(BandwidthTest, PrintsTheRates) {
  const Machine machine = ReadMachine();
  for (int threads = 1; threads <= machine.cores; threads *= 2) {
    const double memory = MeasureBandwidth(threads, BeyondCachesBytes(machine) / threads);
    const double cache = MeasureBandwidth(threads, 256 * kKiB);
    // In GB/s: a unit off by 1000 either way is outside of what any machine of today does.
    for (const double rate : {memory, cache}) {
      EXPECT_GT(rate, 0.1);
      EXPECT_LT(rate, 1000.0 * threads);
    }
    printf("%d threads: %.1f GB/s memory, %.1f GB/s from 256 KiB each\n", threads, memory, cache);
  }
}

TEST(BandwidthTest, NeedsAThreadAndTakesAnySize) {
  EXPECT_THROW(MeasureBandwidth(0, kMiB), std::invalid_argument);
  EXPECT_GT(MeasureBandwidth(1, 1), 0) << "a line of each array at the least";
  EXPECT_GT(MeasureBandwidth(3, 1001), 0) << "whole lines, more threads than cores";
}

TEST(BandwidthTest, BeyondEveryCacheAndYetShort) {
  Machine machine;
  EXPECT_EQ(BeyondCachesBytes(machine), 64 * kMiB) << "no L3 is told";
  machine.l3_bytes = 32 * kMiB;
  EXPECT_EQ(BeyondCachesBytes(machine), 128 * kMiB);
  machine.l3_bytes = 1 * kGiB;
  EXPECT_EQ(BeyondCachesBytes(machine), 512 * kMiB);
}

}  // namespace
}  // namespace ttbench
