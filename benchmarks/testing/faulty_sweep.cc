// The sweep program with variants that go wrong beside those of the repository.
#include "benchmarks/sweep.h"

int main(int argc, char** argv) {
  return ttbench::SweepMain(argc, argv, "//benchmarks/testing:faulty_sweep");
}
