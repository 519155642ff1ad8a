// The sweep program with every variant linked beside it: of the repository, or of ttbench_sweep()
// (defs.bzl), which names its own target.
#include "benchmarks/sweep.h"

#ifndef TTBENCH_SWEEP
#define TTBENCH_SWEEP "//benchmarks:sweep"
#endif

int main(int argc, char** argv) { return ttbench::SweepMain(argc, argv, TTBENCH_SWEEP); }
