// One cell of a sweep and its name.
#pragma once

#include <memory>
#include <string>

#include "benchmarks/device.h"
#include "benchmarks/workload.h"

namespace ttbench {

struct Cell {
  std::shared_ptr<const Workload> workload;
  DeviceSettings device;  // Of the workload's own device.

  // Stable, unique and greppable, e.g.
  //   linear/naive/16x16x16:16x16x16/r8/b512/train/float32/cpu/t2
  //   linear/dense/16x16x16:16x16x16/b512/train/float32/cpu/t2
  //   attention/prealloc-mm/L52-T52-H600/b64/train/float32/cuda-tf32/t2
  std::string Name() const;
  // The flags that select this cell alone: --variant=naive --shape=... --rank=8 --batch=512 ...
  std::string Flags() const;

  std::string variant() const { return workload->variant(); }
  Setting setting() const { return workload->setting(); }
  Cell AtBatch(int64_t batch) const { return {workload->AtBatch(batch), device}; }
  Cell Baseline() const { return {workload->Baseline(), device}; }
};

}  // namespace ttbench
