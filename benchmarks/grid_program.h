// Programs that measure something of their own over the cells of a grid: their flags, their
// directory, their run.json and their exit codes are those of a sweep.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "benchmarks/flags.h"
#include "benchmarks/plan.h"

namespace ttbench {

struct GridProgram {
  std::string name;             // Of the experiment: "copies".
  std::string rows;             // The file of its rows, by which a run is known: "copies.csv".
  std::set<std::string> flags;  // Of the sweep's flags those that it takes, besides --preset,
                                // --filter, --seed, --out, --list and --quiet.
  std::string help;
  int64_t threads = 0;  // Where no flag says; 0: all cores.
};

struct GridRun {
  SweepFlags flags;
  std::vector<PlannedCell> plan;  // Of the linear family.
  std::string directory;
};

// main() of one: plans, opens the directory, writes run.json, calls `measure`, which returns an
// exit code and whose rows are on disk when it has, completes run.json, and prints the directory.
int GridMain(int argc, char** argv, const GridProgram& program,
             const std::function<int(const GridRun&)>& measure);

// What a row says of its cell, and the names of these columns: schema, experiment, cell, variant,
// algorithm, in_modes, out_modes, ranks, cores, d, rank, batch, phase, dtype, threads.
std::vector<std::string> CellColumns();
std::vector<std::string> DescribeCell(const PlannedCell& planned, const GridRun& run);

}  // namespace ttbench
