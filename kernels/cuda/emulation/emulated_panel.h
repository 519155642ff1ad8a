// The CUDA panel kernels in emulation, as a host launches them: join and pack the cores, multiply,
// form the gradient's panels, add them up and go back through the joins.
#pragma once

#include <vector>

#include "kernels/cuda/emulation/emulated_fused.h"
#include "kernels/cuda/panel_cuda_plan.h"

namespace ttbench {

// As EmulateFused. Barriers are those of the multiply kernel, then of the gradient kernel. With
// options.rows the multiply kernel runs alone.
EmulatedResult EmulatePanel(const PanelCudaPlan& plan,
                            const std::vector<std::vector<double>>& cores,
                            const std::vector<double>& x, const std::vector<double>& dy,
                            const EmulationOptions& options = {});

}  // namespace ttbench
