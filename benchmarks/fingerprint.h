// What a run was made on: the part of run.json that says which machine, libraries and sources.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "benchmarks/machine.h"
#include "kernels/problem.h"

namespace ttbench {

// "float32/t2": what an FMA rate is for.
std::string PeakKey(DType dtype, int64_t threads);

// The roofs over what this machine can do, measured at the start of a run.
struct Peaks {
  // The FMA rates of float32 and float64 with each number of threads, in GFLOP/s, by PeakKey.
  std::map<std::string, double> fma_gflops;
  // "memory/t2", "l2/t2": the rates of a triad in GB/s (MeasureBandwidth) over arrays that no cache
  // holds, and over arrays that fill half of each core's L2, where the machine tells its size.
  std::map<std::string, double> bandwidth_gb_per_s;
};

// For each of these numbers of threads. Measured in a child process, so that the caller may still
// fork; empty if that fails.
Peaks MeasurePeaks(const Machine& machine, const std::set<int64_t>& threads);

// Machine, compiler, LibTorch, GEMM library, git revision, peaks and warnings.
nlohmann::ordered_json DescribeRun(const Machine& machine, const Peaks& peaks);

// What of the machine differs from the one in a run.json, so that rows of both do not belong in one
// table; "" if nothing does.
std::string DifferenceOfMachines(const nlohmann::ordered_json& info, const Machine& machine);

}  // namespace ttbench
