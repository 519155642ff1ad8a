// Records which operators of LibTorch copy: that is, move a tensor's elements into other memory and
// compute nothing. Every such move goes by aten::copy_, however it is called for: by clone(),
// contiguous(), a reshape() that is no view, to(), a product of operands that it cannot address, or
// the engine, for a gradient that is not laid out as its leaf.
//
// Watched is what passes the dispatcher on the thread that made the recorder. What a GEMM library
// or a kernel of ours copies inside itself does not show.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/copy_advice.h"
#include "benchmarks/memory_meter.h"

namespace ttbench {

// Memory that the variant itself asked for, by at::empty(), and that no pass outlives: a kernel's
// own scratch.
struct RecordedScratch {
  std::vector<std::string> chain;
  int64_t bytes = 0;
  int64_t event = -1;  // As a copy's.
  bool in_backward = false;
};

class CopyRecorder {
 public:
  using Tensors = std::vector<at::Tensor>;

  // Records until destroyed, on the thread that made it. The meter must be recording.
  CopyRecorder(const MemoryMeter& meter, const Tensors& inputs, const Tensors& parameters);
  ~CopyRecorder();
  CopyRecorder(const CopyRecorder&) = delete;
  CopyRecorder& operator=(const CopyRecorder&) = delete;

  // Sees what is held. `results` are those of the forward.
  void EndForward(const Tensors& results);
  // The gradients of the results, before the backward.
  void BeginBackward(const Tensors& gradients);
  void EndBackward();

  const std::vector<RecordedCopy>& copies() const;
  const std::vector<RecordedScratch>& scratch() const;
  // What the computing operators did; a kernel of ours or of oneDNN that is called directly is
  // none. Bytes that they read and wrote: each operand's and each result's distinct elements, once
  // for every operator. Floating-point operations of products, as cost::Tape counts them.
  int64_t computed_bytes() const;
  int64_t computed_flops() const;

  class State;  // What the callbacks see; in the source file.

 private:
  std::unique_ptr<State> state_;
  uint64_t operators_, nodes_;  // The callbacks.
};

}  // namespace ttbench
