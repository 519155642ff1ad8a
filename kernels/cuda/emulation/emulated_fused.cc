#include "kernels/cuda/emulation/emulated_fused.h"

#include <string>

#include "kernels/cuda/emulation/emulated_tensors.h"
#include "kernels/cuda/fused_body.h"

namespace ttbench {
namespace {

template <CudaPrecision kPrecision>
class EmulatedFused {
 public:
  using Body = FusedBody<EmulatedContext, kPrecision>;
  using Stored = typename Body::Stored;

  EmulatedResult Run(const FusedCudaPlan& plan, const std::vector<std::vector<double>>& cores,
                     const std::vector<double>& x, const std::vector<double>& dy,
                     const EmulationOptions& options) {
    const FusedCudaParams& params = plan.params;
    const int64_t rows = options.rows > 0 ? options.rows : params.batch;
    const int64_t skipped = params.batch - rows;
    const bool backward = plan.pass == CudaPass::kBackward;

    const auto arrays = memory_.CoreArrays<Stored>(cores);
    const auto packed = memory_.Output<Stored>("packed cores", plan.packed_elements, 0);
    EmulatedLaunch aside;
    aside.blocks = 2;
    aside.threads = 64;
    Emulate(aside, [&](EmulatedContext& ctx) {
      PackCores<kPrecision>(ctx, params, arrays.values, packed);
    });

    typename Body::Tensors tensors;
    tensors.packed = packed;
    tensors.x = memory_.Input<Stored>("x", x, skipped * params.in_features);
    EmulatedLaunch launch;
    launch.blocks = plan.grid;
    launch.threads = static_cast<int>(plan.tile.threads);
    launch.shared_bytes = static_cast<int>(plan.shared_bytes);
    launch.first_block = skipped > 0 ? plan.grid - 1 : 0;
    launch.removed_barrier = options.removed_barrier;
    launch.removed_waits = options.removed_waits;
    EmulatedResult result;
    if (!backward) {
      tensors.y =
          memory_.Output<Stored>("y", rows * params.out_features, skipped * params.out_features);
      result.barrier_sites =
          Emulate(launch, [&](EmulatedContext& ctx) { Body(ctx, params, tensors).Forward(); });
      result.y = EmulatedTensors::Values(tensors.y);
      return result;
    }
    tensors.dy = memory_.Input<Stored>("dy", dy, skipped * params.out_features);
    tensors.dx =
        memory_.Output<Stored>("dx", rows * params.in_features, skipped * params.in_features);
    // Of the skipped blocks too, unless only the last one runs.
    const int64_t first_partial = launch.first_block * params.partial_elements;
    tensors.partial = memory_.Output<float>("partial sums", plan.partial_elements() - first_partial,
                                            first_partial);
    result.barrier_sites =
        Emulate(launch, [&](EmulatedContext& ctx) { Body(ctx, params, tensors).Backward(); });
    result.dx = EmulatedTensors::Values(tensors.dx);
    if (skipped > 0) return result;
    Emulate(aside, [&](EmulatedContext& ctx) {
      SumGradients<kPrecision>(ctx, params, plan.grid, EmulatedGlobal<const float>(tensors.partial),
                               arrays.gradients);
    });
    for (size_t k = 0; k < cores.size(); ++k) {
      result.dcores.push_back(EmulatedTensors::Values(arrays.gradients.core[k]));
    }
    return result;
  }

 private:
  EmulatedTensors memory_;
};

}  // namespace

EmulatedResult EmulateFused(const FusedCudaPlan& plan,
                            const std::vector<std::vector<double>>& cores,
                            const std::vector<double>& x, const std::vector<double>& dy,
                            const EmulationOptions& options) {
  switch (plan.precision) {
    case CudaPrecision::kFloat32:
      return EmulatedFused<CudaPrecision::kFloat32>().Run(plan, cores, x, dy, options);
    case CudaPrecision::kTf32:
      return EmulatedFused<CudaPrecision::kTf32>().Run(plan, cores, x, dy, options);
    case CudaPrecision::kBfloat16:
      return EmulatedFused<CudaPrecision::kBfloat16>().Run(plan, cores, x, dy, options);
  }
  throw EmulationError("no such precision");
}

}  // namespace ttbench
