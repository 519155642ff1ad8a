// Executes a plan on the host, by loops: for tests, and to say what a device's results must be.
#pragma once

#include "kernels/cuda/gemm_plan.h"

namespace ttbench {

// Runs one pass. All pointers that the pass needs are set, to memory of the host. Throws
// std::invalid_argument for bfloat16.
void RunOnHost(const GemmPlan& plan, const PlanPass& pass, const PlanPointers& pointers);

}  // namespace ttbench
