// What the tests of the fused CUDA kernels share, in emulation and on a device: random layers,
// tiles and the comparison with the float64 oracle.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/fused_cuda_plan.h"
#include "kernels/cuda/panel_cuda_plan.h"
#include "kernels/oracle.h"
#include "kernels/shape.h"

namespace ttbench {

// A layer with its inputs, and what the oracle makes of them. Inputs are elements of tensors of the
// precision.
struct CudaTestLayer {
  CudaTestLayer(const TtShape& shape, int64_t batch, CudaPrecision precision, uint64_t seed);
  TtShape shape;
  int64_t batch;
  CudaPrecision precision;
  std::vector<std::vector<double>> cores;
  std::vector<double> x, dy;
  OracleResult oracle;
  // The same of all inputs' magnitudes: what roundings are relative to.
  OracleResult magnitude;
};

// 2 to 6 cores, unequal modes and ranks, small enough to emulate; an odd batch, 1 or more.
TtShape RandomShape(std::mt19937_64& engine);
int64_t RandomBatch(std::mt19937_64& engine);
// Any tile that fits the device, with a grid of its own.
FusedCudaPlan RandomPlan(const TtShape& shape, int64_t batch, CudaPrecision precision,
                         CudaPass pass, const CudaDevice& device, std::mt19937_64& engine);

// Any cut and tiles that fit.
PanelCudaPlan RandomPanelPlan(const TtShape& shape, int64_t batch, CudaPrecision precision,
                              CudaPass pass, const CudaDevice& device, std::mt19937_64& engine);

// The largest difference over what roundings may cause, which is at most 1 where the kernel is
// right; infinite if sizes differ or an element is not finite.
double CudaError(const CudaTestLayer& layer, const std::vector<float>& got,
                 const std::vector<double>& expected, const std::vector<double>& magnitude);

// "3x4:5x2 ranks 1x3x1 batch 7 tf32 backward, tile 2/1/5, 128 threads, mirrored"
std::string Describe(const TtShape& shape, const FusedCudaPlan& plan);
std::string Describe(const TtShape& shape, const PanelCudaPlan& plan);

}  // namespace ttbench
