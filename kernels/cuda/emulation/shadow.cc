#include "kernels/cuda/emulation/shadow.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ttbench {
namespace {

// Whether an access of `thread` at `epoch` is ordered before the present one: by a barrier within
// the block, or by an earlier launch.
bool Ordered(uint32_t epoch, bool same_thread, const Accessor& by) {
  if (epoch < by.launch_start) return true;
  if (epoch < by.block_start) return false;  // Another block.
  return epoch < by.epoch || same_thread;
}

}  // namespace

CheckedMemory::CheckedMemory(std::string name, int64_t bytes, int64_t begin)
    : name_(std::move(name)),
      begin_(begin),
      data_(bytes + bytes % 2),
      pairs_((bytes + bytes % 2) / 2) {}

void CheckedMemory::Fill(const void* from, int64_t bytes) {
  std::memcpy(data_.data(), from, bytes);
  for (int64_t i = 0; i < (bytes + 1) / 2; ++i) {
    pairs_[i] = Pair();
    pairs_[i].written = true;
  }
}

void CheckedMemory::Reset() { std::fill(pairs_.begin(), pairs_.end(), Pair()); }

void CheckedMemory::Fail(const std::string& what, int64_t offset, const Accessor& by) const {
  throw EmulationError(name_ + ", byte " + std::to_string(offset) + ": thread " +
                       std::to_string(by.thread) + " " + what);
}

int64_t CheckedMemory::CheckPlace(const char* what, int64_t offset, int bytes,
                                  const Accessor& by) const {
  if (offset < begin_ || offset + bytes > end()) {
    Fail(std::string(what) + " out of bounds: the memory is [" + std::to_string(begin_) + ", " +
             std::to_string(end()) + ")",
         offset, by);
  }
  if (offset % bytes != 0) {
    Fail(std::string(what) + " " + std::to_string(bytes) + " bytes there, misaligned", offset, by);
  }
  return (offset - begin_) / 2;
}

void CheckedMemory::CheckWrite(const Pair& pair, int64_t index, const Accessor& by) const {
  const int64_t offset = begin_ + 2 * index;
  if (pair.pending) Fail("writes where an asynchronous copy has not been waited for", offset, by);
  if (!Ordered(pair.write_epoch, pair.writer == by.thread, by)) {
    Fail("races: it writes what thread " + std::to_string(pair.writer) + " wrote", offset, by);
  }
  if (!Ordered(pair.read_epoch, pair.reader == by.thread, by)) {
    Fail("races: it writes what " +
             (pair.reader == kMany ? std::string("several threads")
                                   : "thread " + std::to_string(pair.reader)) +
             " read",
         offset, by);
  }
}

void CheckedMemory::Read(int64_t offset, void* to, int bytes, const Accessor& by) {
  const int64_t first = CheckPlace("reads", offset, bytes, by);
  for (int64_t i = first; i < first + bytes / 2; ++i) {
    Pair& pair = pairs_[i];
    if (pair.pending) {
      Fail("reads where an asynchronous copy has not been waited for", begin_ + 2 * i, by);
    }
    if (!pair.written) Fail("reads what nobody wrote", begin_ + 2 * i, by);
    if (!Ordered(pair.write_epoch, pair.writer == by.thread, by)) {
      Fail("races: it reads what thread " + std::to_string(pair.writer) + " wrote", begin_ + 2 * i,
           by);
    }
    if (pair.read_epoch != by.epoch) {
      pair.read_epoch = by.epoch;
      pair.reader = static_cast<int16_t>(by.thread);
    } else if (pair.reader != by.thread) {
      pair.reader = kMany;
    }
  }
  std::memcpy(to, data_.data() + (offset - begin_), bytes);
}

void CheckedMemory::Write(int64_t offset, const void* from, int bytes, const Accessor& by) {
  const int64_t first = CheckPlace("writes", offset, bytes, by);
  for (int64_t i = first; i < first + bytes / 2; ++i) {
    Pair& pair = pairs_[i];
    CheckWrite(pair, i, by);
    pair.written = true;
    pair.write_epoch = by.epoch;
    pair.writer = static_cast<int16_t>(by.thread);
  }
  std::memcpy(data_.data() + (offset - begin_), from, bytes);
}

void CheckedMemory::BeginCopy(int64_t offset, int bytes, const Accessor& by) {
  const int64_t first = CheckPlace("copies", offset, bytes, by);
  for (int64_t i = first; i < first + bytes / 2; ++i) {
    CheckWrite(pairs_[i], i, by);
    pairs_[i].pending = true;
  }
}

void CheckedMemory::EndCopy(int64_t offset, const void* from, int bytes, const Accessor& by) {
  const int64_t first = CheckPlace("copies", offset, bytes, by);
  for (int64_t i = first; i < first + bytes / 2; ++i) pairs_[i].pending = false;
  Write(offset, from, bytes, by);
}

}  // namespace ttbench
