// The CUDA panel kernels in emulation against the float64 oracle, and their plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <string>

#include "kernels/cuda/emulation/emulated_panel.h"
#include "kernels/cuda/fused_cuda_checks.h"

namespace ttbench {
namespace {

constexpr CudaPass kPasses[] = {CudaPass::kForward, CudaPass::kBackward};

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

class PanelCudaTest : public testing::TestWithParam<CudaPrecision> {};

TEST_P(PanelCudaTest, RandomLayersInRandomPanelsEqualTheOracle) {
  constexpr int kLayers = 60;
  double worst = 0;
  for (int seed = 0; seed < kLayers; ++seed) {
    std::mt19937_64 engine(seed);
    const TtShape shape = RandomShape(engine);
    const CudaTestLayer layer(shape, RandomBatch(engine), GetParam(), seed);
    for (CudaPass pass : kPasses) {
      const PanelCudaPlan plan =
          RandomPanelPlan(shape, layer.batch, GetParam(), pass, A100(), engine);
      double error = 0;
      ASSERT_NO_THROW(
          error = WorstError(layer, EmulatePanel(plan, layer.cores, layer.x, layer.dy), pass))
          << seed << ": " << Describe(shape, plan);
      ASSERT_LE(error, 1) << seed << ": " << Describe(shape, plan);
      worst = std::max(worst, error);
    }
  }
  std::cout << "largest error: " << worst << " of what is allowed" << std::endl;
}

// As the planner cuts them; equal calls give equal bits.
TEST_P(PanelCudaTest, PlannedLayersEqualTheOracle) {
  for (const TtShape& shape : {TtShape::Cube(3, 6, 5), TtShape::Parse("2x5x41:5x4x3", 8),
                               TtShape({5, 3}, {4, 7}, {6}), TtShape({1, 1}, {1, 1}, {1}),
                               TtShape({2, 3, 2, 2, 3, 2}, {2, 2, 3, 2, 2, 3}, {2, 3, 4, 3, 2})}) {
    for (int64_t batch : {1, 37}) {
      const CudaTestLayer layer(shape, batch, GetParam(), 7);
      for (CudaPass pass : kPasses) {
        const auto plan = PlanPanelCuda(shape, batch, GetParam(), pass, H200());
        ASSERT_TRUE(plan);
        const EmulatedResult got = EmulatePanel(*plan, layer.cores, layer.x, layer.dy);
        EXPECT_LE(WorstError(layer, got, pass), 1) << Describe(shape, *plan);
        const EmulatedResult again = EmulatePanel(*plan, layer.cores, layer.x, layer.dy);
        EXPECT_TRUE(got.y == again.y && got.dx == again.dx && got.dcores == again.dcores);
      }
    }
  }
}

TEST_P(PanelCudaTest, AnEmptyBatchHasZeroGradients) {
  const CudaTestLayer layer(TtShape::Cube(3, 4, 2), 0, GetParam(), 1);
  for (CudaPass pass : kPasses) {
    const auto plan = PlanPanelCuda(layer.shape, 0, GetParam(), pass, A100());
    ASSERT_TRUE(plan);
    const EmulatedResult got = EmulatePanel(*plan, layer.cores, layer.x, layer.dy);
    ASSERT_EQ(got.dcores.size(), pass == CudaPass::kForward ? 0 : 3);
    for (const auto& dcore : got.dcores) {
      for (float value : dcore) EXPECT_EQ(value, 0);
    }
  }
}

std::string CaughtOf(const CudaTestLayer& layer, const PanelCudaPlan& plan,
                     const EmulationOptions& options = {}) {
  try {
    EmulatePanel(plan, layer.cores, layer.x, layer.dy, options);
  } catch (const EmulationError& error) {
    return error.what();
  }
  return "nothing";
}

// Several panels and units to a block, in several warps.
PanelCudaPlan FourCores(const CudaTestLayer& layer, CudaPass pass) {
  const bool forward = pass == CudaPass::kForward;
  const auto plan = MakePanelCudaPlan(
      layer.shape, layer.batch, layer.precision, pass, A100(), 2,
      forward ? PanelCudaTile{6, 5, 4, 12, 3, 1} : PanelCudaTile{5, 12, 4, 4, 3, 1},
      {6, 5, 4, 12, 3, 2}, 1);
  EXPECT_TRUE(plan);
  return *plan;
}

// Rows come by asynchronous copies in every precision.
const TtShape& FourCoresShape() {
  static const TtShape shape({4, 3, 2, 6}, {3, 5, 2, 6}, {3, 4, 5});
  return shape;
}

// Without any one of its barriers a kernel races, and the emulation finds it.
TEST_P(PanelCudaTest, EveryBarrierIsNeeded) {
  const CudaTestLayer layer(FourCoresShape(), 7, GetParam(), 1);
  for (CudaPass pass : kPasses) {
    const PanelCudaPlan plan = FourCores(layer, pass);
    const int sites = EmulatePanel(plan, layer.cores, layer.x, layer.dy).barrier_sites;
    EXPECT_EQ(sites, pass == CudaPass::kForward ? 2 : 6);
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

// A panel that needs more shared memory than its launch asks for.
TEST_P(PanelCudaTest, AccessesOutOfSharedMemoryAreCaught) {
  const CudaTestLayer layer(FourCoresShape(), 7, GetParam(), 1);
  PanelCudaPlan less = FourCores(layer, CudaPass::kForward);
  less.multiply.shared_bytes -= 16;
  EXPECT_NE(CaughtOf(layer, less).find("out of bounds"), std::string::npos);
  less = FourCores(layer, CudaPass::kBackward);
  less.gradient.shared_bytes /= 2;
  EXPECT_NE(CaughtOf(layer, less).find("out of bounds"), std::string::npos);
}

// The last rows of a batch of 2^24 + 3: elements of x and y past 2^32. Only those rows are in
// memory, and every other access would be caught.
TEST_P(PanelCudaTest, IndicesPast32BitsAreRight) {
  const TtShape shape({8, 6, 6}, {6, 8, 7}, {3, 2});
  const int64_t batch = (int64_t{1} << 24) + 3, rows = 3, samples = 32;
  const CudaTestLayer layer(shape, rows, GetParam(), 4);
  for (CudaPass pass : kPasses) {
    const bool forward = pass == CudaPass::kForward;
    const auto plan = MakePanelCudaPlan(
        shape, batch, GetParam(), pass, H100(), 1,
        forward ? PanelCudaTile{8, 6, 4, 56, samples, 1} : PanelCudaTile{6, 8, 7, 36, samples, 1},
        {8, 6, 4, 7, 16, 1}, batch / samples + 1);
    ASSERT_TRUE(plan);
    ASSERT_EQ(plan->params.multiply.units, plan->multiply.grid);
    ASSERT_GT((batch - rows) * std::min(shape.in_features(), shape.out_features()),
              int64_t{1} << 32);
    EmulationOptions options;
    options.rows = rows;
    const EmulatedResult got = EmulatePanel(*plan, layer.cores, layer.x, layer.dy, options);
    if (forward) {
      EXPECT_LE(CudaError(layer, got.y, layer.oracle.y, layer.magnitude.y), 1);
    } else {
      EXPECT_LE(CudaError(layer, got.dx, layer.oracle.dx, layer.magnitude.dx), 1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, PanelCudaTest,
                         testing::Values(CudaPrecision::kFloat32, CudaPrecision::kTf32,
                                         CudaPrecision::kBfloat16),
                         [](const auto& info) { return std::string(PrecisionName(info.param)); });

TEST(PanelCudaPlanTest, PlansFitTheirDevice) {
  for (const CudaDevice& device : {A100(), H200()}) {
    for (int64_t d : {4, 10, 16}) {
      for (int64_t r : {1, 16, 32}) {
        const TtShape shape = TtShape::Cube(3, d, r);
        for (CudaPrecision precision : {CudaPrecision::kFloat32, CudaPrecision::kBfloat16}) {
          for (CudaPass pass : kPasses) {
            const auto plan = PlanPanelCuda(shape, 512, precision, pass, device);
            ASSERT_TRUE(plan) << device.name << " " << d << " " << r;
            const std::vector<const PanelCudaLaunch*> launches =
                pass == CudaPass::kForward
                    ? std::vector<const PanelCudaLaunch*>{&plan->multiply}
                    : std::vector<const PanelCudaLaunch*>{&plan->multiply, &plan->gradient};
            for (const PanelCudaLaunch* launch : launches) {
              EXPECT_LE(launch->shared_bytes, device.shared_bytes_per_block);
              EXPECT_GE(launch->occupancy.blocks, 1);
              EXPECT_LE(launch->grid, device.multiprocessors * launch->occupancy.blocks);
            }
          }
        }
      }
    }
  }
}

// Panels cut the layer's work and add none: a panel is made once for a block of rows, r
// multiply-adds an element, and multiplied by each row.
TEST(PanelCudaPlanTest, UnitsAddUpToTheLayer) {
  const int64_t d = 8, r = 4, batch = 64;
  const TtShape shape = TtShape::Cube(3, d, r);
  const double dense = static_cast<double>(shape.dense_parameters());
  for (int64_t samples : {16, 64}) {
    const auto plan = MakePanelCudaPlan(shape, batch, CudaPrecision::kTf32, CudaPass::kForward,
                                        A100(), 1, {2, 4, 8, 16, samples, 1}, {});
    ASSERT_TRUE(plan);
    const double blocks = static_cast<double>(batch / samples);
    EXPECT_EQ(plan->multiply.unit.macs * static_cast<double>(plan->params.multiply.units),
              dense * static_cast<double>(batch) + blocks * dense * static_cast<double>(r));
  }
}

// Contracting 16x16x16 takes r^2 + 2r times 16^4 multiply-adds a row, the matrix 256 times: 8 at
// r = 2, 1088 at r = 32.
TEST(PanelCudaPlanTest, TheLayersPlanIsTheFasterKernels) {
  for (CudaPrecision precision : {CudaPrecision::kFloat32, CudaPrecision::kBfloat16}) {
    for (CudaPass pass : kPasses) {
      const auto plan_of = [&](int64_t rank) {
        return *PlanCudaLayer(TtShape::Cube(3, 16, rank), 4096, precision, pass, A100());
      };
      EXPECT_STREQ(KernelName(plan_of(2)), "fused");
      EXPECT_STREQ(KernelName(plan_of(32)), "panel");
    }
  }
}

TEST(PanelCudaPlanTest, SaysWhatDoesNotFit) {
  std::string reason;
  EXPECT_FALSE(MakePanelCudaPlan(TtShape::Cube(3, 16, 4), 8, CudaPrecision::kFloat32,
                                 CudaPass::kForward, A100(), 1, {16, 1, 256, 64, 64, 1}, {}, 0,
                                 &reason));
  EXPECT_NE(reason.find("bytes of shared memory, A100 has 166912"), std::string::npos) << reason;
  EXPECT_FALSE(MakePanelCudaPlan(TtShape::Cube(3, 16, 4), 8, CudaPrecision::kFloat32,
                                 CudaPass::kForward, A100(), 1, {1, 16, 1, 256, 64, 1}, {}, 0,
                                 &reason));
  EXPECT_EQ(reason, "a panel takes 8192 threads");
  // Joined, a core of 2^34 elements.
  EXPECT_FALSE(PlanPanelCuda(TtShape::Uniform({256, 256, 256}, {256, 256, 256}, 4), 8,
                             CudaPrecision::kFloat32, CudaPass::kForward, A100(), &reason));
  EXPECT_EQ(reason, "the joined cores have more elements than the kernel counts");
}

}  // namespace
}  // namespace ttbench
