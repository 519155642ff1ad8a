// A thread's context on a device: the interface of EmulatedContext (emulation/emulator.h) in CUDA
// and inline PTX, for sm_80 and later.
#pragma once

#include <cstdint>

#include "kernels/cuda/precision.h"

namespace ttbench {

class DeviceContext {
 public:
  template <typename T>
  using Global = T*;

  TTBENCH_DEVICE explicit DeviceContext(unsigned char* shared) : shared_(shared) {}

  TTBENCH_DEVICE int Thread() const { return static_cast<int>(threadIdx.x); }
  TTBENCH_DEVICE int Threads() const { return static_cast<int>(blockDim.x); }
  TTBENCH_DEVICE int64_t Block() const { return blockIdx.x; }
  TTBENCH_DEVICE int64_t Blocks() const { return gridDim.x; }

  template <typename V>
  TTBENCH_DEVICE V LoadShared(int offset) const {
    return *reinterpret_cast<const V*>(shared_ + offset);
  }
  template <typename V>
  TTBENCH_DEVICE void StoreShared(int offset, const V& value) {
    *reinterpret_cast<V*>(shared_ + offset) = value;
  }

  template <typename V, typename T>
  TTBENCH_DEVICE V LoadGlobal(const T* array, int64_t index) const {
    return *reinterpret_cast<const V*>(array + index);
  }
  template <typename T, typename V>
  TTBENCH_DEVICE void StoreGlobal(T* array, int64_t index, const V& value) {
    *reinterpret_cast<V*>(array + index) = value;
  }
  template <typename T>
  TTBENCH_DEVICE T LoadStored(T* array, int64_t index) const {
    return array[index];
  }

  template <int kBytes, typename T>
  TTBENCH_DEVICE void CopyAsync(int offset, const T* array, int64_t index) {
    const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared_ + offset));
    if constexpr (kBytes == 16) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(array + index)
                   : "memory");
    } else {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(array + index),
                   "n"(kBytes)
                   : "memory");
    }
  }
  TTBENCH_DEVICE void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

  TTBENCH_DEVICE void Barrier() { __syncthreads(); }

  TTBENCH_DEVICE void MmaTf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  TTBENCH_DEVICE void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

 private:
  unsigned char* shared_;
};

}  // namespace ttbench
