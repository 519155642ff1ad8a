#include "kernels/attention/fused_additive_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <type_traits>

#define TTBENCH_INLINE inline __attribute__((always_inline))

namespace ttbench {
namespace {

constexpr int64_t kTileRows = 8;

template <typename Real>
struct TanhConstants;

template <>
struct TanhConstants<float> {
  static constexpr float kSaturates = 10;  // tanh is 1 to the last place.
  static constexpr float kLog2e = 1.44269504f;
  static constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23
  static constexpr int kMantissaBits = 23;
  // ln 2 in two parts, the first short enough for n times it to be exact.
  static constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  // 1/k!, of r^8 down to r^2.
  static constexpr float kTaylor[] = {1.0f / 40320, 1.0f / 5040, 1.0f / 720, 1.0f / 120,
                                      1.0f / 24,    1.0f / 6,    1.0f / 2};
};

template <>
struct TanhConstants<double> {
  static constexpr double kSaturates = 20;
  static constexpr double kLog2e = 1.4426950408889634;
  static constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52
  static constexpr int kMantissaBits = 52;
  static constexpr double kLn2High = 0x1.62e42fefa38p-1, kLn2Low = 0x1.ef35793c7673p-45;
  // 1/k!, of r^14 down to r^2.
  static constexpr double kTaylor[] = {
      1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
      1.0 / 362880,      1.0 / 40320,      1.0 / 5040,      1.0 / 720,      1.0 / 120,
      1.0 / 24,          1.0 / 6,          1.0 / 2};
};

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")
#define TTBENCH_ISA avx512
#define TTBENCH_VECTOR_BYTES 64
#include "kernels/attention/fused_additive_loops.inc"
#undef TTBENCH_ISA
#undef TTBENCH_VECTOR_BYTES
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define TTBENCH_ISA avx2
#define TTBENCH_VECTOR_BYTES 32
#include "kernels/attention/fused_additive_loops.inc"
#undef TTBENCH_ISA
#undef TTBENCH_VECTOR_BYTES
#pragma GCC pop_options
#define TTBENCH_HAS_X86_SETS
#endif

#define TTBENCH_ISA baseline
#define TTBENCH_VECTOR_BYTES 16
#include "kernels/attention/fused_additive_loops.inc"

// The best set of loops that this CPU runs.
template <typename Real>
struct Loops {
  void (*forward)(const FusedAdditiveShape&, const FusedAdditiveRow<Real>&);
  void (*backward)(const FusedAdditiveShape&, const FusedAdditiveRow<Real>&,
                   const FusedAdditiveGradients<Real>&, Real*);
  void (*tanh)(const Real*, int64_t, Real*);
};

template <typename Real>
const Loops<Real>& BestLoops() {
  static const Loops<Real> loops = [] {
#if defined(TTBENCH_HAS_X86_SETS)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw")) {
      return Loops<Real>{avx512::Forward<Real>, avx512::Backward<Real>, avx512::TanhOf<Real>};
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      return Loops<Real>{avx2::Forward<Real>, avx2::Backward<Real>, avx2::TanhOf<Real>};
    }
#endif
    return Loops<Real>{baseline::Forward<Real>, baseline::Backward<Real>, baseline::TanhOf<Real>};
  }();
  return loops;
}

}  // namespace

int64_t FusedAdditiveScratch(const FusedAdditiveShape& shape) { return shape.hidden; }

template <typename Real>
void FusedAdditiveForward(const FusedAdditiveShape& shape, const FusedAdditiveRow<Real>& row) {
  BestLoops<Real>().forward(shape, row);
}

template <typename Real>
void FusedAdditiveBackward(const FusedAdditiveShape& shape, const FusedAdditiveRow<Real>& row,
                           const FusedAdditiveGradients<Real>& gradients, Real* scratch) {
  BestLoops<Real>().backward(shape, row, gradients, scratch);
}

template <typename Real>
void VectorTanh(const Real* x, int64_t count, Real* y) {
  BestLoops<Real>().tanh(x, count, y);
}

template void FusedAdditiveForward<float>(const FusedAdditiveShape&,
                                          const FusedAdditiveRow<float>&);
template void FusedAdditiveForward<double>(const FusedAdditiveShape&,
                                           const FusedAdditiveRow<double>&);
template void FusedAdditiveBackward<float>(const FusedAdditiveShape&,
                                           const FusedAdditiveRow<float>&,
                                           const FusedAdditiveGradients<float>&, float*);
template void FusedAdditiveBackward<double>(const FusedAdditiveShape&,
                                            const FusedAdditiveRow<double>&,
                                            const FusedAdditiveGradients<double>&, double*);
template void VectorTanh<float>(const float*, int64_t, float*);
template void VectorTanh<double>(const double*, int64_t, double*);

}  // namespace ttbench
