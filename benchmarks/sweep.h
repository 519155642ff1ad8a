// Runs a sweep: plan, one child process per cell, rows written as they come, run.json, crossovers.
#pragma once

#include <string>
#include <vector>

namespace ttbench {

// Exit codes of a sweep.
//   0    every cell ok, or skipped for a stated reason; out of memory within a stated budget
//   1    some cell crashed, was wrong, timed out, or ran out of memory without a budget
//   2    usage: the command line, or the machine or directory does not suit it; nothing was run
//   3    the filter or the shard left no cell
//   4    the results could not be written; rows written before are whole
//   128+n  ended by signal n; rows written before are whole
enum ExitCode { kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitNothing = 3, kExitWrite = 4 };

// main() of a sweep program: every variant linked into it is in its registry. `target` is the
// program's label, for the commands that rows and run.json give.
int SweepMain(int argc, char** argv, const std::string& target);

}  // namespace ttbench
