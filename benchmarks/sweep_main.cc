// The sweep program with every variant of the repository.
#include "benchmarks/sweep.h"

int main(int argc, char** argv) { return ttbench::SweepMain(argc, argv); }
