// Prints the tables of docs/cuda.md: what the plan of each layer takes, and the time that the model
// predicts for it, beside the roofline of the dense layer. Nothing in them is measured.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/fused_cuda_plan.h"
#include "kernels/cuda/panel_cuda_plan.h"

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

// What a kernel's time is made of most: of `units` alike by `grid` blocks, `held` of them on a
// multiprocessor at once.
const char* Bound(const FusedCudaCost& unit, CudaPrecision precision, int64_t units, int64_t grid,
                  int64_t held, double seconds, const CudaDevice& device) {
  const double active = static_cast<double>(
      std::min(held, (grid + device.multiprocessors - 1) / device.multiprocessors));
  const double memory = unit.memory_bytes * static_cast<double>(units) / device.memory_bytes_per_s;
  if (memory > 0.9 * seconds) return "memory";
  if (unit.latency_cycles > unit.cycles * active) return "latency";
  if (unit.cycles == unit.core_cycles) {
    return precision == CudaPrecision::kFloat32 ? "FMA units" : "tensor cores";
  }
  if (unit.cycles == unit.issue_cycles) return "issue";
  return unit.cycles == unit.shared_cycles ? "shared memory" : "L2";
}

// The plan, or the end of the program.
template <typename Plan>
Plan Need(const char* modes, const std::optional<Plan>& plan) {
  if (plan) return *plan;
  std::fprintf(stderr, "%s does not fit\n", modes);
  std::exit(1);
}

const char* PassName(CudaPass pass) { return pass == CudaPass::kForward ? "forward" : "backward"; }

void PrintTable(const CudaDevice& device, CudaPass pass) {
  std::printf("\n**%s, %s, B = %lld**\n\n", device.name.c_str(), PassName(pass),
              static_cast<long long>(kBatch));
  std::printf(
      "| layer, r | precision | tile | KiB | blocks | MFLOP a unit | KiB moved | useful | bound by "
      "| fused, us | of peak | dense, us | dense / fused |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Layer& layer : kLayers) {
    const TtShape shape = TtShape::Parse(layer.modes, layer.rank);
    for (CudaPrecision precision :
         {CudaPrecision::kFloat32, CudaPrecision::kTf32, CudaPrecision::kBfloat16}) {
      const FusedCudaPlan plan =
          Need(layer.modes, PlanFusedCuda(shape, kBatch, precision, pass, device));
      const FusedCudaTile& tile = plan.tile;
      const double flops = 2 * plan.unit.macs * static_cast<double>(plan.params.units);
      const double dense = DenseSeconds(shape, precision, pass, device);
      std::printf(
          "| %s, %lld%s | %s | %lld/%lld/%lld, %lld%s%s | %lld | %lld | %.2f | %.1f | %.0f%% "
          "| %s | %.1f | %.0f%% | %.1f | %.2f |\n",
          layer.modes, static_cast<long long>(layer.rank), plan.mirrored ? " mirrored" : "",
          PrecisionName(precision), static_cast<long long>(tile.samples),
          static_cast<long long>(tile.chunk), static_cast<long long>(tile.block),
          static_cast<long long>(tile.threads), tile.resident_cores ? " c" : "",
          tile.resident_gradients ? " g" : "", static_cast<long long>(plan.shared_bytes >> 10),
          static_cast<long long>(plan.occupancy.blocks), 2e-6 * plan.unit.macs,
          plan.unit.memory_bytes / 1024, 100 * plan.unit.macs / plan.unit.issued_macs,
          Bound(plan.unit, precision, plan.params.units, plan.grid, plan.occupancy.blocks,
                plan.seconds, device),
          1e6 * plan.seconds, 100 * flops / plan.seconds / device.PeakFlops(precision), 1e6 * dense,
          dense / plan.seconds);
    }
  }
}

// "16.4 x 8.16, 256 rows; 84 KiB, 512 threads, 1 block; latency"
std::string Panels(const PanelCudaLaunch& launch, CudaPrecision precision, int64_t units,
                   const CudaDevice& device) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  const PanelCudaTile& tile = launch.tile;
  return text(tile.left_in) + "." + text(tile.right_in) + " x " + text(tile.left_out) + "." +
         text(tile.right_out) + ", " + text(tile.samples) + " rows" +
         (tile.splits > 1 ? ", " + text(tile.splits) + " parts" : "") + "; " +
         text(launch.shared_bytes >> 10) + " KiB, " + text(launch.threads) + " threads, " +
         text(launch.occupancy.blocks) + (launch.occupancy.blocks == 1 ? " block" : " blocks") +
         "; " +
         Bound(launch.unit, precision, units, launch.grid, launch.occupancy.blocks, launch.seconds,
               device);
}

void PrintPanels(const CudaDevice& device, CudaPass pass) {
  const bool forward = pass == CudaPass::kForward;
  std::printf("\n**%s, panels, %s, B = %lld**\n\n", device.name.c_str(), PassName(pass),
              static_cast<long long>(kBatch));
  std::printf(
      "| layer, r | precision | cut | %s | joins%s, us | panel, us | fused, us | picked | dense, "
      "us "
      "| dense / picked |\n|---|---|---|---|%s---|---|---|---|---|---|\n",
      forward ? "y" : "dx | dW", forward ? "" : " and sums", forward ? "" : "---|");
  for (const Layer& layer : kLayers) {
    const TtShape shape = TtShape::Parse(layer.modes, layer.rank);
    for (CudaPrecision precision :
         {CudaPrecision::kFloat32, CudaPrecision::kTf32, CudaPrecision::kBfloat16}) {
      const FusedCudaPlan fused =
          Need(layer.modes, PlanFusedCuda(shape, kBatch, precision, pass, device));
      const PanelCudaPlan panel =
          Need(layer.modes, PlanPanelCuda(shape, kBatch, precision, pass, device));
      const CudaLayerPlan picked =
          Need(layer.modes, PlanCudaLayer(shape, kBatch, precision, pass, device));
      std::string panels = Panels(panel.multiply, precision, panel.params.multiply.units, device);
      if (!forward) {
        panels += " | " + Panels(panel.gradient, precision, panel.params.gradient.units, device);
      }
      const double dense = DenseSeconds(shape, precision, pass, device);
      std::printf("| %s, %lld | %s | %lld | %s | %.1f | %.1f | %.1f | %s | %.1f | %.2f |\n",
                  layer.modes, static_cast<long long>(layer.rank), PrecisionName(precision),
                  static_cast<long long>(panel.cut), panels.c_str(), 1e6 * panel.aside_seconds,
                  1e6 * panel.seconds, 1e6 * fused.seconds, KernelName(picked), 1e6 * dense,
                  dense / std::min(panel.seconds, fused.seconds));
    }
  }
}

}  // namespace
}  // namespace ttbench

int main() {
  for (const ttbench::CudaDevice& device : {ttbench::A100(), ttbench::H100(), ttbench::H200()}) {
    for (ttbench::CudaPass pass : {ttbench::CudaPass::kForward, ttbench::CudaPass::kBackward}) {
      ttbench::PrintTable(device, pass);
      ttbench::PrintPanels(device, pass);
    }
  }
}
