// Whether a layer moves, copies and replicates as a module should, and what two processes that
// train it together exchange.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/problem.h"
#include "kernels/variant.h"

namespace ttbench {

// How a module keeps its weights: as registered parameters, or as attributes of its own that the
// framework knows nothing of, as t3nsor first kept its cores.
enum class Keeping { kRegistered, kPlain };

const char* Name(Keeping keeping);  // "registered", "plain"

struct ReplicaCheck {
  std::string check;  // "to-dtype", "to-device", "clone", "save-load", "replicate", "processes"
  bool ok = false;
  std::string reason;  // If not ok: what went wrong, in a sentence.
  // Of the results or gradients against those they must equal, where there are any to compare.
  std::optional<double> max_relative_error;
};

// What training with two processes takes.
struct Exchange {
  int64_t gradient_bytes = 0;            // Of all parameters.
  std::optional<int64_t> sent_bytes;     // By one process in one step, by the kernel's count.
  int64_t step_ns = 0, exchange_ns = 0;  // Medians: half of the batch in each; exchange alone.
  int64_t joined_ns = 0;                 // One process, the whole batch.
};

struct ReplicaFindings {
  std::vector<ReplicaCheck> checks;
  Exchange exchange;
};

// All checks on one layer, with one thread, and the times of `steps` steps. The variant of a plain
// layer has cores. The batch must be even. `rendezvous` is a path at which there is no file; two
// processes meet there. The caller must not have computed in parallel: this process forks.
ReplicaFindings CheckReplicas(const LinearVariant& variant, const LinearProblem& problem,
                              Keeping keeping, uint64_t seed, int64_t steps,
                              const std::string& rendezvous);

}  // namespace ttbench
