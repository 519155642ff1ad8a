// What the suite's programs end with.
#pragma once

namespace ttbench {

//   0    every cell ok, or skipped for a stated reason; out of memory within a stated budget
//   1    some cell crashed, was wrong, timed out, or ran out of memory without a budget
//   2    usage: the command line, or the machine or directory does not suit it; nothing was run
//   3    the filter or the shard left no cell
//   4    the results could not be written; rows written before are whole
//   128+n  ended by signal n; rows written before are whole
enum ExitCode { kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitNothing = 3, kExitWrite = 4 };

}  // namespace ttbench
