// Inputs that are the same on every machine, thread count and library version: each element is a
// function of (seed, stream, index) alone, so that any part can be made without the rest.
//
// Values are k/128 * scale with k in [-128, 127] and scale a power of two: exact in bfloat16,
// float32 and float64 alike, so that the float64 oracle sees the very numbers the variant does.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/shape.h"

namespace ttbench {

// Streams: x, the gradient of y, and core k (0-based).
inline constexpr uint64_t kStreamX = 0;
inline constexpr uint64_t kStreamDy = 1;
inline constexpr uint64_t StreamOfCore(int64_t k) { return 2 + static_cast<uint64_t>(k); }

class UniformValues {
 public:
  UniformValues(uint64_t seed, uint64_t stream, double scale);

  double operator[](int64_t index) const {
    // The finalizer of SplitMix64 (Steele, Lea, Flood 2014) over the index.
    uint64_t z = key_ + static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>(static_cast<int8_t>(z >> 56)) * step_;
  }

 private:
  uint64_t key_;
  double step_;
};

// The rows of a batch that references are made for: the first, the middle and the last.
std::vector<int64_t> CheckedRows(int64_t batch);
// Those rows, `width` values each, one after the other.
std::vector<double> ValuesOfRows(const UniformValues& values, const std::vector<int64_t>& rows,
                                 int64_t width);

// The scale of core k with which each contraction keeps the variance of what it contracts, rounded
// to a power of two: about sqrt(3 / (n_k r_k)).
double CoreScale(const TtShape& shape, int64_t k);

}  // namespace ttbench
