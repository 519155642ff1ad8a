// One cell of a sweep and its name.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/problem.h"

namespace ttbench {

struct Cell {
  std::string variant;
  bool is_dense;  // The variant has no ranks; its name and row carry none.
  LinearProblem problem;
  int64_t rank;  // As asked for; problem.shape's ranks may be clipped below it.
  std::string device;

  // Stable, unique and greppable, e.g.
  //   linear/naive/16x16x16:16x16x16/r8/b512/train/float32/cpu/t2
  //   linear/dense/16x16x16:16x16x16/b512/train/float32/cpu/t2
  std::string Name() const;
  // The flags that select this cell alone: --variant=naive --shape=... --rank=8 --batch=512 ...
  std::string Flags() const;
};

}  // namespace ttbench
