// Counts the bytes that tensors hold, exactly, by standing in for LibTorch's CPU allocator.
//
// What is counted: the bytes requested for every tensor and every scratch buffer allocated through
// c10::GetCPUAllocator() while a meter is installed, live and peak, on any thread. What is not:
// what GEMM libraries allocate for themselves, and the heap of C++ objects; the resident high-water
// mark (ResidentPeak) sees those too, and the two are never mixed.
//
// How the threads of a parallel region (at::parallel_for) overlap is chance; the peak is not. While
// a region runs, each of its threads counts with the most that it alone has held in it: the peak is
// what may be needed at once.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace ttbench {

// Thrown by an allocation that would pass the budget. what() is one sentence for the user.
class OutOfBudget : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Installed from construction to destruction; timing runs without one, so that it costs a timed run
// nothing. At most one exists at a time; a second one throws std::logic_error. Construct and
// destroy it while no other thread allocates; between the two, any thread may.
//
// A tensor may outlive the meter: its bytes are then freed but no longer counted. A tensor made
// before the meter is not counted, neither when it is freed nor when it is resized.
class MemoryMeter {
 public:
  // budget_bytes = 0: no budget. Otherwise an allocation that would bring the live bytes past the
  // budget throws OutOfBudget and changes nothing.
  explicit MemoryMeter(int64_t budget_bytes = 0);
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  // From now on; set-up before it goes free.
  void SetBudget(int64_t budget_bytes);

  int64_t live_bytes() const;
  int64_t peak_bytes() const;  // The most live bytes since construction or the last ResetPeak().
  void ResetPeak();            // peak_bytes() = live_bytes()

  struct Event {
    int64_t bytes;     // Positive when allocated, negative when released.
    std::string site;  // What allocated it: "mm", "MmBackward0: mm"; "" if no operator did.
  };
  // While recording, every allocation and release is kept in order. For showing a measured sequence
  // beside a model's; zero-byte events are left out. Sites are those of operators that the
  // recording thread calls.
  void StartRecording();
  std::vector<Event> StopRecording();
  // What was allocated since StartRecording(), or until StopRecording(), and is alive, in order.
  std::vector<Event> LiveOfRecording() const;
  // The place, in the present recording, of the allocation that is alive at `data`; -1 if it is
  // older, or not of this meter.
  int64_t EventOf(const void* data) const;

 private:
  void StopObserving();

  std::optional<uint64_t> observer_;  // The callback by which operators tell that they run.
};

// The process's resident memory in bytes, from /proc/self/status; 0 where the kernel has none.
int64_t ResidentBytes();      // VmRSS
int64_t ResidentPeakBytes();  // VmHWM
// Restarts VmHWM from the present resident size ("5" to /proc/self/clear_refs). False where the
// kernel refuses.
bool ResetResidentPeak();

}  // namespace ttbench
