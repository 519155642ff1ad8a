#include "benchmarks/cell.h"

namespace ttbench {

std::string Cell::Name() const {
  std::string name = "linear/" + variant + "/" + problem.shape.modes_name();
  if (!is_dense) name += "/" + problem.shape.rank_label();
  return name + "/b" + std::to_string(problem.batch) + "/" + ttbench::Name(problem.phase) + "/" +
         ttbench::Name(problem.dtype) + "/" + device + "/t" + std::to_string(problem.threads);
}

std::string Cell::Flags() const {
  // A dense weight is made from cores of the rank, too.
  return "--variant=" + variant + " --shape=" + problem.shape.modes_name() +
         " --rank=" + std::to_string(rank) + " --batch=" + std::to_string(problem.batch) +
         " --phase=" + ttbench::Name(problem.phase) + " --dtype=" + ttbench::Name(problem.dtype) +
         " --device=" + device + " --threads=" + std::to_string(problem.threads);
}

}  // namespace ttbench
