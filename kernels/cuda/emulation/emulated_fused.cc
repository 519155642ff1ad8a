#include "kernels/cuda/emulation/emulated_fused.h"

#include <deque>
#include <string>

#include "kernels/cuda/fused_body.h"

namespace ttbench {
namespace {

template <typename Stored>
std::vector<Stored> Store(const std::vector<double>& values) {
  std::vector<Stored> stored;
  stored.reserve(values.size());
  for (double value : values) {
    const float real = static_cast<float>(value);
    if constexpr (sizeof(Stored) == 4) {
      stored.push_back(real);
    } else {
      stored.push_back(RoundToBfloat16(real));
    }
  }
  return stored;
}

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

    FusedCudaCores<EmulatedContext, const Stored> core_arrays;
    FusedCudaCores<EmulatedContext, Stored> dcore_arrays;
    for (size_t k = 0; k < cores.size(); ++k) {
      core_arrays.core[k] = Input<Stored>("core " + std::to_string(k + 1), cores[k], 0);
      dcore_arrays.core[k] =
          Output<Stored>("gradient of core " + std::to_string(k + 1), cores[k].size(), 0);
    }
    const auto packed = Output<Stored>("packed cores", plan.packed_elements, 0);
    EmulatedLaunch aside;
    aside.blocks = 2;
    aside.threads = 64;
    Emulate(aside,
            [&](EmulatedContext& ctx) { PackCores<kPrecision>(ctx, params, core_arrays, packed); });

    typename Body::Tensors tensors;
    tensors.packed = packed;
    tensors.x = Input<Stored>("x", x, skipped * params.in_features);
    EmulatedLaunch launch;
    launch.blocks = plan.grid;
    launch.threads = static_cast<int>(plan.tile.threads);
    launch.shared_bytes = static_cast<int>(plan.shared_bytes);
    launch.first_block = skipped > 0 ? plan.grid - 1 : 0;
    launch.removed_barrier = options.removed_barrier;
    launch.removed_waits = options.removed_waits;
    EmulatedResult result;
    if (!backward) {
      tensors.y = Output<Stored>("y", rows * params.out_features, skipped * params.out_features);
      result.barrier_sites =
          Emulate(launch, [&](EmulatedContext& ctx) { Body(ctx, params, tensors).Forward(); });
      result.y = Values<Stored>(tensors.y);
      return result;
    }
    tensors.dy = Input<Stored>("dy", dy, skipped * params.out_features);
    tensors.dx = Output<Stored>("dx", rows * params.in_features, skipped * params.in_features);
    // Of the skipped blocks too, unless only the last one runs.
    const int64_t first_partial = launch.first_block * params.partial_elements;
    tensors.partial =
        Output<float>("partial sums", plan.partial_elements() - first_partial, first_partial);
    result.barrier_sites =
        Emulate(launch, [&](EmulatedContext& ctx) { Body(ctx, params, tensors).Backward(); });
    result.dx = Values<Stored>(tensors.dx);
    if (skipped > 0) return result;
    Emulate(aside, [&](EmulatedContext& ctx) {
      SumGradients<kPrecision>(ctx, params, plan.grid, EmulatedGlobal<const float>(tensors.partial),
                               dcore_arrays);
    });
    for (size_t k = 0; k < cores.size(); ++k) {
      result.dcores.push_back(Values<Stored>(dcore_arrays.core[k]));
    }
    return result;
  }

 private:
  // `begin`: the index of the first element that is in memory.
  template <typename T>
  EmulatedGlobal<T> Output(const std::string& name, int64_t elements, int64_t begin) {
    constexpr int64_t kBytes = sizeof(T);
    memories_.emplace_back(name, elements * kBytes, begin * kBytes);
    return EmulatedGlobal<T>(&memories_.back());
  }
  template <typename T>
  EmulatedGlobal<const T> Input(const std::string& name, const std::vector<double>& values,
                                int64_t begin) {
    const std::vector<T> stored = Store<T>(values);
    const auto array = Output<T>(name, static_cast<int64_t>(stored.size()), begin);
    array.memory()->Fill(stored.data(), static_cast<int64_t>(stored.size() * sizeof(T)));
    return array;
  }
  // Throws if an element was not written.
  template <typename T>
  static std::vector<float> Values(const EmulatedGlobal<T>& array) {
    std::vector<float> values;
    CheckedMemory& memory = *array.memory();
    for (int64_t at = memory.begin(); at + static_cast<int64_t>(sizeof(T)) <= memory.end();
         at += sizeof(T)) {
      T value;
      // As a later launch.
      constexpr uint32_t kLater = ~uint32_t{0};
      memory.Read(at, &value, sizeof(T), {0, kLater, kLater, kLater});
      values.push_back(ToFloat(value));
    }
    return values;
  }

  std::deque<CheckedMemory> memories_;  // Stay where they are.
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
