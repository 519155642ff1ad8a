#include "kernels/cuda/device_context.cuh"
#include "kernels/cuda/fused_body.h"
#include "kernels/cuda/fused_cuda.h"

namespace ttbench {
namespace {

constexpr int kAsideThreads = 256;  // Of a block that packs cores or sums gradients.

extern __shared__ __align__(16) unsigned char shared_memory[];

template <CudaPrecision kPrecision>
using StoredOf = typename Fragments<kPrecision>::Stored;

static_assert(sizeof(FusedCudaParams) + sizeof(FusedCudaCores<DeviceContext, float>) <= 32764 - 64,
              "the parameters of a kernel");

template <CudaPrecision kPrecision>
__global__ void __maxnreg__(kFusedCudaForwardRegisters)
    FusedForwardKernel(const __grid_constant__ FusedCudaParams params,
                       FusedCudaTensors<DeviceContext, StoredOf<kPrecision>> tensors) {
  DeviceContext ctx(shared_memory);
  FusedBody<DeviceContext, kPrecision>(ctx, params, tensors).Forward();
}

template <CudaPrecision kPrecision>
__global__ void __maxnreg__(kFusedCudaBackwardRegisters)
    FusedBackwardKernel(const __grid_constant__ FusedCudaParams params,
                        FusedCudaTensors<DeviceContext, StoredOf<kPrecision>> tensors) {
  DeviceContext ctx(shared_memory);
  FusedBody<DeviceContext, kPrecision>(ctx, params, tensors).Backward();
}

template <CudaPrecision kPrecision>
__global__ void __launch_bounds__(kAsideThreads)
    PackCoresKernel(const __grid_constant__ FusedCudaParams params,
                    FusedCudaCores<DeviceContext, const StoredOf<kPrecision>> cores,
                    StoredOf<kPrecision>* packed) {
  DeviceContext ctx(nullptr);
  PackCores<kPrecision>(ctx, params, cores, packed);
}

template <CudaPrecision kPrecision>
__global__ void __launch_bounds__(kAsideThreads)
    SumGradientsKernel(const __grid_constant__ FusedCudaParams params, int64_t blocks,
                       const float* partial,
                       FusedCudaCores<DeviceContext, StoredOf<kPrecision>> dcores) {
  DeviceContext ctx(nullptr);
  SumGradients<kPrecision>(ctx, params, blocks, partial, dcores);
}

// For a thread to each of `elements`, up to so many that more would not help.
unsigned AsideBlocks(int64_t elements) {
  const int64_t blocks = (elements + kAsideThreads - 1) / kAsideThreads;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks > 1024 ? 1024 : blocks);
}

template <CudaPrecision kPrecision>
void LaunchPack(const FusedCudaPlan& plan, const std::vector<const void*>& cores, void* packed,
                cudaStream_t stream) {
  using Stored = StoredOf<kPrecision>;
  FusedCudaCores<DeviceContext, const Stored> arrays = {};
  for (size_t k = 0; k < cores.size(); ++k) arrays.core[k] = static_cast<const Stored*>(cores[k]);
  PackCoresKernel<kPrecision><<<AsideBlocks(plan.packed_elements), kAsideThreads, 0, stream>>>(
      plan.params, arrays, static_cast<Stored*>(packed));
}

template <typename Kernel, typename Tensors>
cudaError_t LaunchFused(Kernel kernel, const FusedCudaPlan& plan, const Tensors& tensors,
                        cudaStream_t stream) {
  // Beyond 48 KiB a kernel has to ask.
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.shared_bytes));
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(plan.grid), static_cast<unsigned>(plan.tile.threads),
           static_cast<size_t>(plan.shared_bytes), stream>>>(plan.params, tensors);
  return cudaGetLastError();
}

template <CudaPrecision kPrecision>
cudaError_t Forward(const FusedCudaPlan& plan, const std::vector<const void*>& cores, const void* x,
                    void* y, void* packed, cudaStream_t stream) {
  using Stored = StoredOf<kPrecision>;
  LaunchPack<kPrecision>(plan, cores, packed, stream);
  FusedCudaTensors<DeviceContext, Stored> tensors = {};
  tensors.x = static_cast<const Stored*>(x);
  tensors.packed = static_cast<const Stored*>(packed);
  tensors.y = static_cast<Stored*>(y);
  return LaunchFused(FusedForwardKernel<kPrecision>, plan, tensors, stream);
}

template <CudaPrecision kPrecision>
cudaError_t Backward(const FusedCudaPlan& plan, const std::vector<const void*>& cores,
                     const void* x, const void* dy, void* dx, const std::vector<void*>& dcores,
                     void* packed, float* partial, cudaStream_t stream) {
  using Stored = StoredOf<kPrecision>;
  LaunchPack<kPrecision>(plan, cores, packed, stream);
  FusedCudaTensors<DeviceContext, Stored> tensors = {};
  tensors.x = static_cast<const Stored*>(x);
  tensors.packed = static_cast<const Stored*>(packed);
  tensors.dy = static_cast<const Stored*>(dy);
  tensors.dx = static_cast<Stored*>(dx);
  tensors.partial = partial;
  const cudaError_t error = LaunchFused(FusedBackwardKernel<kPrecision>, plan, tensors, stream);
  if (error != cudaSuccess) return error;
  FusedCudaCores<DeviceContext, Stored> arrays = {};
  for (size_t k = 0; k < dcores.size(); ++k) arrays.core[k] = static_cast<Stored*>(dcores[k]);
  SumGradientsKernel<kPrecision>
      <<<AsideBlocks(plan.params.partial_elements), kAsideThreads, 0, stream>>>(
          plan.params, plan.grid, partial, arrays);
  return cudaGetLastError();
}

}  // namespace

cudaError_t LaunchFusedForward(const FusedCudaPlan& plan, const std::vector<const void*>& cores,
                               const void* x, void* y, void* packed, cudaStream_t stream) {
  switch (plan.precision) {
    case CudaPrecision::kFloat32:
      return Forward<CudaPrecision::kFloat32>(plan, cores, x, y, packed, stream);
    case CudaPrecision::kTf32:
      return Forward<CudaPrecision::kTf32>(plan, cores, x, y, packed, stream);
    case CudaPrecision::kBfloat16:
      return Forward<CudaPrecision::kBfloat16>(plan, cores, x, y, packed, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t LaunchFusedBackward(const FusedCudaPlan& plan, const std::vector<const void*>& cores,
                                const void* x, const void* dy, void* dx,
                                const std::vector<void*>& dcores, void* packed, float* partial,
                                cudaStream_t stream) {
  switch (plan.precision) {
    case CudaPrecision::kFloat32:
      return Backward<CudaPrecision::kFloat32>(plan, cores, x, dy, dx, dcores, packed, partial,
                                               stream);
    case CudaPrecision::kTf32:
      return Backward<CudaPrecision::kTf32>(plan, cores, x, dy, dx, dcores, packed, partial,
                                            stream);
    case CudaPrecision::kBfloat16:
      return Backward<CudaPrecision::kBfloat16>(plan, cores, x, dy, dx, dcores, packed, partial,
                                                stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t CurrentCudaDevice(CudaDevice* device) {
  int current = 0;
  cudaDeviceProp properties;
  cudaError_t error = cudaGetDevice(&current);
  if (error != cudaSuccess) return error;
  error = cudaGetDeviceProperties(&properties, current);
  if (error != cudaSuccess) return error;
  CudaDevice like = properties.major >= 9 ? H100() : A100();
  const double scale = static_cast<double>(properties.multiProcessorCount) /
                       static_cast<double>(like.multiprocessors);
  for (double* rate : {&like.float32_flops, &like.tf32_flops, &like.bfloat16_flops,
                       &like.memory_bytes_per_s, &like.l2_bytes_per_s}) {
    *rate *= scale;
  }
  like.name = properties.name;
  like.compute_capability = 10 * properties.major + properties.minor;
  like.multiprocessors = properties.multiProcessorCount;
  like.shared_bytes_per_multiprocessor =
      static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
  like.shared_bytes_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  like.reserved_shared_bytes = static_cast<int64_t>(properties.reservedSharedMemPerBlock);
  like.registers_per_multiprocessor = properties.regsPerMultiprocessor;
  like.threads_per_multiprocessor = properties.maxThreadsPerMultiProcessor;
  like.blocks_per_multiprocessor = properties.maxBlocksPerMultiProcessor;
  *device = like;
  return cudaSuccess;
}

}  // namespace ttbench
