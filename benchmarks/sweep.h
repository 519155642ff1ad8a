// Runs a sweep: plan, one child process per cell, rows written as they come, run.json, crossovers.
#pragma once

#include <string>

#include "benchmarks/exit_code.h"

namespace ttbench {

// main() of a sweep program: every variant linked into it is in its registry. `target` is the
// program's label, for the commands that rows and run.json give. Returns an ExitCode.
int SweepMain(int argc, char** argv, const std::string& target);

}  // namespace ttbench
