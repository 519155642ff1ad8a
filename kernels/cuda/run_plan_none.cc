#include <c10/util/Exception.h>

#include "kernels/cuda/run_plan.h"

namespace ttbench {

void RunPlanOnDevice(const GemmPlan& plan, const PlanPass&, const PlanPointers&, bool,
                     const at::Tensor&) {
  TORCH_CHECK(false, "cannot run ", plan.layer, ": built without CUDA; build with --config=cuda");
}

}  // namespace ttbench
