#include "benchmarks/memory_meter.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

namespace ttbench {
namespace {

// LibTorch replaces an allocator only by one of the same or a higher priority, and never lowers the
// priority again; the highest always gets in, and back out.
constexpr uint8_t kPriority = std::numeric_limits<uint8_t>::max();

// The operators that the recording thread is in, outermost first.
std::vector<std::string>& OperatorStack() {
  thread_local std::vector<std::string> stack;
  return stack;
}

// "mm" for aten::mm; "MmBackward0" for the engine's evaluation of it, and "Fn" for that of
// torch::autograd::CppNode<(anonymous namespace)::Fn>.
std::string ShortName(std::string name) {
  for (const std::string prefix : {"aten::", "autograd::engine::evaluate_function: "}) {
    if (name.rfind(prefix, 0) == 0) name.erase(0, prefix.size());
  }
  const size_t node = name.find("CppNode<");
  if (node == std::string::npos) return name;
  name = name.substr(node + 8, name.rfind('>') - node - 8);
  const size_t colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

// The outermost operator; in the backward the node and the first operator under it.
std::string Site() {
  const std::vector<std::string>& stack = OperatorStack();
  if (stack.empty()) return "";
  const std::string site = ShortName(stack.front());
  if (stack.front().rfind("aten::", 0) == 0) return site;
  for (const std::string& inner : stack) {
    if (inner.rfind("aten::", 0) == 0) return site + ": " + ShortName(inner);
  }
  return site;
}

std::unique_ptr<at::ObserverContext> EnterOperator(const at::RecordFunction& function) {
  OperatorStack().emplace_back(function.name());
  return nullptr;
}

void LeaveOperator(const at::RecordFunction&, at::ObserverContext*) {
  if (!OperatorStack().empty()) OperatorStack().pop_back();
}

// Hands out exactly what the wrapped allocator hands out, with the data pointer as context, and
// keeps the sizes beside it, by address. A context of its own would not do: raw_allocate(), by
// which oneDNN takes its buffers, wants the data pointer as context, and raw_deallocate() may come
// for memory from before the meter, or for the meter's when it is gone.
class CountingAllocator final : public c10::Allocator {
 public:
  // Never destroyed: the storages it made point to it for as long as they live.
  static CountingAllocator& Get() {
    static CountingAllocator* const instance = new CountingAllocator(c10::GetCPUAllocator());
    return *instance;
  }

  void Install(int64_t budget_bytes) {
    const c10::Allocator* const present = c10::GetCPUAllocator();
    if (present == this) {
      throw std::logic_error("a MemoryMeter is installed already; at most one exists at a time");
    }
    if (present != &wrapped_ || wrapped_.raw_deleter() == nullptr) {
      throw std::logic_error("a MemoryMeter needs LibTorch's own CPU allocator in place");
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      counts_ = Counts();
      counts_.counting = true;
      counts_.budget_bytes = budget_bytes;
    }
    c10::SetCPUAllocator(this, kPriority);
  }

  void Remove() {
    c10::SetCPUAllocator(&wrapped_, kPriority);
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_ = Counts();
  }

  // One lock spans the check, the allocation and the counting, so that threads cannot pass the
  // budget together and a failed allocation has changed nothing.
  c10::DataPtr allocate(size_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint64_t live = static_cast<uint64_t>(counts_.live_bytes);
    const uint64_t budget = static_cast<uint64_t>(counts_.budget_bytes);
    if (budget != 0 && (live > budget || bytes > budget - live)) {
      throw OutOfBudget("an allocation of " + std::to_string(bytes) + " bytes on top of " +
                        std::to_string(live) + " live bytes passes the memory budget of " +
                        std::to_string(budget) + " bytes");
    }
    c10::DataPtr memory = wrapped_.allocate(bytes);
    if (counts_.counting && bytes != 0) {
      const int64_t size = static_cast<int64_t>(bytes);
      Block block{size, "", -1};
      if (counts_.recording) {
        block.site = Site();
        block.event = static_cast<int64_t>(counts_.events.size());
      }
      counts_.Count(size, block.site);
      counts_.blocks.emplace(memory.get(), std::move(block));
    }
    if (!memory.compare_exchange_deleter(wrapped_.raw_deleter(), &Release)) {
      throw std::logic_error("the CPU allocator does not attach the deleter it names");
    }
    return memory;
  }

  c10::DeleterFnPtr raw_deleter() const override { return &Release; }

  void copy_data(void* dest, const void* src, size_t bytes) const override {
    wrapped_.copy_data(dest, src, bytes);
  }

  void SetBudget(int64_t budget_bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_.budget_bytes = budget_bytes;
  }

  int64_t live_bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counts_.live_bytes;
  }

  int64_t peak_bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counts_.peak_bytes;
  }

  void ResetPeak() {
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_.shares.clear();
    counts_.peak_bytes = counts_.live_bytes;
  }

  void StartRecording() {
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_.recording = true;
    counts_.events.clear();
    for (auto& [data, block] : counts_.blocks) block.event = -1;
  }

  std::vector<MemoryMeter::Event> StopRecording() {
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_.recording = false;
    return std::exchange(counts_.events, {});
  }

  std::vector<MemoryMeter::Event> LiveOfRecording() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::map<int64_t, MemoryMeter::Event> live;
    for (const auto& [data, block] : counts_.blocks) {
      if (block.event >= 0) live[block.event] = {block.bytes, block.site};
    }
    std::vector<MemoryMeter::Event> events;
    for (auto& [event, allocated] : live) events.push_back(std::move(allocated));
    return events;
  }

  int64_t EventOf(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = counts_.blocks.find(data);
    return found == counts_.blocks.end() ? -1 : found->second.event;
  }

 private:
  struct Block {
    int64_t bytes;
    std::string site;  // If it was allocated while recording.
    int64_t event;     // Its place in the present or last recording; -1 for others.
  };

  struct Counts {
    // What a thread of the parallel region that runs now holds of what was taken in it, and the
    // most that it held.
    struct Share {
      int64_t live_bytes = 0, most_bytes = 0;
    };

    void Count(int64_t bytes, const std::string& site) {
      if (recording) events.push_back({bytes, site});
      live_bytes += bytes;
      int64_t most_bytes = live_bytes;
      if (at::in_parallel_region()) {
        Share& own = shares[std::this_thread::get_id()];
        own.live_bytes += bytes;
        own.most_bytes = std::max(own.most_bytes, own.live_bytes);
        for (const auto& [thread, share] : shares)
          most_bytes += share.most_bytes - share.live_bytes;
      } else {
        shares.clear();
      }
      peak_bytes = std::max(peak_bytes, most_bytes);
    }

    bool counting = false;
    bool recording = false;
    int64_t budget_bytes = 0;
    int64_t live_bytes = 0;
    int64_t peak_bytes = 0;
    std::unordered_map<std::thread::id, Share> shares;  // Empty outside of parallel regions.
    std::unordered_map<const void*, Block> blocks;
    std::vector<MemoryMeter::Event> events;
  };

  explicit CountingAllocator(c10::Allocator* wrapped) : wrapped_(*wrapped) {}

  static void Release(void* data) {
    CountingAllocator& allocator = Get();
    allocator.Uncount(data);
    allocator.wrapped_.raw_deallocate(data);
  }

  // Memory that this meter did not hand out is unknown to it and passes uncounted.
  void Uncount(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = counts_.blocks.find(data);
    if (found == counts_.blocks.end()) return;
    counts_.Count(-found->second.bytes, found->second.site);
    counts_.blocks.erase(found);
  }

  c10::Allocator& wrapped_;
  std::mutex mutex_;
  Counts counts_;  // Guarded by mutex_.
};

// The field of /proc/self/status in bytes ("VmRSS:     1234 kB"); 0 where there is none.
int64_t StatusBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != field) continue;
    int64_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

}  // namespace

MemoryMeter::MemoryMeter(int64_t budget_bytes) { CountingAllocator::Get().Install(budget_bytes); }

MemoryMeter::~MemoryMeter() {
  StopObserving();
  CountingAllocator::Get().Remove();
}

void MemoryMeter::SetBudget(int64_t budget_bytes) {
  CountingAllocator::Get().SetBudget(budget_bytes);
}

int64_t MemoryMeter::live_bytes() const { return CountingAllocator::Get().live_bytes(); }

int64_t MemoryMeter::peak_bytes() const { return CountingAllocator::Get().peak_bytes(); }

void MemoryMeter::ResetPeak() { CountingAllocator::Get().ResetPeak(); }

void MemoryMeter::StartRecording() {
  StopObserving();
  OperatorStack().clear();
  observer_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(EnterOperator, LeaveOperator)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  CountingAllocator::Get().StartRecording();
}

std::vector<MemoryMeter::Event> MemoryMeter::StopRecording() {
  StopObserving();
  return CountingAllocator::Get().StopRecording();
}

void MemoryMeter::StopObserving() {
  if (observer_) at::removeCallback(*observer_);
  observer_.reset();
}

std::vector<MemoryMeter::Event> MemoryMeter::LiveOfRecording() const {
  return CountingAllocator::Get().LiveOfRecording();
}

int64_t MemoryMeter::EventOf(const void* data) const {
  return CountingAllocator::Get().EventOf(data);
}

int64_t ResidentBytes() { return StatusBytes("VmRSS:"); }

int64_t ResidentPeakBytes() { return StatusBytes("VmHWM:"); }

bool ResetResidentPeak() {
  std::ofstream clear_refs("/proc/self/clear_refs");
  clear_refs << "5" << std::flush;
  return clear_refs.good();
}

}  // namespace ttbench
