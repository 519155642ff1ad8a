// How the kernels' bodies get at tensors: the layer's cores, and copies to shared memory.
#pragma once

#include "kernels/cuda/fused_cuda_params.h"

namespace ttbench {

// The layer's cores, in its own order.
template <typename Context, typename Element>
struct FusedCudaCores {
  typename Context::template Global<Element> core[kMaxCores];
};

// Starts to copy `bytes` bytes: 16, 8 or 4, or a single bfloat16, which comes at once.
template <typename Stored, typename Context, typename Tensor>
TTBENCH_DEVICE void StartVector(Context& ctx, int offset, Tensor tensor, int64_t from, int bytes) {
  if (bytes == 16) {
    ctx.template CopyAsync<16>(offset, tensor, from);
  } else if (bytes == 8) {
    ctx.template CopyAsync<8>(offset, tensor, from);
  } else if (bytes == 4) {
    ctx.template CopyAsync<4>(offset, tensor, from);
  } else {
    ctx.StoreShared(offset, ctx.template LoadGlobal<Stored>(tensor, from));
  }
}

// Rounds the float32 at `offset` in shared memory to TF32.
template <typename Context>
TTBENCH_DEVICE void RoundShared(Context& ctx, int offset) {
  ctx.StoreShared(offset, RoundToTf32(ctx.template LoadShared<float>(offset)));
}

}  // namespace ttbench
