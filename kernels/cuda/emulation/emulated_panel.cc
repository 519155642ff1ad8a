#include "kernels/cuda/emulation/emulated_panel.h"

#include <algorithm>

#include "kernels/cuda/emulation/emulated_tensors.h"
#include "kernels/cuda/panel_body.h"

namespace ttbench {
namespace {

template <CudaPrecision kPrecision>
class EmulatedPanel {
 public:
  using Body = PanelBody<EmulatedContext, kPrecision>;
  using Stored = typename Body::Stored;

  EmulatedResult Run(const PanelCudaPlan& plan, const std::vector<std::vector<double>>& cores,
                     const std::vector<double>& x, const std::vector<double>& dy,
                     const EmulationOptions& options) {
    const PanelCudaParams& params = plan.params;
    const int64_t batch = params.multiply.batch;
    const int64_t rows = options.rows > 0 ? options.rows : batch;
    const bool backward = plan.pass == CudaPass::kBackward;
    EmulatedLaunch aside;
    aside.blocks = 2;
    aside.threads = 64;

    const auto arrays = memory_.CoreArrays<Stored>(cores);
    const auto packed = memory_.Output<Stored>("packed cores", plan.packed_elements, 0);
    const auto values =
        memory_.Output<float>("joined cores", (backward ? 2 : 1) * plan.value_elements, 0);
    const EmulatedGlobal<const float> read_values = values;
    Emulate(aside, [&](EmulatedContext& ctx) {
      WidenCores<EmulatedContext, Stored>(ctx, params, arrays.values, values);
    });
    for (const PanelJoins& joins : plan.joins) {
      Emulate(aside, [&](EmulatedContext& ctx) { JoinCores(ctx, joins, values); });
    }
    Emulate(aside, [&](EmulatedContext& ctx) {
      PackPanels<kPrecision, EmulatedContext, Stored>(ctx, params, read_values, packed);
    });

    const std::vector<double>& from = backward ? dy : x;
    const int64_t in = params.multiply.x.features, out = params.multiply.out_features;
    typename Body::Tensors tensors;
    tensors.packed = packed;
    tensors.x = memory_.Input<Stored>(backward ? "dy" : "x", from, (batch - rows) * in);
    tensors.y = memory_.Output<Stored>(backward ? "dx" : "y", rows * out, (batch - rows) * out);
    EmulatedLaunch launch = Launch(plan.multiply, options);
    launch.first_block = rows < batch ? launch.blocks - 1 : 0;
    EmulatedResult result;
    result.barrier_sites =
        Emulate(launch, [&](EmulatedContext& ctx) { Body(ctx, params, tensors).Multiply(); });
    (backward ? result.dx : result.y) = EmulatedTensors::Values(tensors.y);
    if (!backward || rows < batch) return result;

    tensors.dy = tensors.x;
    tensors.x = memory_.Input<Stored>("x", x, 0);
    tensors.partial = memory_.Output<float>("partial sums", plan.partial_elements, 0);
    launch = Launch(plan.gradient, options);
    launch.removed_barrier = std::max(-1, options.removed_barrier - result.barrier_sites);
    result.barrier_sites +=
        Emulate(launch, [&](EmulatedContext& ctx) { Body(ctx, params, tensors).Gradient(); });
    Emulate(aside, [&](EmulatedContext& ctx) {
      SumPanels(ctx, params, EmulatedGlobal<const float>(tensors.partial), values);
    });
    for (auto joins = plan.joins.rbegin(); joins != plan.joins.rend(); ++joins) {
      Emulate(aside,
              [&](EmulatedContext& ctx) { JoinGradients(ctx, *joins, params.gradients, values); });
    }
    Emulate(aside, [&](EmulatedContext& ctx) {
      NarrowGradients<EmulatedContext, Stored>(ctx, params, read_values, arrays.gradients);
    });
    for (size_t k = 0; k < cores.size(); ++k) {
      result.dcores.push_back(EmulatedTensors::Values(arrays.gradients.core[k]));
    }
    return result;
  }

 private:
  static EmulatedLaunch Launch(const PanelCudaLaunch& kernel, const EmulationOptions& options) {
    EmulatedLaunch launch;
    launch.blocks = kernel.grid;
    launch.threads = static_cast<int>(kernel.threads);
    launch.shared_bytes = static_cast<int>(kernel.shared_bytes);
    launch.removed_barrier = options.removed_barrier;
    launch.removed_waits = options.removed_waits;
    return launch;
  }

  EmulatedTensors memory_;
};

}  // namespace

EmulatedResult EmulatePanel(const PanelCudaPlan& plan,
                            const std::vector<std::vector<double>>& cores,
                            const std::vector<double>& x, const std::vector<double>& dy,
                            const EmulationOptions& options) {
  switch (plan.precision) {
    case CudaPrecision::kFloat32:
      return EmulatedPanel<CudaPrecision::kFloat32>().Run(plan, cores, x, dy, options);
    case CudaPrecision::kTf32:
      return EmulatedPanel<CudaPrecision::kTf32>().Run(plan, cores, x, dy, options);
    case CudaPrecision::kBfloat16:
      return EmulatedPanel<CudaPrecision::kBfloat16>().Run(plan, cores, x, dy, options);
  }
  throw EmulationError("no such precision");
}

}  // namespace ttbench
