// Prints the tables of docs/cuda.md: what the plan of each layer takes, and the time that the model
// predicts for it, beside the roofline of the dense layer. Nothing in them is measured.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cuda/fused_cuda_plan.h"

namespace ttbench {
namespace {

struct Layer {
  const char* modes;
  int64_t rank;
};

constexpr int64_t kBatch = 4096;
constexpr Layer kLayers[] = {{"8x8x8:8x8x8", 8},       {"16x16x16:16x16x16", 2},
                             {"16x16x16:16x16x16", 8}, {"16x16x16:16x16x16", 16},
                             {"8x8x12:12x16x16", 16},  {"41x5x2:10x14x15", 8},
                             {"64x64:64x64", 16}};

// No GEMM is faster: at the published peak, or reading x and W and writing y once at the published
// bandwidth. Backward: dx and dW.
double DenseSeconds(const TtShape& shape, CudaPrecision precision, CudaPass pass,
                    const CudaDevice& device) {
  const double in = static_cast<double>(shape.in_features());
  const double out = static_cast<double>(shape.out_features());
  const double batch = kBatch, bytes = static_cast<double>(StoredBytes(precision));
  const double products = pass == CudaPass::kForward ? 1 : 2;
  const double flops = products * 2 * batch * in * out;
  const double moved = pass == CudaPass::kForward
                           ? (batch * (in + out) + in * out) * bytes
                           : (batch * (2 * in + 2 * out) + 2 * in * out) * bytes;
  return std::max(flops / device.PeakFlops(precision), moved / device.memory_bytes_per_s);
}

// What a unit's time is made of most.
const char* Bound(const FusedCudaPlan& plan, const CudaDevice& device) {
  const FusedCudaCost& unit = plan.unit;
  const double active = static_cast<double>(std::min(
      plan.occupancy.blocks, (plan.grid + device.multiprocessors - 1) / device.multiprocessors));
  const double memory =
      unit.memory_bytes * static_cast<double>(plan.params.units) / device.memory_bytes_per_s;
  if (memory > 0.9 * plan.seconds) return "memory";
  if (unit.latency_cycles > unit.cycles * active) return "latency";
  if (unit.cycles == unit.core_cycles) {
    return plan.precision == CudaPrecision::kFloat32 ? "FMA units" : "tensor cores";
  }
  if (unit.cycles == unit.issue_cycles) return "issue";
  return unit.cycles == unit.shared_cycles ? "shared memory" : "L2";
}

void PrintTable(const CudaDevice& device, CudaPass pass) {
  std::printf("\n**%s, %s, B = %lld**\n\n", device.name.c_str(),
              pass == CudaPass::kForward ? "forward" : "backward", static_cast<long long>(kBatch));
  std::printf(
      "| layer, r | precision | tile | KiB | blocks | MFLOP a unit | KiB moved | useful | bound by "
      "| fused, us | of peak | dense, us | dense / fused |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Layer& layer : kLayers) {
    const TtShape shape = TtShape::Parse(layer.modes, layer.rank);
    for (CudaPrecision precision :
         {CudaPrecision::kFloat32, CudaPrecision::kTf32, CudaPrecision::kBfloat16}) {
      const auto plan = PlanFusedCuda(shape, kBatch, precision, pass, device);
      if (!plan) {
        std::fprintf(stderr, "%s does not fit\n", layer.modes);
        std::exit(1);
      }
      const FusedCudaTile& tile = plan->tile;
      const double flops = 2 * plan->unit.macs * static_cast<double>(plan->params.units);
      const double dense = DenseSeconds(shape, precision, pass, device);
      std::printf(
          "| %s, %lld%s | %s | %lld/%lld/%lld, %lld%s%s | %lld | %lld | %.2f | %.1f | %.0f%% "
          "| %s | %.1f | %.0f%% | %.1f | %.2f |\n",
          layer.modes, static_cast<long long>(layer.rank), plan->mirrored ? " mirrored" : "",
          PrecisionName(precision), static_cast<long long>(tile.samples),
          static_cast<long long>(tile.chunk), static_cast<long long>(tile.block),
          static_cast<long long>(tile.threads), tile.resident_cores ? " c" : "",
          tile.resident_gradients ? " g" : "", static_cast<long long>(plan->shared_bytes >> 10),
          static_cast<long long>(plan->occupancy.blocks), 2e-6 * plan->unit.macs,
          plan->unit.memory_bytes / 1024, 100 * plan->unit.macs / plan->unit.issued_macs,
          Bound(*plan, device), 1e6 * plan->seconds,
          100 * flops / plan->seconds / device.PeakFlops(precision), 1e6 * dense,
          dense / plan->seconds);
    }
  }
}

}  // namespace
}  // namespace ttbench

int main() {
  for (const ttbench::CudaDevice& device : {ttbench::A100(), ttbench::H100(), ttbench::H200()}) {
    for (ttbench::CudaPass pass : {ttbench::CudaPass::kForward, ttbench::CudaPass::kBackward}) {
      ttbench::PrintTable(device, pass);
    }
  }
}
