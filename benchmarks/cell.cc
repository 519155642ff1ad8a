#include "benchmarks/cell.h"

namespace ttbench {

std::string Cell::Name() const {
  const Setting s = setting();
  return std::string(workload->family()) + "/" + variant() + "/" + workload->size_name() + "/b" +
         std::to_string(s.batch) + "/" + ttbench::Name(s.phase) + "/" + ttbench::Name(s.dtype) +
         "/" + device.Label() + "/t" + std::to_string(s.threads);
}

std::string Cell::Flags() const {
  const Setting s = setting();
  return "--variant=" + variant() + " " + workload->SizeFlags() +
         " --batch=" + std::to_string(s.batch) + " --phase=" + ttbench::Name(s.phase) +
         " --dtype=" + ttbench::Name(s.dtype) + " " + device.Flags() +
         " --threads=" + std::to_string(s.threads);
}

}  // namespace ttbench
