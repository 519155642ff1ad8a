#include "benchmarks/memory_meter.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ttbench {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

std::vector<int64_t> BytesOf(const std::vector<MemoryMeter::Event>& events) {
  std::vector<int64_t> bytes;
  for (const MemoryMeter::Event& event : events) bytes.push_back(event.bytes);
  return bytes;
}

TEST(MemoryMeterTest, StartsAtZero) {
  const MemoryMeter meter;
  EXPECT_EQ(meter.live_bytes(), 0);
  EXPECT_EQ(meter.peak_bytes(), 0);
}

TEST(MemoryMeterTest, CountsElementsTimesElementSize) {
  const MemoryMeter meter;
  const struct {
    at::ScalarType dtype;
    int64_t element_bytes;
  } cases[] = {{at::kBool, 1},  {at::kChar, 1}, {at::kBFloat16, 2}, {at::kHalf, 2},
               {at::kFloat, 4}, {at::kInt, 4},  {at::kDouble, 8},   {at::kComplexDouble, 16}};
  for (const auto& c : cases) {
    const at::Tensor t = at::empty({3, 5, 7}, c.dtype);
    EXPECT_EQ(meter.live_bytes(), 3 * 5 * 7 * c.element_bytes) << c.dtype;
  }
  EXPECT_EQ(meter.live_bytes(), 0);
  EXPECT_EQ(meter.peak_bytes(), 3 * 5 * 7 * 16);
}

TEST(MemoryMeterTest, CountsRequestedBytesNotRoundedOnes) {
  const MemoryMeter meter;
  const at::Tensor t = at::empty({1}, at::kChar);
  EXPECT_EQ(meter.live_bytes(), 1);
}

TEST(MemoryMeterTest, ViewsAddNothing) {
  MemoryMeter meter;
  at::Tensor t = at::empty({4, 6});
  meter.StartRecording();
  const at::Tensor transposed = t.t();
  const at::Tensor rows = t.narrow(0, 1, 2);
  const at::Tensor flat = t.reshape({24});
  const at::Tensor wide = t.unsqueeze(0).expand({100, 4, 6});
  EXPECT_EQ(meter.live_bytes(), 4 * 6 * 4);
  t.reset();
  EXPECT_EQ(meter.live_bytes(), 4 * 6 * 4) << "its views hold it";
  EXPECT_TRUE(meter.StopRecording().empty());
}

TEST(MemoryMeterTest, ZeroBytesAreNoEvent) {
  MemoryMeter meter(/*budget_bytes=*/64);
  meter.StartRecording();
  {
    const at::Tensor none = at::empty({0, 5});
    c10::Allocator* const allocator = c10::GetCPUAllocator();
    const c10::DataPtr nothing = allocator->allocate(0);
    allocator->raw_deallocate(allocator->raw_allocate(0));
    EXPECT_EQ(meter.live_bytes(), 0);
  }
  EXPECT_TRUE(meter.StopRecording().empty());
}

TEST(MemoryMeterTest, ResizeGrowsByANewBufferBesideTheOld) {
  MemoryMeter meter;
  at::Tensor t = at::empty({10});
  meter.StartRecording();
  t.resize_({5});
  EXPECT_EQ(meter.live_bytes(), 40) << "shrinking keeps the storage";
  t.resize_({20});
  EXPECT_EQ(meter.live_bytes(), 80);
  EXPECT_EQ(meter.peak_bytes(), 120);
  EXPECT_EQ(BytesOf(meter.StopRecording()), (std::vector<int64_t>{80, -40}));
}

TEST(MemoryMeterTest, TensorsMadeBeforeAreNotCounted) {
  std::optional<at::Tensor> before = at::empty({100});
  MemoryMeter meter;
  meter.StartRecording();
  EXPECT_EQ(meter.live_bytes(), 0);
  const at::Tensor during = at::empty({10});
  before->resize_({200});
  before.reset();
  EXPECT_EQ(meter.live_bytes(), 40);
  EXPECT_EQ(BytesOf(meter.StopRecording()), std::vector<int64_t>{40});
}

TEST(MemoryMeterTest, TensorsMayOutliveTheMeter) {
  at::Tensor survivor;
  {
    const MemoryMeter meter(/*budget_bytes=*/5000);
    survivor = at::ones({1000});
    EXPECT_EQ(meter.live_bytes(), 4000);
  }
  EXPECT_EQ(survivor.sum().item<float>(), 1000.f);
  survivor.resize_({2000});  // Past the budget, which ended with the meter.
  survivor.fill_(2.f);
  EXPECT_EQ(survivor.sum().item<float>(), 4000.f);
  survivor.reset();
}

TEST(MemoryMeterTest, ALaterMeterIgnoresTensorsOfAnEarlierOne) {
  std::vector<at::Tensor> survivors;
  {
    const MemoryMeter first;
    for (int i = 0; i < 10; ++i) survivors.push_back(at::empty({1000}));
  }
  const MemoryMeter second;
  survivors.clear();
  EXPECT_EQ(second.live_bytes(), 0);
  const at::Tensor t = at::empty({1000});
  EXPECT_EQ(second.live_bytes(), 4000);
}

TEST(MemoryMeterTest, PeakIsTheMostSinceItsReset) {
  MemoryMeter meter;
  const at::Tensor kept = at::empty({25});
  { const at::Tensor brief = at::empty({100}); }
  EXPECT_EQ(meter.live_bytes(), 100);
  EXPECT_EQ(meter.peak_bytes(), 500);
  meter.ResetPeak();
  EXPECT_EQ(meter.peak_bytes(), 100);
  { const at::Tensor brief = at::empty({50}); }
  EXPECT_EQ(meter.peak_bytes(), 300);
}

TEST(MemoryMeterTest, RecordsInOrder) {
  MemoryMeter meter;
  std::optional<at::Tensor> a = at::empty({1});
  meter.StartRecording();
  std::optional<at::Tensor> b = at::empty({2});
  a.reset();
  const at::Tensor c = at::empty({3});
  b.reset();
  EXPECT_EQ(BytesOf(meter.StopRecording()), (std::vector<int64_t>{8, -4, 12, -8}));
  const at::Tensor unrecorded = at::empty({4});
  EXPECT_TRUE(meter.StopRecording().empty());
  meter.StartRecording();
  const at::Tensor dropped = at::empty({5});
  meter.StartRecording();
  EXPECT_TRUE(meter.StopRecording().empty()) << "a new recording starts empty";
}

TEST(MemoryMeterTest, SitesAreTheOperatorsCalled) {
  MemoryMeter meter;
  const at::Tensor a = at::ones({2, 3}).requires_grad_(), b = at::ones({3, 5});
  auto sites = [](const std::vector<MemoryMeter::Event>& events) {
    std::vector<std::string> sites;
    for (const MemoryMeter::Event& event : events) {
      sites.push_back((event.bytes > 0 ? "+" : "-") + event.site);
    }
    return sites;
  };
  meter.StartRecording();
  at::Tensor copy = a.transpose(0, 1).reshape({6});
  at::Tensor product = at::mm(a, b);
  copy.reset();
  const c10::DataPtr scratch = c10::GetCPUAllocator()->allocate(8);
  EXPECT_EQ(sites(meter.StopRecording()),
            (std::vector<std::string>{"+reshape", "+mm", "-reshape", "+"}));
  const at::Tensor dy = at::ones({2, 5});
  meter.StartRecording();
  torch::autograd::backward({product}, {dy});
  EXPECT_EQ(sites(meter.StopRecording()), std::vector<std::string>{"+MmBackward0: mm"});
}

TEST(MemoryMeterTest, TellsWhatIsLeftOfARecording) {
  MemoryMeter meter;
  const at::Tensor before = at::empty({1});
  meter.StartRecording();
  const at::Tensor first = at::empty({2});
  at::Tensor gone = at::empty({3});
  const at::Tensor second = at::ones({4});
  gone.reset();
  EXPECT_EQ(BytesOf(meter.LiveOfRecording()), (std::vector<int64_t>{8, 16}));
  meter.StopRecording();
  const at::Tensor after = at::empty({5});
  EXPECT_EQ(BytesOf(meter.LiveOfRecording()), (std::vector<int64_t>{8, 16}));
  meter.StartRecording();
  EXPECT_TRUE(meter.LiveOfRecording().empty());
}

TEST(MemoryMeterTest, CountsHiddenCopies) {
  MemoryMeter meter;
  const at::Tensor t = at::ones({8, 16, 32});
  constexpr int64_t kBytes = 8 * 16 * 32 * 4;
  meter.StartRecording();
  const at::Tensor copied = t.permute({2, 0, 1}).reshape({32 * 8, 16});
  EXPECT_EQ(BytesOf(meter.StopRecording()), std::vector<int64_t>{kBytes});

  // A product of every second column: BLAS takes no such matrix, so mm copies it and drops the
  // copy.
  const at::Tensor wide = at::ones({64, 20});
  const at::Tensor matrix = at::ones({10, 4});
  meter.StartRecording();
  const at::Tensor product = at::mm(wide.slice(1, 0, 20, 2), matrix);
  EXPECT_EQ(BytesOf(meter.StopRecording()),
            (std::vector<int64_t>{64 * 4 * 4, 64 * 10 * 4, -64 * 10 * 4}));
}

TEST(MemoryMeterTest, BudgetRefusesInOneSentenceAndChangesNothing) {
  MemoryMeter meter(/*budget_bytes=*/1000);
  const at::Tensor held = at::empty({150});  // 600 bytes
  meter.StartRecording();
  try {
    const at::Tensor refused = at::empty({101});
    FAIL() << "404 bytes on top of 600 pass a budget of 1000";
  } catch (const OutOfBudget& e) {
    EXPECT_STREQ(e.what(),
                 "an allocation of 404 bytes on top of 600 live bytes passes the memory budget of "
                 "1000 bytes");
  }
  EXPECT_EQ(meter.live_bytes(), 600);
  EXPECT_EQ(meter.peak_bytes(), 600);
  EXPECT_TRUE(meter.StopRecording().empty());
  const at::Tensor fits = at::empty({100});
  EXPECT_EQ(meter.live_bytes(), 1000) << "the budget itself may be used up";
  EXPECT_THROW(at::empty({1}, at::kChar), OutOfBudget);
  EXPECT_EQ(at::empty({0}).numel(), 0);
}

TEST(MemoryMeterTest, BudgetHoldsInsideAnOperator) {
  const MemoryMeter meter(/*budget_bytes=*/2000);
  const at::Tensor a = at::ones({300});
  EXPECT_THROW(at::add(a, a), OutOfBudget);
  EXPECT_EQ(meter.live_bytes(), 1200);
  EXPECT_EQ(a.sum().item<float>(), 300.f);
}

TEST(MemoryMeterTest, AFailedAllocationChangesNothing) {
  MemoryMeter meter;
  const at::Tensor held = at::empty({10});
  meter.StartRecording();
  for (const size_t bytes : {size_t{1} << 62, std::numeric_limits<size_t>::max()}) {
    EXPECT_ANY_THROW(c10::GetCPUAllocator()->allocate(bytes));
  }
  EXPECT_EQ(meter.live_bytes(), 40);
  EXPECT_EQ(meter.peak_bytes(), 40);
  EXPECT_TRUE(meter.StopRecording().empty());
}

TEST(MemoryMeterTest, RawAllocationsAreCounted) {
  MemoryMeter meter;
  meter.StartRecording();
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  void* const data = allocator->raw_allocate(123);
  EXPECT_EQ(meter.live_bytes(), 123);
  allocator->raw_deallocate(data);
  EXPECT_EQ(BytesOf(meter.StopRecording()), (std::vector<int64_t>{123, -123}));
}

TEST(MemoryMeterTest, RawAllocationsMayCrossTheMetersEnds) {
  void* const before = c10::GetCPUAllocator()->raw_allocate(100);
  void* during = nullptr;
  {
    const MemoryMeter meter;
    c10::GetCPUAllocator()->raw_deallocate(before);
    EXPECT_EQ(meter.live_bytes(), 0);
    during = c10::GetCPUAllocator()->raw_allocate(200);
    EXPECT_EQ(meter.live_bytes(), 200);
  }
  c10::GetCPUAllocator()->raw_deallocate(during);
}

TEST(MemoryMeterTest, CountsOneDnnBuffers) {
  const at::Tensor dense = at::ones({64, 64});
  if (!at::globalContext().hasMKLDNN()) GTEST_SKIP() << "LibTorch has no oneDNN";
  at::Tensor opaque;
  {
    const MemoryMeter meter;
    opaque = dense.to_mkldnn();
    EXPECT_GE(meter.live_bytes(), 64 * 64 * 4);
  }
  EXPECT_EQ(opaque.to_dense().sum().item<float>(), 64.f * 64.f);
}

TEST(MemoryMeterTest, CloneThroughTheAllocatorIsCounted) {
  const MemoryMeter meter;
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  const std::string text = "sixteen bytes ok";
  const c10::DataPtr original = allocator->allocate(text.size());
  text.copy(static_cast<char*>(original.get()), text.size());
  const c10::DataPtr copy = allocator->clone(original.get(), text.size());
  EXPECT_EQ(std::string(static_cast<const char*>(copy.get()), text.size()), text);
  EXPECT_TRUE(allocator->is_simple_data_ptr(copy));
  EXPECT_EQ(meter.live_bytes(), 32);
}

TEST(MemoryMeterTest, PutsThePreviousAllocatorBack) {
  c10::Allocator* const before = c10::GetCPUAllocator();
  for (int i = 0; i < 3; ++i) {
    {
      const MemoryMeter meter;
      EXPECT_NE(c10::GetCPUAllocator(), before);
    }
    EXPECT_EQ(c10::GetCPUAllocator(), before);
  }
}

TEST(MemoryMeterTest, ASecondMeterIsRefused) {
  const MemoryMeter meter;
  const at::Tensor t = at::empty({5});
  EXPECT_THROW(MemoryMeter(), std::logic_error);
  EXPECT_EQ(meter.live_bytes(), 20) << "the first goes on";
}

TEST(MemoryMeterTest, RefusesToWrapAnotherAllocator) {
  struct Foreign final : c10::Allocator {
    explicit Foreign(c10::Allocator* base) : base(base) {}
    c10::DataPtr allocate(size_t bytes) override { return base->allocate(bytes); }
    void copy_data(void* dest, const void* src, size_t bytes) const override {
      base->copy_data(dest, src, bytes);
    }
    c10::Allocator* base;
  };
  { const MemoryMeter wraps_the_default; }
  c10::Allocator* const before = c10::GetCPUAllocator();
  Foreign foreign(before);
  c10::SetCPUAllocator(&foreign, 255);
  EXPECT_THROW(MemoryMeter(), std::logic_error);
  EXPECT_EQ(c10::GetCPUAllocator(), &foreign);
  c10::SetCPUAllocator(before, 255);
}

TEST(MemoryMeterTest, ThreadsAddUpExactly) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 2000;
  MemoryMeter meter;
  meter.StartRecording();
  std::vector<c10::DataPtr> kept(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&kept, i] {
      c10::Allocator* const allocator = c10::GetCPUAllocator();
      for (int round = 0; round < kRounds; ++round) {
        const c10::DataPtr brief = allocator->allocate(1 + round % 97);
        kept[i] = allocator->allocate(1000 + i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  // Each thread ends with 1000 + i bytes; on the way it holds at most the new one, the one it
  // replaces and the brief one.
  int64_t expected = 0;
  int64_t bound = 0;
  for (int i = 0; i < kThreads; ++i) {
    expected += 1000 + i;
    bound += 2 * (1000 + i) + 97;
  }
  EXPECT_EQ(meter.live_bytes(), expected);
  EXPECT_LE(meter.peak_bytes(), bound);

  // The record is a history: played back, it gives the same live bytes and the same peak.
  const std::vector<int64_t> events = BytesOf(meter.StopRecording());
  EXPECT_EQ(events.size(), size_t{kThreads * (4 * kRounds - 1)});
  int64_t live = 0;
  int64_t peak = 0;
  for (const int64_t bytes : events) {
    live += bytes;
    EXPECT_GE(live, 0);
    peak = std::max(peak, live);
  }
  EXPECT_EQ(live, expected);
  EXPECT_EQ(peak, meter.peak_bytes());

  kept.clear();
  EXPECT_EQ(meter.live_bytes(), 0);
}

// Threads that take turns count as if they had met.
TEST(MemoryMeterTest, PeakOfAParallelRegionIsNoChance) {
  at::set_num_threads(2);
  MemoryMeter meter;
  c10::Allocator* const allocator = c10::GetCPUAllocator();
  const c10::DataPtr before = allocator->allocate(10);
  auto in_turns = [&](size_t bytes) {
    std::mutex turn;
    at::parallel_for(0, 2, 1, [&](int64_t, int64_t) {
      const std::lock_guard<std::mutex> lock(turn);
      for (const size_t part : {bytes, bytes / 2}) allocator->allocate(part);
    });
  };
  in_turns(1000);
  EXPECT_EQ(meter.live_bytes(), 10);
  EXPECT_EQ(meter.peak_bytes(), 10 + 2 * 1000);
  // What one region held is no part of what comes after it.
  meter.ResetPeak();
  in_turns(600);
  EXPECT_EQ(meter.peak_bytes(), 10 + 2 * 600);
  meter.ResetPeak();
  const c10::DataPtr after = allocator->allocate(7);
  EXPECT_EQ(meter.peak_bytes(), 17);
  at::set_num_threads(1);
}

TEST(MemoryMeterTest, ThreadsCannotPassTheBudgetTogether) {
  constexpr int kThreads = 8;
  constexpr int64_t kFits = 20;
  const MemoryMeter meter(/*budget_bytes=*/kFits * 100 + 99);
  std::vector<std::vector<c10::DataPtr>> held(kThreads);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&held, &refused, i] {
      for (int round = 0; round < 50; ++round) {
        try {
          held[i].push_back(c10::GetCPUAllocator()->allocate(100));
        } catch (const OutOfBudget&) {
          ++refused;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(meter.live_bytes(), kFits * 100);
  EXPECT_EQ(meter.peak_bytes(), kFits * 100);
  EXPECT_EQ(refused, kThreads * 50 - kFits);
}

TEST(ResidentTest, PeakRisesByWhatATensorTouches) {
  if (!ResetResidentPeak()) GTEST_SKIP() << "the kernel has no /proc/self/clear_refs";
  const int64_t before = ResidentPeakBytes();
  EXPECT_GT(before, 0);
  EXPECT_NEAR(before, ResidentBytes(), 2 * kMiB);
  {
    const at::Tensor t = at::ones({16 * kMiB});  // 64 MiB
    EXPECT_NEAR(ResidentPeakBytes() - before, 64 * kMiB, 4 * kMiB);
    EXPECT_NEAR(ResidentBytes() - before, 64 * kMiB, 4 * kMiB);
  }
  EXPECT_NEAR(ResidentPeakBytes() - before, 64 * kMiB, 4 * kMiB) << "a peak stays";
  EXPECT_NEAR(ResidentBytes(), before, 4 * kMiB);
  EXPECT_TRUE(ResetResidentPeak());
  EXPECT_NEAR(ResidentPeakBytes(), before, 4 * kMiB);
}

TEST(ResidentTest, UntouchedMemoryIsNotResident) {
  if (!ResetResidentPeak()) GTEST_SKIP() << "the kernel has no /proc/self/clear_refs";
  const int64_t before = ResidentPeakBytes();
  const at::Tensor t = at::empty({16 * kMiB});
  EXPECT_NEAR(ResidentPeakBytes(), before, 4 * kMiB);
}

}  // namespace
}  // namespace ttbench
