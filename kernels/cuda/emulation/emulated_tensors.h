// Tensors of a kernel in emulated global memory.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/emulator.h"
#include "kernels/cuda/precision.h"
#include "kernels/cuda/tensor_access.h"

namespace ttbench {

// As a tensor holds them.
template <typename Stored>
std::vector<Stored> StoreAll(const std::vector<double>& values) {
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

// Owns the memories; arrays point into them.
class EmulatedTensors {
 public:
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
    const std::vector<T> stored = StoreAll<T>(values);
    const auto array = Output<T>(name, static_cast<int64_t>(stored.size()), begin);
    array.memory()->Fill(stored.data(), static_cast<int64_t>(stored.size() * sizeof(T)));
    return array;
  }
  template <typename Stored>
  struct Cores {
    FusedCudaCores<EmulatedContext, const Stored> values;
    FusedCudaCores<EmulatedContext, Stored> gradients;
  };
  template <typename Stored>
  Cores<Stored> CoreArrays(const std::vector<std::vector<double>>& cores) {
    Cores<Stored> arrays;
    for (size_t k = 0; k < cores.size(); ++k) {
      const std::string name = "core " + std::to_string(k + 1);
      arrays.values.core[k] = Input<Stored>(name, cores[k], 0);
      arrays.gradients.core[k] =
          Output<Stored>("gradient of " + name, static_cast<int64_t>(cores[k].size()), 0);
    }
    return arrays;
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

 private:
  std::deque<CheckedMemory> memories_;  // Stay where they are.
};

}  // namespace ttbench
