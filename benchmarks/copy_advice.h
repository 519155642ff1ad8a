// What a copy was, as recorded, and what layout would have avoided it. Without LibTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/strided_product.h"

namespace ttbench {

// An operator that wrote or read a buffer, and the tensor by which it did. Its name is empty where
// there is none.
struct BufferUse {
  std::string op;  // "mm"
  Layout layout;
};

// What the elements that are copied are, or were computed from.
enum class Origin { kInput, kParameter, kParametersAlone, kActivation, kGradient };

const char* Name(Origin origin);  // "x", "core", "joined cores", "intermediate", "gradient"

struct RecordedCopy {
  std::vector<std::string> chain;  // Outermost first: "MmBackward0", "reshape", "clone", "copy_".
  int64_t bytes = 0;               // Written.
  Layout source, target;           // Of equal sizes.
  bool converts = false;           // Their elements are of different types.
  Origin origin = Origin::kActivation;
  // Places in the meter's recording where the buffers were allocated; -1 if before it.
  int64_t source_event = -1, target_event = -1;
  bool in_backward = false;
  bool held = false;  // The target was alive after the forward, and is no result of it.
  // What computed the source, unless it was given, and what first reads the target. Views of them
  // are no use.
  BufferUse producer, consumer;
};

// What would do without the copy.
enum class Remedy {
  kKeepOrder,     // A parameter kept, from one step to the next, in the order that is wanted.
  kReadInPlace,   // The product that reads the copy reads its source instead.
  kWriteInPlace,  // The product that made the source writes it where it is wanted.
  kBroadcast,     // The source repeats its elements: the reader could, too.
  kTakeOver,      // Source and copy are laid out alike: the source itself would do.
  kCopyOnce,      // The copy is only copied again.
  kOneType,       // The elements are converted, not moved.
  kOtherOrder,    // None of these: another order of contraction.
};

const char* Name(Remedy remedy);  // "keep in order"

struct Advice {
  Remedy remedy;
  // Where a product reads or writes in place: the calls that it takes.
  std::optional<StridedProducts> products;
  std::string sentence;
};

// From the layouts, the producer and the consumer alone. `source` is the source's name.
Advice AdviseOn(const RecordedCopy& copy, const std::string& source);

}  // namespace ttbench
