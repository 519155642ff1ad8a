// What an emulated memory remembers about each pair of bytes: who wrote and who read it, and when.
// Time is counted in epochs: barriers begin a new one, and so do blocks and launches.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ttbench {

// What a kernel did wrong, in one sentence.
class EmulationError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Who accesses: a thread of the running block, and since when the block and the launch run.
struct Accessor {
  int thread = 0;
  uint32_t epoch = 1, block_start = 1, launch_start = 1;
};

// A memory of `bytes` bytes that stands at [begin, begin + bytes) of a larger one, so that offsets
// past 32 bits can be tested. Every access is checked: its bounds and alignment, that what is read
// was written, and that no other thread touched it without a barrier between, or another block
// of the same launch at all, unless both only read.
class CheckedMemory {
 public:
  CheckedMemory(std::string name, int64_t bytes, int64_t begin = 0);

  const std::string& name() const { return name_; }
  int64_t begin() const { return begin_; }
  int64_t end() const { return begin_ + static_cast<int64_t>(data_.size()); }

  // For the host: without checks, from `begin` on. Writing counts as before every launch.
  const uint8_t* data() const { return data_.data(); }
  void Fill(const void* from, int64_t bytes);
  // Forgets all contents.
  void Reset();

  void Read(int64_t offset, void* to, int bytes, const Accessor& by);
  void Write(int64_t offset, const void* from, int bytes, const Accessor& by);
  // An asynchronous copy: from its issue to its end nobody may read or write what it writes.
  void BeginCopy(int64_t offset, int bytes, const Accessor& by);
  void EndCopy(int64_t offset, const void* from, int bytes, const Accessor& by);

 private:
  struct Pair {  // Of bytes.
    uint32_t write_epoch = 0, read_epoch = 0;
    int16_t writer = 0, reader = 0;  // In those epochs. Several readers: kMany.
    bool written = false, pending = false;
  };
  static constexpr int16_t kMany = -1;

  int64_t CheckPlace(const char* what, int64_t offset, int bytes, const Accessor& by) const;
  void CheckWrite(const Pair& pair, int64_t index, const Accessor& by) const;
  [[noreturn]] void Fail(const std::string& what, int64_t offset, const Accessor& by) const;

  std::string name_;
  int64_t begin_;
  std::vector<uint8_t> data_;
  std::vector<Pair> pairs_;
};

}  // namespace ttbench
