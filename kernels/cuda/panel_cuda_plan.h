// How the CUDA panel kernels cut a TT layer: where its cores are joined into two, and the tiles of
// both. A pure function of the shape, the batch, the precision and the device, as in
// fused_cuda_plan.h. No CUDA, no LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernels/cuda/cuda_cost.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/fused_cuda_plan.h"
#include "kernels/cuda/panel_cuda_params.h"
#include "kernels/shape.h"

namespace ttbench {

// In: what is contracted, inputs forward and outputs for dx; for the gradient, inputs. Modes of L
// and R are those of their cores together; tiles divide them.
struct PanelCudaTile {
  int64_t left_in = 1, left_out = 1, right_in = 1, right_out = 1;
  int64_t samples = 1;  // Rows of a block; for the gradient, of a step.
  int64_t splits = 1;   // Of the batch, for the gradient.
};

// One kernel of a plan.
struct PanelCudaLaunch {
  PanelCudaTile tile;
  int64_t threads = 0, grid = 0, shared_bytes = 0;
  CudaOccupancy occupancy;
  FusedCudaCost unit;
  double seconds = 0;
};

struct PanelCudaPlan {
  CudaPass pass = CudaPass::kForward;
  CudaPrecision precision = CudaPrecision::kFloat32;
  int64_t cut = 1;           // Cores 1 .. cut are L.
  PanelCudaLaunch multiply;  // y or dx.
  PanelCudaLaunch gradient;  // Backward: dW.
  // The model's estimates: joining the cores and adding up partial sums; and of all.
  double aside_seconds = 0, seconds = 0;

  // One after another, before the rest; their gradients the other way round.
  std::vector<PanelJoins> joins;

  // Scratch in global memory: the packed cores, elements as stored; in floats, the cores' values,
  // joined ones included, and as many gradients in the backward; partial sums.
  int64_t packed_elements = 0, value_elements = 0, partial_elements = 0;

  PanelCudaParams params;
};

// The plan with the cut and tiles given; `grid` as in MakeFusedCudaPlan, of both kernels.
// std::nullopt, and the reason, if it does not fit the device.
std::optional<PanelCudaPlan> MakePanelCudaPlan(const TtShape& shape, int64_t batch,
                                               CudaPrecision precision, CudaPass pass,
                                               const CudaDevice& device, int64_t cut,
                                               const PanelCudaTile& multiply,
                                               const PanelCudaTile& gradient, int64_t grid = 0,
                                               std::string* reason = nullptr);

// The plan of least estimated time.
std::optional<PanelCudaPlan> PlanPanelCuda(const TtShape& shape, int64_t batch,
                                           CudaPrecision precision, CudaPass pass,
                                           const CudaDevice& device, std::string* reason = nullptr);

// The fused kernel or the panel kernel, whichever the model finds faster for the pass; the other
// where only one fits.
using CudaLayerPlan = std::variant<FusedCudaPlan, PanelCudaPlan>;
std::optional<CudaLayerPlan> PlanCudaLayer(const TtShape& shape, int64_t batch,
                                           CudaPrecision precision, CudaPass pass,
                                           const CudaDevice& device, std::string* reason = nullptr);
// "fused" or "panel".
const char* KernelName(const CudaLayerPlan& plan);

}  // namespace ttbench
