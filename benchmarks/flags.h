// The command line of a sweep, and preset files, which hold the same flags.
//
// A preset is a text file: flags, any number to a line, `#` to the end of a line a comment. A line
// `[name]` begins a grid: flags before the first one hold for all grids, those after it for that
// grid alone. Flags on the command line override the preset's, in every grid; if they name shapes
// (--d or --shape), the preset's grids give way to a single one with the shapes asked for and the
// rest of the first grid's flags.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/cell_runner.h"
#include "benchmarks/plan.h"

namespace ttbench {

struct SweepFlags {
  std::vector<Grid> grids;
  CellOptions cell;
  std::string filter;
  int64_t memory_limit_bytes = 0;  // Of cells, from --memory-limit; 0: from the machine.
  int64_t max_crossover_batch = 0;
  std::string experiment = "sweep";
  std::string out;                           // As given; "" for the default.
  std::string resume;                        // Likewise.
  int64_t shard_index = 0, shard_count = 1;  // 0-based.
  bool list = false;
  bool quiet = false;
  // For each grid the flags in effect, preset included, on one line: what run.json keeps, and what
  // ResumedFlags() makes the same run of. Flags of this call alone (--out, --list, ..) left out.
  std::vector<std::string> grid_flags;
};

// arguments: argv without the program's name. default_threads stands for --threads where it is not
// given. Throws UsageError, ShapeError. On --help returns nothing and sets *help.
std::optional<SweepFlags> ParseSweepFlags(const std::vector<std::string>& arguments,
                                          int64_t default_threads, std::string* help);

// The flags of a run begun earlier, from its grid_flags; `now` is this call's, of which --quiet and
// --list count. Throws UsageError.
SweepFlags ResumedFlags(const std::vector<std::string>& grid_flags, int64_t default_threads,
                        const SweepFlags& now);

}  // namespace ttbench
