#include "kernels/cuda/emulation/emulator.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <exception>
#include <map>
#include <string>
#include <utility>

namespace ttbench {
namespace {

constexpr int64_t kStackBytes = 128 << 10;
// Epochs count over all launches, as memories outlive them.
uint32_t next_epoch = 1;

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Switching by _setjmp and _longjmp costs no system call; makecontext gives each fiber its stack.
class Fiber {
 public:
  Fiber() : stack_(new uint8_t[kStackBytes]) {}

  void Start(std::function<void()> body) {
    body_ = std::move(body);
    started_ = false;
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, &Fiber::Enter, 0);
  }
  // From the scheduler: runs until the fiber yields or ends.
  __attribute__((noinline)) void Resume() {
    running_ = this;
    if (_setjmp(scheduler_) != 0) return;
    if (started_) _longjmp(here_, 1);
    started_ = true;
    setcontext(&context_);
  }
  // From within a fiber: back to the scheduler.
  __attribute__((noinline)) void Yield() {
    if (_setjmp(here_) == 0) _longjmp(scheduler_, 1);
  }

 private:
  static void Enter() {
    running_->body_();
    _longjmp(scheduler_, 1);
  }

  static Fiber* running_;
  static jmp_buf scheduler_;
  std::unique_ptr<uint8_t[]> stack_;
  std::function<void()> body_;
  ucontext_t context_;
  jmp_buf here_;
  bool started_ = false;
};

Fiber* Fiber::running_ = nullptr;
jmp_buf Fiber::scheduler_;

}  // namespace

enum class Product { kTf32, kBf16 };

// The blocks of a launch, one after another, on the same fibers.
class EmulatedBlock {
 public:
  EmulatedBlock(const EmulatedLaunch& launch, const std::function<void(EmulatedContext&)>& body)
      : launch_(launch),
        body_(body),
        shared_("shared memory", launch.shared_bytes),
        fibers_(launch.threads),
        states_(launch.threads),
        waits_at_(launch.threads),
        warps_(launch.threads / kWarp),
        launch_start_(++next_epoch) {
    for (int t = 0; t < launch.threads; ++t) contexts_.emplace_back(this, t);
  }

  int barrier_sites() const { return static_cast<int>(sites_.size()); }

  void Run(int64_t block) {
    block_ = block;
    block_start_ = epoch_ = ++next_epoch;
    shared_.Reset();
    for (int t = 0; t < launch_.threads; ++t) {
      states_[t] = State::kReady;
      contexts_[t].copies_.clear();
      fibers_[t].Start([this, t] { RunThread(t); });
    }
    for (Warp& warp : warps_) warp.operands.clear();
    do {
      for (int first = 0; first < launch_.threads; first += kWarp) RunWarp(first);
    } while (ReleaseBarrier());
  }

  // For contexts.
  const EmulatedLaunch& launch() const { return launch_; }
  int64_t block() const { return block_; }
  CheckedMemory& shared() { return shared_; }
  Accessor By(int thread) const { return {thread, epoch_, block_start_, launch_start_}; }

  void Barrier(int thread, int site) {
    const int number = sites_.emplace(site, static_cast<int>(sites_.size())).first->second;
    if (number == launch_.removed_barrier) return;
    Wait(thread, State::kAtBarrier, site);
  }

  void Multiply(int thread, Product product, float* d, const uint32_t* a, const uint32_t* b) {
    Warp& warp = warps_[thread / kWarp];
    if (!warp.operands.empty() && warp.product != product) {
      throw EmulationError("the lanes of a warp are at different products");
    }
    warp.product = product;
    warp.operands.push_back({thread % kWarp, d, a, b});
    if (warp.operands.size() < kWarp) {
      Wait(thread, State::kAtProduct, 0);
      return;
    }
    MultiplyWarp(warp);
    warp.operands.clear();
    for (int lane = 0; lane < kWarp; ++lane) {
      const int other = thread / kWarp * kWarp + lane;
      if (other != thread) states_[other] = State::kReady;
    }
  }

 private:
  enum class State { kReady, kAtBarrier, kAtProduct, kDone };
  struct Operands {
    int lane;
    float* d;
    const uint32_t *a, *b;
  };
  struct Warp {
    Product product = Product::kTf32;
    std::vector<Operands> operands;  // Of the lanes that have come.
  };

  // Until all its lanes wait for other warps or are done.
  void RunWarp(int first) {
    bool ran = true;
    while (ran) {
      ran = false;
      for (int t = first; t < first + kWarp; ++t) {
        if (states_[t] != State::kReady) continue;
        fibers_[t].Resume();
        if (error_) std::rethrow_exception(error_);
        ran = true;
      }
    }
  }

  void RunThread(int thread) {
    try {
      body_(contexts_[thread]);
      if (!contexts_[thread].copies_.empty()) {
        throw EmulationError("thread " + std::to_string(thread) +
                             " ends before its asynchronous copies");
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    states_[thread] = State::kDone;
  }

  void Wait(int thread, State state, int site) {
    states_[thread] = state;
    waits_at_[thread] = site;
    fibers_[thread].Yield();
  }

  // When no thread can go on: all are at one barrier, or all are done, or it is an error. Returns
  // whether there is more to run.
  bool ReleaseBarrier() {
    const auto count = [&](State state) {
      return std::count(states_.begin(), states_.end(), state);
    };
    if (count(State::kDone) == launch_.threads) return false;
    if (count(State::kAtProduct) > 0) {
      throw EmulationError("a product of a warp that not all of its lanes reach");
    }
    if (count(State::kAtBarrier) < launch_.threads) {
      throw EmulationError("a barrier that " + std::to_string(count(State::kDone)) + " of " +
                           std::to_string(launch_.threads) + " threads never reach");
    }
    for (int site : waits_at_) {
      if (site != waits_at_[0]) {
        throw EmulationError("threads wait at different barriers, in lines " +
                             std::to_string(waits_at_[0]) + " and " + std::to_string(site));
      }
    }
    epoch_ = ++next_epoch;
    std::fill(states_.begin(), states_.end(), State::kReady);
    return true;
  }

  // The fragments of PTX ISA, "Matrix fragments for mma.m16n8k8" and "for mma.m16n8k16 with
  // floating point type": with g = lane / 4 and q = lane % 4, a lane holds of
  //   D (16 x 8):  rows g, g, g + 8, g + 8; columns 2q, 2q + 1, 2q, 2q + 1
  //   A, TF32:     rows g, g + 8, g, g + 8; depths q, q, q + 4, q + 4
  //   B, TF32:     depths q, q + 4; column g
  //   A, bfloat16: the same rows, each with two depths: 2q, 2q + 1 and 8 more in the last two
  //   B, bfloat16: depths 2q, 2q + 1 and 8 more; column g.
  static void MultiplyWarp(const Warp& warp) {
    const bool tf32 = warp.product == Product::kTf32;
    const int depth = tf32 ? 8 : 16;
    float a[16][16], b[16][8];
    for (const Operands& from : warp.operands) {
      const int g = from.lane / 4, q = from.lane % 4;
      for (int i = 0; i < 4; ++i) {
        const int row = g + 8 * (i % 2);
        if (tf32) {
          a[row][q + 4 * (i / 2)] = Tf32(from.a[i]);
        } else {
          a[row][2 * q + 8 * (i / 2)] = FromBits(from.a[i] << 16);
          a[row][2 * q + 8 * (i / 2) + 1] = FromBits(from.a[i] & 0xffff0000u);
        }
      }
      for (int i = 0; i < 2; ++i) {
        if (tf32) {
          b[q + 4 * i][g] = Tf32(from.b[i]);
        } else {
          b[2 * q + 8 * i][g] = FromBits(from.b[i] << 16);
          b[2 * q + 8 * i + 1][g] = FromBits(from.b[i] & 0xffff0000u);
        }
      }
    }
    for (const Operands& to : warp.operands) {
      const int g = to.lane / 4, q = to.lane % 4;
      for (int i = 0; i < 4; ++i) {
        const int row = g + 8 * (i / 2), column = 2 * q + i % 2;
        float sum = to.d[i];
        for (int k = 0; k < depth; ++k) sum += a[row][k] * b[k][column];
        to.d[i] = sum;
      }
    }
  }

  static float Tf32(uint32_t bits) {
    constexpr uint32_t kDropped = (1u << 13) - 1;
    if ((bits & kDropped) != 0) throw EmulationError("a TF32 operand that is not rounded to TF32");
    return FromBits(bits);
  }

  const EmulatedLaunch& launch_;
  const std::function<void(EmulatedContext&)>& body_;
  CheckedMemory shared_;
  std::vector<Fiber> fibers_;
  std::vector<State> states_;
  std::vector<int> waits_at_;
  std::vector<Warp> warps_;
  std::vector<EmulatedContext> contexts_;
  std::map<int, int> sites_;  // Of barriers: their numbers.
  std::exception_ptr error_;
  int64_t block_ = 0;
  uint32_t epoch_ = 0, block_start_ = 0, launch_start_;
};

int EmulatedContext::Threads() const { return block_->launch().threads; }
int64_t EmulatedContext::Block() const { return block_->block(); }
int64_t EmulatedContext::Blocks() const { return block_->launch().blocks; }
Accessor EmulatedContext::Me() const { return block_->By(thread_); }

void EmulatedContext::ReadShared(int offset, void* to, int bytes) {
  block_->shared().Read(offset, to, bytes, Me());
}
void EmulatedContext::WriteShared(int offset, const void* from, int bytes) {
  block_->shared().Write(offset, from, bytes, Me());
}
void EmulatedContext::ReadGlobal(CheckedMemory* memory, int64_t offset, void* to, int bytes) {
  memory->Read(offset, to, bytes, Me());
}
void EmulatedContext::WriteGlobal(CheckedMemory* memory, int64_t offset, const void* from,
                                  int bytes) {
  memory->Write(offset, from, bytes, Me());
}

void EmulatedContext::BeginCopy(int offset, CheckedMemory* memory, int64_t global_offset,
                                int bytes) {
  Copy copy{offset, bytes, {}};
  memory->Read(global_offset, copy.data, bytes, Me());
  block_->shared().BeginCopy(offset, bytes, Me());
  copies_.push_back(copy);
}

void EmulatedContext::WaitForCopies() {
  if (block_->launch().removed_waits) return;
  for (const Copy& copy : copies_) {
    block_->shared().EndCopy(copy.offset, copy.data, copy.bytes, Me());
  }
  copies_.clear();
}

void EmulatedContext::Barrier(int site) { block_->Barrier(thread_, site); }

void EmulatedContext::MmaTf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  block_->Multiply(thread_, Product::kTf32, d, a, b);
}
void EmulatedContext::MmaBf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  block_->Multiply(thread_, Product::kBf16, d, a, b);
}

int Emulate(const EmulatedLaunch& launch, const std::function<void(EmulatedContext&)>& body) {
  EmulatedBlock block(launch, body);
  for (int64_t b = launch.first_block; b < launch.blocks; ++b) block.Run(b);
  return block.barrier_sites();
}

}  // namespace ttbench
