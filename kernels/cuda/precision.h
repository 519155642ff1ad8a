// The arithmetic of the CUDA kernels, as stored and as rounded; for the host and the device.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define TTBENCH_DEVICE __device__ __forceinline__
#define TTBENCH_HOST_DEVICE __host__ __device__ __forceinline__
#define TTBENCH_UNROLL _Pragma("unroll")    // What it indexes stays in registers.
#define TTBENCH_ROLLED _Pragma("unroll 1")  // Registers are worth more than its overhead.
#else
#define TTBENCH_DEVICE inline
#define TTBENCH_HOST_DEVICE inline
#define TTBENCH_UNROLL
#define TTBENCH_ROLLED
#endif

namespace ttbench {

// Sums are always in float32.
enum class CudaPrecision {
  kFloat32,   // Float32 operands, fused multiply-adds.
  kTf32,      // Float32 tensors whose products round their operands to TF32, on tensor cores.
  kBfloat16,  // Bfloat16 tensors and intermediates, on tensor cores.
};

constexpr int64_t StoredBytes(CudaPrecision precision) {
  return precision == CudaPrecision::kBfloat16 ? 2 : 4;
}
constexpr const char* PrecisionName(CudaPrecision precision) {
  return precision == CudaPrecision::kFloat32 ? "float32"
         : precision == CudaPrecision::kTf32  ? "tf32"
                                              : "bfloat16";
}

// The upper half of a float32.
struct CudaBfloat16 {
  uint16_t bits;
};

TTBENCH_HOST_DEVICE uint32_t BitsOf(float value) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(value);
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
#endif
}
TTBENCH_HOST_DEVICE float FloatOf(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
#endif
}

// Finite values to the nearest of 10 mantissa bits, ties away from zero: cvt.rna.tf32.f32.
TTBENCH_HOST_DEVICE float RoundToTf32(float value) {
#if defined(__CUDA_ARCH__)
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return FloatOf(bits);
#else
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return FloatOf((bits + (1u << 12)) & ~((1u << 13) - 1));
#endif
}

// To the nearest, ties to even: cvt.rn.bf16.f32. NaN stays NaN.
TTBENCH_HOST_DEVICE CudaBfloat16 RoundToBfloat16(float value) {
#if defined(__CUDA_ARCH__)
  CudaBfloat16 rounded;
  asm("{.reg .b32 pair; cvt.rn.bf16x2.f32 pair, %1, %1; cvt.u16.u32 %0, pair;}"
      : "=h"(rounded.bits)
      : "f"(value));
  return rounded;
#else
  const uint32_t bits = BitsOf(value);
  if (value != value) return {static_cast<uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
#endif
}

TTBENCH_HOST_DEVICE float ToFloat(float value) { return value; }
TTBENCH_HOST_DEVICE float ToFloat(CudaBfloat16 value) {
  return FloatOf(static_cast<uint32_t>(value.bits) << 16);
}

}  // namespace ttbench
