#include <algorithm>

#include "kernels/cuda/device_context.cuh"
#include "kernels/cuda/panel_body.h"
#include "kernels/cuda/panel_cuda.h"

namespace ttbench {
namespace {

constexpr int kAsideThreads = 256;  // Of a block of the kernels beside the two.

extern __shared__ __align__(16) unsigned char shared_memory[];

template <CudaPrecision kPrecision>
using StoredOf = typename Fragments<kPrecision>::Stored;

template <CudaPrecision kPrecision>
__global__ void __maxnreg__(kPanelCudaRegisters)
    PanelMultiplyKernel(const __grid_constant__ PanelCudaParams params,
                        PanelCudaTensors<DeviceContext, StoredOf<kPrecision>> tensors) {
  DeviceContext ctx(shared_memory);
  PanelBody<DeviceContext, kPrecision>(ctx, params, tensors).Multiply();
}

template <CudaPrecision kPrecision>
__global__ void __maxnreg__(kPanelCudaRegisters)
    PanelGradientKernel(const __grid_constant__ PanelCudaParams params,
                        PanelCudaTensors<DeviceContext, StoredOf<kPrecision>> tensors) {
  DeviceContext ctx(shared_memory);
  PanelBody<DeviceContext, kPrecision>(ctx, params, tensors).Gradient();
}

template <CudaPrecision kPrecision>
__global__ void __launch_bounds__(kAsideThreads)
    WidenCoresKernel(const __grid_constant__ PanelCudaParams params,
                     FusedCudaCores<DeviceContext, const StoredOf<kPrecision>> cores,
                     float* values) {
  DeviceContext ctx(nullptr);
  WidenCores<DeviceContext, StoredOf<kPrecision>>(ctx, params, cores, values);
}

template <CudaPrecision kPrecision>
__global__ void __launch_bounds__(kAsideThreads)
    PackPanelsKernel(const __grid_constant__ PanelCudaParams params, const float* values,
                     StoredOf<kPrecision>* packed) {
  DeviceContext ctx(nullptr);
  PackPanels<kPrecision, DeviceContext, StoredOf<kPrecision>>(ctx, params, values, packed);
}

template <CudaPrecision kPrecision>
__global__ void __launch_bounds__(kAsideThreads)
    NarrowGradientsKernel(const __grid_constant__ PanelCudaParams params, const float* values,
                          FusedCudaCores<DeviceContext, StoredOf<kPrecision>> dcores) {
  DeviceContext ctx(nullptr);
  NarrowGradients<DeviceContext, StoredOf<kPrecision>>(ctx, params, values, dcores);
}

// The next three compute in float32, whatever the tensors are.
__global__ void __launch_bounds__(kAsideThreads)
    JoinCoresKernel(const __grid_constant__ PanelJoins joins, float* values) {
  DeviceContext ctx(nullptr);
  JoinCores(ctx, joins, values);
}

__global__ void __launch_bounds__(kAsideThreads)
    JoinGradientsKernel(const __grid_constant__ PanelJoins joins, int64_t gradients,
                        float* values) {
  DeviceContext ctx(nullptr);
  JoinGradients(ctx, joins, gradients, values);
}

__global__ void __launch_bounds__(kAsideThreads)
    SumPanelsKernel(const __grid_constant__ PanelCudaParams params, const float* partial,
                    float* values) {
  DeviceContext ctx(nullptr);
  SumPanels(ctx, params, partial, values);
}

// For a thread to each of `elements`, up to so many that more would not help.
unsigned AsideBlocks(int64_t elements) {
  return static_cast<unsigned>(
      std::clamp<int64_t>((elements + kAsideThreads - 1) / kAsideThreads, 1, 4096));
}

template <typename Kernel, typename Tensors>
cudaError_t LaunchPanels(Kernel kernel, const PanelCudaPlan& plan, const PanelCudaLaunch& launch,
                         const Tensors& tensors, cudaStream_t stream) {
  // Beyond 48 KiB a kernel has to ask.
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(launch.shared_bytes));
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(launch.grid), static_cast<unsigned>(launch.threads),
           static_cast<size_t>(launch.shared_bytes), stream>>>(plan.params, tensors);
  return cudaGetLastError();
}

template <CudaPrecision kPrecision>
void JoinAndPack(const PanelCudaPlan& plan, const std::vector<const void*>& cores, void* packed,
                 float* values, cudaStream_t stream) {
  using Stored = StoredOf<kPrecision>;
  FusedCudaCores<DeviceContext, const Stored> arrays = {};
  for (size_t k = 0; k < cores.size(); ++k) arrays.core[k] = static_cast<const Stored*>(cores[k]);
  const unsigned blocks = AsideBlocks(plan.value_elements);
  WidenCoresKernel<kPrecision><<<blocks, kAsideThreads, 0, stream>>>(plan.params, arrays, values);
  for (const PanelJoins& joins : plan.joins) {
    JoinCoresKernel<<<blocks, kAsideThreads, 0, stream>>>(joins, values);
  }
  PackPanelsKernel<kPrecision><<<AsideBlocks(plan.packed_elements), kAsideThreads, 0, stream>>>(
      plan.params, values, static_cast<Stored*>(packed));
}

template <CudaPrecision kPrecision>
cudaError_t Forward(const PanelCudaPlan& plan, const std::vector<const void*>& cores, const void* x,
                    void* y, void* packed, float* values, cudaStream_t stream) {
  using Stored = StoredOf<kPrecision>;
  JoinAndPack<kPrecision>(plan, cores, packed, values, stream);
  PanelCudaTensors<DeviceContext, Stored> tensors = {};
  tensors.x = static_cast<const Stored*>(x);
  tensors.packed = static_cast<const Stored*>(packed);
  tensors.y = static_cast<Stored*>(y);
  return LaunchPanels(PanelMultiplyKernel<kPrecision>, plan, plan.multiply, tensors, stream);
}

template <CudaPrecision kPrecision>
cudaError_t Backward(const PanelCudaPlan& plan, const std::vector<const void*>& cores,
                     const void* x, const void* dy, void* dx, const std::vector<void*>& dcores,
                     void* packed, float* values, float* partial, cudaStream_t stream) {
  using Stored = StoredOf<kPrecision>;
  cudaError_t error = Forward<kPrecision>(plan, cores, dy, dx, packed, values, stream);
  if (error != cudaSuccess) return error;
  PanelCudaTensors<DeviceContext, Stored> tensors = {};
  tensors.x = static_cast<const Stored*>(x);
  tensors.packed = static_cast<const Stored*>(packed);
  tensors.dy = static_cast<const Stored*>(dy);
  tensors.partial = partial;
  error = LaunchPanels(PanelGradientKernel<kPrecision>, plan, plan.gradient, tensors, stream);
  if (error != cudaSuccess) return error;
  const unsigned blocks = AsideBlocks(plan.value_elements);
  SumPanelsKernel<<<blocks, kAsideThreads, 0, stream>>>(plan.params, partial, values);
  for (auto joins = plan.joins.rbegin(); joins != plan.joins.rend(); ++joins) {
    JoinGradientsKernel<<<blocks, kAsideThreads, 0, stream>>>(*joins, plan.params.gradients,
                                                              values);
  }
  FusedCudaCores<DeviceContext, Stored> arrays = {};
  for (size_t k = 0; k < dcores.size(); ++k) arrays.core[k] = static_cast<Stored*>(dcores[k]);
  NarrowGradientsKernel<kPrecision>
      <<<blocks, kAsideThreads, 0, stream>>>(plan.params, values, arrays);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchPanelForward(const PanelCudaPlan& plan, const std::vector<const void*>& cores,
                               const void* x, void* y, void* packed, float* values,
                               cudaStream_t stream) {
  switch (plan.precision) {
    case CudaPrecision::kFloat32:
      return Forward<CudaPrecision::kFloat32>(plan, cores, x, y, packed, values, stream);
    case CudaPrecision::kTf32:
      return Forward<CudaPrecision::kTf32>(plan, cores, x, y, packed, values, stream);
    case CudaPrecision::kBfloat16:
      return Forward<CudaPrecision::kBfloat16>(plan, cores, x, y, packed, values, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t LaunchPanelBackward(const PanelCudaPlan& plan, const std::vector<const void*>& cores,
                                const void* x, const void* dy, void* dx,
                                const std::vector<void*>& dcores, void* packed, float* values,
                                float* partial, cudaStream_t stream) {
  switch (plan.precision) {
    case CudaPrecision::kFloat32:
      return Backward<CudaPrecision::kFloat32>(plan, cores, x, dy, dx, dcores, packed, values,
                                               partial, stream);
    case CudaPrecision::kTf32:
      return Backward<CudaPrecision::kTf32>(plan, cores, x, dy, dx, dcores, packed, values, partial,
                                            stream);
    case CudaPrecision::kBfloat16:
      return Backward<CudaPrecision::kBfloat16>(plan, cores, x, dy, dx, dcores, packed, values,
                                                partial, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace ttbench
