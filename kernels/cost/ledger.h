// A ledger of named buffers: what is alive, what was alive at the peak, and in which order it came
// and went. Cost models write it; the memory meter's recording of a real run must match it event by
// event.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ttbench::cost {

// A named amount of memory: one term of a cost model.
struct Term {
  std::string name;
  int64_t bytes;
};

class Ledger {
 public:
  struct Event {
    std::string name;
    int64_t bytes;  // Positive when allocated, negative when released.
  };

  // A buffer is alive as long as a handle to it is.
  class Buffer {
   public:
    ~Buffer();
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    const std::string& name() const { return name_; }
    int64_t bytes() const { return bytes_; }
    // The place of its allocation in events(); where the next event will be, if it has no bytes.
    int64_t event() const { return event_; }

   private:
    friend class Ledger;
    Buffer(Ledger* ledger, std::string name, int64_t bytes);
    Ledger* ledger_;
    std::string name_;
    int64_t bytes_, event_;
  };
  using Handle = std::shared_ptr<Buffer>;

  Ledger() = default;
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // The ledger must outlive the handle. Buffers of no bytes leave no trace. Throws ShapeError, and
  // changes nothing, where a sum passes 64 bits.
  Handle Allocate(std::string name, int64_t bytes);

  int64_t live_bytes() const { return live_bytes_; }
  int64_t peak_bytes() const { return peak_bytes_; }
  void ResetPeak();
  // What is alive now, and what was at the peak, in order of allocation.
  std::vector<Term> live_terms() const;
  std::vector<Term> peak_terms() const { return at_peak_ ? live_terms() : peak_terms_; }
  const std::vector<Event>& events() const { return events_; }
  // The sum of all bytes ever allocated: a measure of the memory traffic.
  int64_t allocated_bytes() const { return allocated_bytes_; }

 private:
  // Copies the terms of the peak before what is alive changes: a peak that rises on is not copied.
  void LeavePeak();

  std::vector<const Buffer*> live_;
  int64_t live_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  int64_t allocated_bytes_ = 0;
  bool at_peak_ = true;           // What is alive is what the peak is made of.
  std::vector<Term> peak_terms_;  // Once it no longer is.
  std::vector<Event> events_;
};

}  // namespace ttbench::cost
