// Tensors filled with the inputs' values, and how far others are from what they should be.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "benchmarks/inputs.h"
#include "kernels/problem.h"

namespace ttbench {

// The device as LibTorch names it.
inline at::Device TorchDevice(Device device) {
  return device == Device::kCuda ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
}

// Calls use(pointer to the elements of a contiguous tensor). Elements on a device are copied for
// it, so that what use() writes is lost: inputs are made on the CPU, and then moved.
template <typename Use>
void WithData(const at::Tensor& tensor, const Use& use) {
  TORCH_CHECK(tensor.is_contiguous(), "a result is not contiguous");
  const at::Tensor host = tensor.is_cpu() ? tensor : tensor.detach().cpu();
  switch (host.scalar_type()) {
    case at::kFloat:
      return use(host.mutable_data_ptr<float>());
    case at::kDouble:
      return use(host.mutable_data_ptr<double>());
    default:
      return use(host.mutable_data_ptr<at::BFloat16>());
  }
}

// Elements [first, first + count) of the tensor, on the CPU, from the same elements of the values.
inline void Fill(const UniformValues& values, int64_t first, int64_t count,
                 const at::Tensor& tensor) {
  WithData(tensor, [&](auto* data) {
    using Element = std::remove_pointer_t<decltype(data)>;
    for (int64_t i = first; i < first + count; ++i) data[i] = static_cast<Element>(values[i]);
  });
}

// The largest difference over the largest expected element, or, where all expected elements are 0,
// over `scale_of_zeros`; NaN counts as infinite.
class RelativeError {
 public:
  template <typename Element>
  void Add(Element got, double expected) {
    const double difference = std::abs(static_cast<double>(got) - expected);
    if (!(difference <= difference_)) {
      difference_ = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
    }
    largest_ = std::max(largest_, std::abs(expected));
  }
  double value(double scale_of_zeros = 0) const {
    return difference_ == 0 ? 0 : difference_ / (largest_ > 0 ? largest_ : scale_of_zeros);
  }
  double largest() const { return largest_; }

 private:
  double difference_ = 0, largest_ = 0;
};

}  // namespace ttbench
