// The fused CUDA kernels in emulation against the float64 oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <string>

#include "kernels/cuda/emulation/emulated_fused.h"
#include "kernels/cuda/fused_cuda_checks.h"

namespace ttbench {
namespace {

constexpr CudaPrecision kPrecisions[] = {CudaPrecision::kFloat32, CudaPrecision::kTf32,
                                         CudaPrecision::kBfloat16};

// The worst of the results' errors, over what is allowed.
double WorstError(const CudaTestLayer& layer, const EmulatedResult& got, CudaPass pass) {
  const OracleResult &oracle = layer.oracle, &magnitude = layer.magnitude;
  if (pass == CudaPass::kForward) return CudaError(layer, got.y, oracle.y, magnitude.y);
  double worst = CudaError(layer, got.dx, oracle.dx, magnitude.dx);
  for (size_t k = 0; k < layer.cores.size(); ++k) {
    worst = std::max(worst, CudaError(layer, got.dcores[k], oracle.dcores[k], magnitude.dcores[k]));
  }
  return worst;
}

class FusedCudaTest : public testing::TestWithParam<CudaPrecision> {};

TEST_P(FusedCudaTest, RandomLayersInRandomTilesEqualTheOracle) {
  constexpr int kLayers = 200;
  double worst = 0;
  for (int seed = 0; seed < kLayers; ++seed) {
    std::mt19937_64 engine(seed);
    const TtShape shape = RandomShape(engine);
    const CudaTestLayer layer(shape, RandomBatch(engine), GetParam(), seed);
    for (CudaPass pass : {CudaPass::kForward, CudaPass::kBackward}) {
      const FusedCudaPlan plan = RandomPlan(shape, layer.batch, GetParam(), pass, A100(), engine);
      double error = 0;
      ASSERT_NO_THROW(
          error = WorstError(layer, EmulateFused(plan, layer.cores, layer.x, layer.dy), pass))
          << seed << ": " << Describe(shape, plan);
      ASSERT_LE(error, 1) << seed << ": " << Describe(shape, plan);
      worst = std::max(worst, error);
    }
  }
  std::cout << "largest error: " << worst << " of what is allowed" << std::endl;
}

// As the planner cuts them.
TEST_P(FusedCudaTest, PlannedLayersEqualTheOracle) {
  for (const TtShape& shape :
       {TtShape::Cube(3, 8, 4), TtShape::Parse("2x5x41:10x14x15", 3), TtShape({5, 3}, {4, 7}, {6}),
        TtShape::Parse("41x5x2:10x14x15", 2), TtShape({1, 1}, {1, 1}, {1}),
        TtShape({2, 3, 2, 2, 3, 2}, {2, 2, 3, 2, 2, 3}, {2, 3, 4, 3, 2})}) {
    for (int64_t batch : {1, 5}) {
      const CudaTestLayer layer(shape, batch, GetParam(), 7);
      for (CudaPass pass : {CudaPass::kForward, CudaPass::kBackward}) {
        const auto plan = PlanFusedCuda(shape, batch, GetParam(), pass, H200());
        ASSERT_TRUE(plan);
        EXPECT_LE(WorstError(layer, EmulateFused(*plan, layer.cores, layer.x, layer.dy), pass), 1)
            << Describe(shape, *plan);
      }
    }
  }
}

TEST_P(FusedCudaTest, AnEmptyBatchHasZeroGradients) {
  const CudaTestLayer layer(TtShape::Cube(3, 4, 2), 0, GetParam(), 1);
  for (CudaPass pass : {CudaPass::kForward, CudaPass::kBackward}) {
    for (bool resident : {false, true}) {
      const auto plan =
          MakeFusedCudaPlan(layer.shape, 0, GetParam(), pass, A100(), false,
                            {1, 2, 4, 64, resident, resident && pass == CudaPass::kBackward});
      ASSERT_TRUE(plan && PlanFusedCuda(layer.shape, 0, GetParam(), pass, A100()));
      const EmulatedResult got = EmulateFused(*plan, layer.cores, layer.x, layer.dy);
      for (const auto& dcore : got.dcores) {
        for (float value : dcore) EXPECT_EQ(value, 0);
      }
      EXPECT_EQ(got.dcores.size(), pass == CudaPass::kForward ? 0 : 3);
    }
  }
}

std::string CaughtOf(const CudaTestLayer& layer, const FusedCudaPlan& plan,
                     const EmulationOptions& options = {}) {
  try {
    EmulateFused(plan, layer.cores, layer.x, layer.dy, options);
  } catch (const EmulationError& error) {
    return error.what();
  }
  return "nothing";
}

FusedCudaPlan FourCores(const CudaTestLayer& layer, CudaPass pass) {
  FusedCudaTile tile;
  tile.samples = 2;
  tile.chunk = 2;
  tile.block = 3;
  tile.threads = 64;
  const auto plan =
      MakeFusedCudaPlan(layer.shape, layer.batch, layer.precision, pass, A100(), false, tile, 1);
  EXPECT_TRUE(plan);
  return *plan;
}

// x comes by asynchronous copies in every precision.
const TtShape& FourCoresShape() {
  static const TtShape shape({4, 3, 2, 6}, {3, 5, 2, 6}, {3, 4, 5});
  return shape;
}

// Without any one of its barriers the kernel races, and the emulation finds it.
TEST_P(FusedCudaTest, EveryBarrierIsNeeded) {
  const CudaTestLayer layer(FourCoresShape(), 5, GetParam(), 1);
  for (CudaPass pass : {CudaPass::kForward, CudaPass::kBackward}) {
    const FusedCudaPlan plan = FourCores(layer, pass);
    const int sites = EmulateFused(plan, layer.cores, layer.x, layer.dy).barrier_sites;
    EXPECT_EQ(sites, 4);
    for (int site = 0; site < sites; ++site) {
      EmulationOptions options;
      options.removed_barrier = site;
      const std::string caught = CaughtOf(layer, plan, options);
      EXPECT_TRUE(caught.find("shared memory") == 0 &&
                  (caught.find("races") != std::string::npos ||
                   caught.find("nobody wrote") != std::string::npos ||
                   caught.find("not been waited for") != std::string::npos))
          << "barrier " << site << ": " << caught;
    }
    EmulationOptions options;
    options.removed_waits = true;
    EXPECT_NE(CaughtOf(layer, plan, options).find("not been waited for"), std::string::npos);
  }
}

// A tile that needs more shared memory than its launch asks for, and one whose results lie further
// apart than was planned.
TEST_P(FusedCudaTest, AccessesOutOfSharedMemoryAreCaught) {
  const CudaTestLayer layer(FourCoresShape(), 5, GetParam(), 1);
  for (CudaPass pass : {CudaPass::kForward, CudaPass::kBackward}) {
    FusedCudaPlan less = FourCores(layer, pass);
    less.shared_bytes -= 16;
    EXPECT_NE(CaughtOf(layer, less).find("out of bounds"), std::string::npos);
    FusedCudaPlan apart = FourCores(layer, pass);
    CudaProduct& last =
        pass == CudaPass::kForward ? apart.params.products[0] : apart.params.back[3];
    last.to_pitch = 2;
    EXPECT_NE(CaughtOf(layer, apart).find("out of bounds"), std::string::npos);
  }
}

// The last rows of a batch of 2^24 + 3: elements of x, y and the partial sums past 2^32. Only those
// rows are in memory, and every other access would be caught.
TEST_P(FusedCudaTest, IndicesPast32BitsAreRight) {
  const TtShape shape({8, 8, 8}, {6, 8, 10}, {3, 2});
  const int64_t batch = (int64_t{1} << 24) + 3, rows = 3;
  const CudaTestLayer layer(shape, rows, GetParam(), 4);
  for (CudaPass pass : {CudaPass::kForward, CudaPass::kBackward}) {
    for (bool mirrored : {false, true}) {
      FusedCudaTile tile;
      tile.samples = 4;
      tile.chunk = 8;
      tile.block = mirrored ? 6 : 10;
      const auto plan =
          MakeFusedCudaPlan(shape, batch, GetParam(), pass, H100(), mirrored, tile, batch / 4 + 1);
      ASSERT_TRUE(plan);
      ASSERT_EQ(plan->params.units, plan->grid);
      ASSERT_GT((batch - rows) * shape.in_features(), int64_t{1} << 32);
      EmulationOptions options;
      options.rows = rows;
      const EmulatedResult got = EmulateFused(*plan, layer.cores, layer.x, layer.dy, options);
      if (pass == CudaPass::kForward) {
        EXPECT_LE(CudaError(layer, got.y, layer.oracle.y, layer.magnitude.y), 1);
      } else {
        ASSERT_GT(plan->partial_elements(), int64_t{1} << 32);
        EXPECT_LE(CudaError(layer, got.dx, layer.oracle.dx, layer.magnitude.dx), 1);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, FusedCudaTest, testing::ValuesIn(kPrecisions),
                         [](const auto& info) { return std::string(PrecisionName(info.param)); });

}  // namespace
}  // namespace ttbench
