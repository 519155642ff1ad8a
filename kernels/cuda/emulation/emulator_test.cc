#include "kernels/cuda/emulation/emulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/precision.h"

namespace ttbench {
namespace {

// What an emulation throws, or "".
template <typename Body>
std::string Caught(const EmulatedLaunch& launch, const Body& body) {
  try {
    Emulate(launch, body);
  } catch (const EmulationError& error) {
    return error.what();
  }
  return "";
}

EmulatedLaunch OneBlock(int threads, int shared_bytes) {
  EmulatedLaunch launch;
  launch.threads = threads;
  launch.shared_bytes = shared_bytes;
  return launch;
}

struct Array {
  explicit Array(std::vector<float> values) : memory("array", 4 * values.size()) {
    memory.Fill(values.data(), 4 * values.size());
  }
  EmulatedGlobal<float> global() { return EmulatedGlobal<float>(&memory); }
  float operator[](int i) const {
    float value;
    std::memcpy(&value, memory.data() + 4 * i, 4);
    return value;
  }
  CheckedMemory memory;
};

testing::AssertionResult Says(const std::string& caught, const std::string& part) {
  if (caught.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << caught << "\" does not say \"" << part << "\"";
}

// Each thread stores its number, and takes its neighbour's after the barrier.
TEST(EmulatorTest, BarriersOrderThreads) {
  Array result(std::vector<float>(128, -1));
  EmulatedLaunch launch = OneBlock(64, 256);
  launch.blocks = 2;
  const auto body = [&](EmulatedContext& ctx) {
    const int t = ctx.Thread();
    ctx.StoreShared(4 * t, static_cast<float>(t + 100 * ctx.Block()));
    ctx.Barrier();
    const int64_t to = ctx.Block() * ctx.Threads() + t;
    ctx.StoreGlobal(result.global(), to, ctx.LoadShared<float>(4 * ((t + 1) % 64)));
  };
  EXPECT_EQ(Emulate(launch, body), 1);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(result[i], (i + 1) % 64 + i / 64 * 100) << i;

  launch.removed_barrier = 0;
  // Thread 63 comes last: it reads what thread 0 wrote; the others read what nobody wrote.
  EXPECT_TRUE(Says(Caught(launch, body), "reads what nobody wrote"));
}

TEST(EmulatorTest, FindsRaces) {
  const auto run = [](const auto& body) {
    return Caught(OneBlock(32, 128), [&](EmulatedContext& ctx) { body(ctx, ctx.Thread()); });
  };
  EXPECT_TRUE(Says(run([](EmulatedContext& ctx, int t) { ctx.StoreShared(0, t); }),
                   "thread 1 races: it writes what thread 0 wrote"));
  EXPECT_TRUE(Says(run([](EmulatedContext& ctx, int t) {
                     if (t == 0) ctx.StoreShared(0, t);
                     if (t == 7) ctx.LoadShared<int>(0);
                   }),
                   "thread 7 races: it reads what thread 0 wrote"));
  EXPECT_TRUE(Says(run([](EmulatedContext& ctx, int t) {
                     ctx.StoreShared(4 * t, t);
                     ctx.Barrier();
                     ctx.LoadShared<int>(4 * (t / 4));
                     if (t == 31) ctx.StoreShared(0, t);
                   }),
                   "thread 31 races: it writes what several threads read"));
  // Half a word each is no race; what one thread alone does neither.
  EXPECT_EQ(run([](EmulatedContext& ctx, int t) {
              ctx.StoreShared(2 * t, static_cast<uint16_t>(t));
              ctx.StoreShared(2 * t, ctx.LoadShared<uint16_t>(2 * t));
            }),
            "");
}

TEST(EmulatorTest, FindsBlocksThatRace) {
  Array array({0, 0});
  EmulatedLaunch launch = OneBlock(32, 0);
  launch.blocks = 2;
  EXPECT_TRUE(Says(Caught(launch,
                          [&](EmulatedContext& ctx) {
                            if (ctx.Thread() == 0) ctx.StoreGlobal(array.global(), 1, 1.0f);
                          }),
                   "array, byte 4: thread 0 races"));
  // Another launch comes after the first.
  EXPECT_EQ(Caught(OneBlock(32, 0),
                   [&](EmulatedContext& ctx) {
                     if (ctx.Thread() == 5) ctx.StoreGlobal(array.global(), 1, 2.0f);
                   }),
            "");
}

TEST(EmulatorTest, FindsAccessesOutOfPlace) {
  Array array(std::vector<float>(32));
  const auto run = [](const auto& body) { return Caught(OneBlock(32, 128), body); };
  EXPECT_TRUE(Says(run([](EmulatedContext& ctx) { ctx.StoreShared(4 * ctx.Thread() + 4, 1); }),
                   "byte 128: thread 31 writes out of bounds"));
  EXPECT_TRUE(Says(run([](EmulatedContext& ctx) { ctx.StoreShared(-4, 1); }), "out of bounds"));
  EXPECT_TRUE(Says(run([](EmulatedContext& ctx) { ctx.StoreShared(2, 1); }), "misaligned"));
  EXPECT_TRUE(Says(run([](EmulatedContext& ctx) { ctx.LoadShared<int>(4 * ctx.Thread()); }),
                   "reads what nobody wrote"));
  EXPECT_TRUE(Says(run([&](EmulatedContext& ctx) {
                     ctx.LoadGlobal<float>(EmulatedGlobal<const float>(array.global()),
                                           ctx.Thread() + 1);
                   }),
                   "array, byte 128: thread 31 reads out of bounds"));
}

TEST(EmulatorTest, MemoryMayBeAWindowPast32Bits) {
  const int64_t first = int64_t{5} << 32;
  CheckedMemory memory("window", 8, 4 * first);
  const EmulatedGlobal<float> array(&memory);
  EXPECT_EQ(Caught(OneBlock(32, 0),
                   [&](EmulatedContext& ctx) {
                     if (ctx.Thread() < 2) ctx.StoreGlobal(array, first + ctx.Thread(), 1.0f);
                   }),
            "");
  for (int64_t index : {first - 1, first + 2, int64_t{0}}) {
    EXPECT_TRUE(Says(
        Caught(OneBlock(32, 0), [&](EmulatedContext& ctx) { ctx.StoreGlobal(array, index, 1.0f); }),
        "out of bounds"));
  }
}

TEST(EmulatorTest, FindsBarriersThatSomeThreadsMiss) {
  EXPECT_TRUE(Says(Caught(OneBlock(64, 0),
                          [](EmulatedContext& ctx) {
                            if (ctx.Thread() != 40) ctx.Barrier();
                          }),
                   "a barrier that 1 of 64 threads never reach"));
  // Outside of the macro, which would make one line of it.
  const auto two_sites = [](EmulatedContext& ctx) {
    if (ctx.Thread() < 32) {
      ctx.Barrier();
    } else {
      ctx.Barrier();
    }
  };
  EXPECT_TRUE(Says(Caught(OneBlock(64, 0), two_sites), "threads wait at different barriers"));
}

TEST(EmulatorTest, CopiesComeAfterAWaitAndABarrier) {
  std::vector<float> values(32);
  for (int i = 0; i < 32; ++i) values[i] = static_cast<float>(i);
  Array array(values);
  const EmulatedGlobal<const float> from(array.global());
  // Thread t copies element t; thread 31 reads element 31 - before.
  const auto run = [&](bool wait, bool barrier, int before) {
    return Caught(OneBlock(32, 128), [&](EmulatedContext& ctx) {
      const int t = ctx.Thread();
      ctx.CopyAsync<4>(4 * t, from, t);
      if (wait) ctx.WaitForCopies();
      if (barrier) ctx.Barrier();
      if (t < 31) return ctx.WaitForCopies();
      const int other = t - before;
      EXPECT_EQ(ctx.LoadShared<float>(4 * other), static_cast<float>(other));
    });
  };
  EXPECT_EQ(run(true, true, 1), "");
  EXPECT_EQ(run(true, false, 0), "");
  EXPECT_TRUE(Says(run(false, true, 0), "an asynchronous copy has not been waited for"));
  EXPECT_TRUE(Says(run(false, false, 0), "an asynchronous copy has not been waited for"));
  // A copy that has come only for the thread that waited for it.
  EXPECT_TRUE(Says(run(true, false, 1), "thread 31 races: it reads what thread 30 wrote"));
  // A copy over what others still read.
  EXPECT_TRUE(Says(Caught(OneBlock(32, 128),
                          [&](EmulatedContext& ctx) {
                            ctx.StoreShared(4 * ctx.Thread(), 1.0f);
                            ctx.Barrier();
                            ctx.LoadShared<float>(0);
                            if (ctx.Thread() == 3) ctx.CopyAsync<4>(0, from, 0);
                            ctx.WaitForCopies();
                          }),
                   "thread 3 races: it writes what several threads read"));
  EXPECT_TRUE(Says(
      Caught(OneBlock(32, 128),
             [&](EmulatedContext& ctx) { ctx.CopyAsync<4>(4 * ctx.Thread(), from, ctx.Thread()); }),
      "ends before its asynchronous copies"));
}

// A row, a depth and a column of small integers, so that sums are exact in any order. The layouts
// are the formulas of PTX ISA 9.0, 9.7.14.5.6 (m16n8k8, .tf32) and 9.7.14.5.8 (m16n8k16, .bf16).
TEST(EmulatorTest, TensorCoreProductsAreProducts) {
  for (const bool tf32 : {true, false}) {
    const int depth = tf32 ? 8 : 16;
    std::mt19937 engine(3);
    std::vector<float> a(16 * depth), b(depth * 8), c(16 * 8);
    for (auto* matrix : {&a, &b, &c}) {
      for (float& value : *matrix) value = static_cast<float>(static_cast<int>(engine() % 17) - 8);
    }
    std::vector<float> d(16 * 8);
    Emulate(OneBlock(32, 0), [&](EmulatedContext& ctx) {
      const int group = ctx.Thread() >> 2, in_group = ctx.Thread() % 4;
      uint32_t left[4], right[2];
      float sums[4];
      const auto pair = [](float low, float high) {
        return static_cast<uint32_t>(RoundToBfloat16(low).bits) |
               (static_cast<uint32_t>(RoundToBfloat16(high).bits) << 16);
      };
      for (int i = 0; i < 4; ++i) {
        const int row = i == 0 || i == 2 ? group : group + 8;
        if (tf32) {
          const int col = i < 2 ? in_group : in_group + 4;
          left[i] = BitsOf(a[row * depth + col]);
        } else {
          const int col = in_group * 2 + (i < 2 ? 0 : 8);
          left[i] = pair(a[row * depth + col], a[row * depth + col + 1]);
        }
        sums[i] = c[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)];
      }
      for (int i = 0; i < 2; ++i) {
        if (tf32) {
          right[i] = BitsOf(b[(in_group + 4 * i) * 8 + group]);
        } else {
          const int row = in_group * 2 + 8 * i;
          right[i] = pair(b[row * 8 + group], b[(row + 1) * 8 + group]);
        }
      }
      if (tf32) {
        ctx.MmaTf32(sums, left, right);
      } else {
        ctx.MmaBf16(sums, left, right);
      }
      for (int i = 0; i < 4; ++i) {
        d[(i < 2 ? group : group + 8) * 8 + in_group * 2 + (i & 1)] = sums[i];
      }
    });
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        float sum = c[row * 8 + column];
        for (int k = 0; k < depth; ++k) sum += a[row * depth + k] * b[k * 8 + column];
        EXPECT_EQ(d[row * 8 + column], sum) << tf32 << " " << row << " " << column;
      }
    }
  }
}

TEST(EmulatorTest, FindsTensorCoreProductsThatAreNotOne) {
  const auto run = [](const auto& condition, uint32_t operand) {
    return Caught(OneBlock(32, 0), [&](EmulatedContext& ctx) {
      float sums[4] = {};
      const uint32_t left[4] = {operand, 0, 0, 0}, right[2] = {};
      if (condition(ctx.Thread())) {
        ctx.MmaTf32(sums, left, right);
      } else if (ctx.Thread() % 2 == 1) {
        ctx.MmaBf16(sums, left, right);
      }
    });
  };
  const auto all = [](int) { return true; };
  EXPECT_EQ(run(all, BitsOf(1.5f)), "");
  EXPECT_TRUE(Says(run(all, BitsOf(1.0001f)), "not rounded to TF32"));
  EXPECT_TRUE(Says(run([](int t) { return t != 8; }, 0), "not all of its lanes reach"));
  EXPECT_TRUE(Says(run([](int t) { return t != 9; }, 0), "different products"));
}

TEST(PrecisionTest, RoundsToTheNearest) {
  const float ulp = std::ldexp(1.0f, -10);  // Of TF32 at 1.
  EXPECT_EQ(RoundToTf32(1 + ulp), 1 + ulp);
  EXPECT_EQ(RoundToTf32(1 + 0.49f * ulp), 1);
  EXPECT_EQ(RoundToTf32(1 + 0.5f * ulp), 1 + ulp);  // Ties go away from zero.
  EXPECT_EQ(RoundToTf32(-(1 + 0.5f * ulp)), -(1 + ulp));
  EXPECT_EQ(RoundToTf32(1 + 1.5f * ulp), 1 + 2 * ulp);
  EXPECT_EQ(RoundToTf32(2 - 0.1f * ulp), 2);
  EXPECT_TRUE(std::isinf(RoundToTf32(std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(std::isnan(RoundToTf32(std::numeric_limits<float>::quiet_NaN())));

  const float bf16_ulp = std::ldexp(1.0f, -7);
  const auto rounded = [](float value) { return ToFloat(RoundToBfloat16(value)); };
  EXPECT_EQ(rounded(1 + bf16_ulp), 1 + bf16_ulp);
  EXPECT_EQ(rounded(1 + 0.5f * bf16_ulp), 1);  // Ties go to even.
  EXPECT_EQ(rounded(1 + 1.5f * bf16_ulp), 1 + 2 * bf16_ulp);
  EXPECT_EQ(rounded(1 + 0.51f * bf16_ulp), 1 + bf16_ulp);
  EXPECT_EQ(rounded(-1 - 0.51f * bf16_ulp), -1 - bf16_ulp);
  EXPECT_TRUE(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isinf(rounded(std::numeric_limits<float>::infinity())));
}

}  // namespace
}  // namespace ttbench
