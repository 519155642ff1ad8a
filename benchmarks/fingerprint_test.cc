#include "benchmarks/fingerprint.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace ttbench {
namespace {

using nlohmann::ordered_json;

Machine SomeMachine() {
  Machine machine;
  machine.cpu_model = "Zilog Z80";
  machine.vector_extensions = "avx2";
  machine.cores = 8;
  machine.memory_bytes = 65536;
  return machine;
}

void ExpectDifference(const ordered_json& info, const Machine& now, const std::string& key,
                      const std::string& was, const std::string& is) {
  const std::string difference = DifferenceOfMachines(info, now);
  for (const std::string& word : {key, was, is}) {
    EXPECT_NE(difference.find(word), std::string::npos) << word << " in: " << difference;
  }
}

TEST(DifferenceOfMachinesTest, NoneOnTheSameMachine) {
  const ordered_json info = DescribeRun(SomeMachine(), {});
  EXPECT_EQ(DifferenceOfMachines(info, SomeMachine()), "");
  EXPECT_EQ(DifferenceOfMachines(ordered_json::parse(info.dump(2)), SomeMachine()), "");
}

TEST(DifferenceOfMachinesTest, NamesWhatChanged) {
  const ordered_json info = DescribeRun(SomeMachine(), {});
  Machine other = SomeMachine();
  other.cpu_model = "MOS 6502";
  ExpectDifference(info, other, "cpu_model", "Zilog Z80", "MOS 6502");
  other = SomeMachine();
  other.vector_extensions = "avx512f";
  ExpectDifference(info, other, "vector_extensions", "avx2", "avx512f");
  other = SomeMachine();
  other.cores = 4;
  ExpectDifference(info, other, "cores", "8", "4");
}

TEST(DifferenceOfMachinesTest, NamesAnotherLibTorch) {
  ordered_json info = DescribeRun(SomeMachine(), {});
  const std::string now = info["libtorch"];
  info["libtorch"] = "0.4.1";
  ExpectDifference(info, SomeMachine(), "libtorch", "0.4.1", now);
}

TEST(DescribeRunTest, KeepsThePeaks) {
  const Peaks peaks = {{{"float32/t2", 115.5}}, {{"memory/t2", 20.25}}};
  const ordered_json info = DescribeRun(SomeMachine(), peaks);
  EXPECT_EQ(info["fma_peak_gflops"], ordered_json(peaks.fma_gflops));
  EXPECT_EQ(info["bandwidth_gb_per_s"], ordered_json(peaks.bandwidth_gb_per_s));
}

void ExpectPositive(const std::map<std::string, double>& rates, const std::set<std::string>& keys) {
  EXPECT_EQ(rates.size(), keys.size());
  for (const std::string& key : keys) {
    ASSERT_TRUE(rates.count(key)) << key;
    EXPECT_GT(rates.at(key), 0) << key;
  }
}

TEST(MeasurePeaksTest, HasEveryRateForEveryThreadCount) {
  EXPECT_EQ(PeakKey(DType::kFloat32, 2), "float32/t2");
  Machine machine = SomeMachine();
  machine.l2_bytes = 1 << 20;
  const Peaks peaks = MeasurePeaks(machine, {1, 2});
  ExpectPositive(peaks.fma_gflops, {"float32/t1", "float32/t2", "float64/t1", "float64/t2"});
  ExpectPositive(peaks.bandwidth_gb_per_s, {"l2/t1", "l2/t2", "memory/t1", "memory/t2"});
}

TEST(MeasurePeaksTest, NoL2RateWhereItsSizeIsUnknown) {
  ExpectPositive(MeasurePeaks(SomeMachine(), {1}).bandwidth_gb_per_s, {"memory/t1"});
}

}  // namespace
}  // namespace ttbench
