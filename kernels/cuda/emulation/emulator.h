// Runs a CUDA kernel's body on the host, block by block, and finds what would go wrong on a device.
//
// A body is a template over its context: thread and block indices, shared and global memory,
// barriers, asynchronous copies and the tensor cores' products (device_context.cuh has the same
// interface). Here each thread of a block is a fiber that runs until it meets a barrier or a
// product of its warp. Both kinds of memory are checked at every access (shadow.h). An
// EmulationError says what is wrong:
// - an access out of bounds or misaligned, a read of what nobody wrote, a race;
// - a barrier, or a product of a warp, that some of its threads do not reach, or reach elsewhere;
// - a read of what an asynchronous copy writes before that was waited for (and, by the rules for
//   races, before a barrier after that wait if another thread copied it);
// - an operand of a TF32 product that was not rounded to TF32, of which the hardware would drop the
//   low bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/cuda/emulation/shadow.h"

namespace ttbench {

constexpr int kWarp = 32;

// An array in emulated global memory.
template <typename T>
class EmulatedGlobal {
 public:
  using Value = std::remove_const_t<T>;
  EmulatedGlobal() = default;
  explicit EmulatedGlobal(CheckedMemory* memory) : memory_(memory) {}
  // A view for reading.
  template <typename U, typename = std::enable_if_t<std::is_same_v<const U, T>>>
  EmulatedGlobal(const EmulatedGlobal<U>& other) : memory_(other.memory()) {}
  CheckedMemory* memory() const { return memory_; }

 private:
  CheckedMemory* memory_ = nullptr;
};

class EmulatedBlock;

// One thread's context.
class EmulatedContext {
 public:
  template <typename T>
  using Global = EmulatedGlobal<T>;

  EmulatedContext(EmulatedBlock* block, int thread) : block_(block), thread_(thread) {}

  int Thread() const { return thread_; }
  int Threads() const;
  int64_t Block() const;
  int64_t Blocks() const;

  // Offsets in bytes.
  template <typename V>
  V LoadShared(int offset) {
    V value;
    ReadShared(offset, &value, sizeof(V));
    return value;
  }
  template <typename V>
  void StoreShared(int offset, const V& value) {
    WriteShared(offset, &value, sizeof(V));
  }

  // V: T itself or a vector of it that begins at `index`.
  template <typename V, typename T>
  V LoadGlobal(EmulatedGlobal<const T> array, int64_t index) {
    V value;
    ReadGlobal(array.memory(), index * static_cast<int64_t>(sizeof(T)), &value, sizeof(V));
    return value;
  }
  template <typename T, typename V>
  void StoreGlobal(EmulatedGlobal<T> array, int64_t index, const V& value) {
    WriteGlobal(array.memory(), index * static_cast<int64_t>(sizeof(T)), &value, sizeof(V));
  }
  template <typename T>
  T LoadStored(EmulatedGlobal<T> array, int64_t index) {  // What this kernel writes as well.
    return LoadGlobal<T>(EmulatedGlobal<const T>(array), index);
  }

  // Copies kBytes (4, 8 or 16) from global to shared memory in the background.
  template <int kBytes, typename T>
  void CopyAsync(int offset, EmulatedGlobal<const T> array, int64_t index) {
    static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
    BeginCopy(offset, array.memory(), index * static_cast<int64_t>(sizeof(T)), kBytes);
  }
  // Until all copies of this thread have come.
  void WaitForCopies();

  // Of all threads of the block. `site` tells barriers apart.
  void Barrier(int site = __builtin_LINE());

  // D = A B + D of a whole warp: mma.sync.m16n8k8 (TF32) and m16n8k16 (bfloat16).
  void MmaTf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
  void MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);

 private:
  friend class EmulatedBlock;
  struct Copy {
    int offset;
    int bytes;
    uint8_t data[16];
  };

  Accessor Me() const;
  void ReadShared(int offset, void* to, int bytes);
  void WriteShared(int offset, const void* from, int bytes);
  void ReadGlobal(CheckedMemory* memory, int64_t offset, void* to, int bytes);
  void WriteGlobal(CheckedMemory* memory, int64_t offset, const void* from, int bytes);
  void BeginCopy(int offset, CheckedMemory* memory, int64_t global_offset, int bytes);

  EmulatedBlock* block_;
  int thread_;
  std::vector<Copy> copies_;
};

struct EmulatedLaunch {
  int64_t blocks = 1;  // Of the grid.
  int threads = 32;    // Of a block; a multiple of 32.
  int shared_bytes = 0;
  int64_t first_block = 0;  // Runs blocks first_block .. blocks - 1 alone.
  // Mutants: the barrier at the n-th site a block meets is removed (-1: none); so are all waits for
  // copies.
  int removed_barrier = -1;
  bool removed_waits = false;
};

// Runs body(context) for each thread of each block, one block after another. Returns how many sites
// of barriers the blocks met.
int Emulate(const EmulatedLaunch& launch, const std::function<void(EmulatedContext&)>& body);

}  // namespace ttbench
