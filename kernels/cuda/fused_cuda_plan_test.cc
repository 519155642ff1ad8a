#include "kernels/cuda/fused_cuda_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

namespace ttbench {
namespace {

constexpr CudaPrecision kPrecisions[] = {CudaPrecision::kFloat32, CudaPrecision::kTf32,
                                         CudaPrecision::kBfloat16};
constexpr CudaPass kPasses[] = {CudaPass::kForward, CudaPass::kBackward};

TEST(FastDivisorTest, DividesAsDivisionDoes) {
  std::mt19937 engine(1);
  std::uniform_int_distribution<uint32_t> any(0, (uint32_t{1} << 31) - 1);
  for (int i = 0; i < 2000; ++i) {
    const uint32_t divisor = i < 1000 ? i + 1 : any(engine) >> (engine() % 31) | 1;
    const FastDivisor by(divisor);
    const uint32_t largest = (uint32_t{1} << 31) - 1;
    const uint32_t multiple = largest / divisor * divisor;
    for (uint32_t n : {uint32_t{0}, divisor - 1, divisor, multiple, multiple - 1, largest,
                       any(engine), any(engine)}) {
      uint32_t remainder;
      ASSERT_EQ(by.Divide(n, &remainder), n / divisor) << n << " / " << divisor;
      ASSERT_EQ(remainder, n % divisor);
    }
  }
}

TEST(FusedCudaPlanTest, PlansFitTheirDevice) {
  for (const CudaDevice& device : {A100(), H100(), H200()}) {
    for (int64_t d : {4, 8, 10, 16, 32}) {
      for (int64_t r : {1, 2, 8, 16, 32}) {
        const TtShape shape = TtShape::Cube(3, d, r);
        for (CudaPrecision precision : kPrecisions) {
          for (CudaPass pass : kPasses) {
            const auto plan = PlanFusedCuda(shape, 512, precision, pass, device);
            ASSERT_TRUE(plan) << device.name << " " << d << " " << r;
            EXPECT_LE(plan->shared_bytes, device.shared_bytes_per_block);
            EXPECT_GE(plan->occupancy.blocks, 1);
            EXPECT_LE(plan->grid, device.multiprocessors * plan->occupancy.blocks);
            EXPECT_LE(plan->grid, plan->params.units);
          }
        }
      }
    }
  }
}

// Tiles cut the layer's work and add none: K = 3 cubes take d^4 (r^2 + 2r) multiply-adds a row, and
// the backward twice that and what it computes again, all but the first core's.
TEST(FusedCudaPlanTest, UnitsAddUpToTheLayer) {
  const int64_t d = 8, r = 4, batch = 64;
  for (CudaPass pass : kPasses) {
    for (int64_t chunk : {1, 2, 8}) {
      for (int64_t block : {1, 4}) {
        const auto plan =
            MakeFusedCudaPlan(TtShape::Cube(3, d, r), batch, CudaPrecision::kTf32, pass, A100(),
                              false, {2, chunk, block, 128, false, false});
        ASSERT_TRUE(plan);
        const double macs = static_cast<double>(d * d * d * d * (r * r + 2 * r) * batch);
        const double again = static_cast<double>(d * d * d * d * (r * r + r) * batch);
        EXPECT_EQ(plan->unit.macs * static_cast<double>(plan->params.units),
                  pass == CudaPass::kForward ? macs : 2 * macs + again);
        EXPECT_GE(plan->unit.issued_macs, plan->unit.macs);
      }
    }
  }
}

// 10x14x15:2x5x41 takes a twelfth of the multiply-adds when it is contracted from the first core:
// 33,600 + 134,400 + 49,200 a row, not 688,800 + 1,836,800 + 32,800.
TEST(FusedCudaPlanTest, TakesTheCheaperOrder) {
  for (CudaPrecision precision : kPrecisions) {
    for (CudaPass pass : kPasses) {
      EXPECT_TRUE(PlanFusedCuda(TtShape::Parse("10x14x15:2x5x41", 8), 512, precision, pass, A100())
                      ->mirrored);
      EXPECT_FALSE(PlanFusedCuda(TtShape::Parse("15x14x10:41x5x2", 8), 512, precision, pass, A100())
                       ->mirrored);
    }
  }
}

TEST(FusedCudaPlanTest, MoreSharedMemoryIsNeverSlower) {
  for (CudaPrecision precision : kPrecisions) {
    for (CudaPass pass : kPasses) {
      double seconds = 1e9;
      for (int64_t kib : {48, 99, 163, 227}) {
        CudaDevice device = H100();
        device.shared_bytes_per_block = kib << 10;
        const auto plan = PlanFusedCuda(TtShape::Cube(3, 16, 8), 512, precision, pass, device);
        ASSERT_TRUE(plan) << kib;
        EXPECT_LE(plan->shared_bytes, kib << 10);
        EXPECT_LE(plan->seconds, seconds);
        seconds = plan->seconds;
      }
    }
  }
}

TEST(FusedCudaPlanTest, ScratchDoesNotGrowWithTheBatch) {
  for (CudaPass pass : kPasses) {
    const auto scratch = [&](int64_t batch) {
      const auto plan = MakeFusedCudaPlan(TtShape::Cube(3, 16, 8), batch, CudaPrecision::kTf32,
                                          pass, A100(), false, {1, 4, 4, 128, false, false});
      return plan->packed_elements + plan->partial_elements();
    };
    EXPECT_EQ(scratch(int64_t{1} << 12), scratch(int64_t{1} << 40));
  }
}

// A row of the reader below takes `words` words at word `at`; lanes that go together may meet a
// bank once. Eight lanes of 16 bytes or sixteen of 8 go together.
TEST(FusedCudaPlanTest, LanesMeetEveryBankOnce) {
  for (int64_t depth = 1; depth <= 300; ++depth) {
    const TtShape shape({4, depth}, {4, 4}, {1});
    for (CudaPrecision precision : kPrecisions) {
      const auto plan = MakeFusedCudaPlan(shape, 8, precision, CudaPass::kForward, H100(), false,
                                          {4, 4, 4, 128, false, false});
      ASSERT_TRUE(plan);
      const int64_t pitch_bytes = plan->params.products[1].from_pitch * StoredBytes(precision);
      ASSERT_GE(plan->params.products[1].from_pitch, depth);
      ASSERT_EQ(pitch_bytes % 16, 0);
      const int64_t pitch = pitch_bytes / 4;
      std::set<int64_t> banks;
      if (precision == CudaPrecision::kFloat32) {
        // Eight columns: of a row block's rows in a sum, or of 4 words each in a product.
        for (int64_t column = 0; column < 8; ++column) {
          for (int64_t word = 0; word < 4; ++word) banks.insert((column * pitch + word) % 32);
        }
      } else {
        for (int64_t column = 0; column < 4; ++column) {
          for (int64_t word = 0; word < 8; ++word) banks.insert((column * pitch + word) % 32);
        }
      }
      EXPECT_EQ(banks.size(), 32) << PrecisionName(precision) << " depth " << depth;
    }
  }
}

TEST(FusedCudaPlanTest, SaysWhatDoesNotFit) {
  std::string reason;
  EXPECT_FALSE(PlanFusedCuda(TtShape::Uniform({2, 8192, 8, 2}, {2, 8, 8192, 2}, 4), 8,
                             CudaPrecision::kFloat32, CudaPass::kForward, A100(), &reason));
  EXPECT_NE(reason.find("bytes of shared memory, A100 has 166912"), std::string::npos) << reason;
  // A core of 2^30 elements.
  EXPECT_FALSE(PlanFusedCuda(TtShape({32768, 1}, {32768, 1}, {1}), 8, CudaPrecision::kFloat32,
                             CudaPass::kForward, A100(), &reason));
  EXPECT_EQ(reason, "core 1 has more elements than the kernel counts");
}

}  // namespace
}  // namespace ttbench
