// Where the forward of the fused kernel spends its time, product by product, on one thread:
//   bazel run //benchmarks:fused_profile -- 16x16x16:16x16x16 8 512     (shape, rank, batch)
// Each product runs as often as in the kernel, on the kernel's own buffers; what is left of the
// whole is moving x and y between rows and tiles. Tiles are those planned for one thread.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/machine.h"
#include "kernels/linear/fused_kernel.h"
#include "kernels/linear/fused_plan.h"
#include "kernels/linear/small_gemm.h"
#include "kernels/shape.h"

namespace ttbench {
namespace {

// Floats from a cache line on, as LibTorch's allocator gives them.
class Floats {
 public:
  Floats(int64_t count, float value) : values_(count + kLine, value) {
    const auto address = reinterpret_cast<uintptr_t>(values_.data());
    first_ = (kLine * sizeof(float) - address % (kLine * sizeof(float))) / sizeof(float) % kLine;
  }
  float* data() { return values_.data() + first_; }

 private:
  static constexpr int64_t kLine = 64 / sizeof(float);
  std::vector<float> values_;
  int64_t first_;
};

// The least of several runs, each of at least a few milliseconds, in seconds.
double Time(const std::function<void()>& f) {
  using Clock = std::chrono::steady_clock;
  double least = 1e9;
  for (int repetition = 0; repetition < 7; ++repetition) {
    const auto start = Clock::now();
    int runs = 0;
    double seconds = 0;
    while (seconds < 5e-3) {
      f();
      ++runs;
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    }
    least = std::min(least, seconds / runs);
  }
  return least;
}

struct Step {
  std::string name;
  int64_t rows, lanes, depth;
  int64_t calls;  // In a forward.
  double seconds;
};

// A contraction with one core: `outer` products for each chunk of each block of each tile.
Step TimeProduct(const std::string& name, const FusedPlan& plan, int64_t outer, GemmShape shape,
                 const float* a, int64_t a_stride, const float* t, int64_t t_stride, float* c,
                 int64_t c_stride) {
  const SmallGemm<float> gemm(shape);
  const double once = Time([&] {
    for (int64_t o = 0; o < outer; ++o) gemm(a + o * a_stride, t + o * t_stride, c + o * c_stride);
  });
  const int64_t times = plan.tiles * plan.blocks * plan.chunks;
  return {name,        shape.rows,    shape.lanes,
          shape.depth, outer * times, once * static_cast<double>(times)};
}

std::vector<Step> TimeProducts(const TtShape& order, const FusedPlan& plan,
                               FusedKernel<float>::Scratch scratch) {
  const FusedLayout layout = LayOutFused(order, plan, sizeof(float));
  const int64_t last = order.cores() - 1, s = plan.samples;
  float* slot = scratch.slots;
  auto core = [&](int64_t k) { return scratch.packed + layout.core[k]; };
  auto name = [](int64_t k) { return "core " + std::to_string(k + 1); };
  int64_t outer = plan.chunk;
  for (int64_t k = 1; k < last; ++k) outer *= order.n(k);
  const int64_t n = order.n(last), last_rows = order.left_rank(last) * plan.block;
  float* to = slot + layout.partial[last];
  std::vector<Step> steps;
  if (s == 1) {
    steps.push_back(TimeProduct(name(last), plan, 1, {outer, last_rows, n, n, last_rows, last_rows},
                                slot + layout.x, 0, scratch.packed + layout.last_transposed, 0, to,
                                0));
  } else {
    steps.push_back(TimeProduct(name(last), plan, outer, {last_rows, s, n, n, s, s}, core(last), 0,
                                slot + layout.x, n * s, to, last_rows * s));
  }
  int64_t right = plan.block * s;
  for (int64_t k = last - 1; k >= 1; --k) {
    outer /= order.n(k);
    const int64_t rows = order.left_rank(k) * order.m(k), depth = order.n(k) * order.right_rank(k);
    const float* from = to;
    to = slot + layout.partial[k];
    steps.push_back(TimeProduct(name(k), plan, outer, {rows, right, depth, depth, right, right},
                                core(k), 0, from, depth * right, to, rows * right));
    right *= order.m(k);
  }
  const int64_t depth = plan.chunk * order.right_rank(0);
  steps.push_back(TimeProduct(name(0), plan, 1,
                              {order.m(0), right, depth, order.n(0) * order.right_rank(0), right,
                               right, false, plan.chunks > 1},
                              core(0), 0, to, 0, slot + layout.y, 0));
  return steps;
}

// Throws std::invalid_argument.
int64_t ParseCount(const std::string& text) {
  const Modes counts = ParseModes(text);
  if (counts.size() != 1) throw std::invalid_argument("'" + text + "' is not one number");
  return counts[0];
}

void Profile(const TtShape& shape, int64_t batch) {
  const FusedPlan plan = PlanFused(shape, batch, 1, sizeof(float), FusedPass::kForward);
  const TtShape order = FusedOrder(shape, plan.mirrored);
  const FusedKernel<float> kernel(shape, plan);
  Floats packed(plan.packed_elements, 0), slots(plan.slot_elements, 0);
  const FusedKernel<float>::Scratch scratch{packed.data(), slots.data(), nullptr};
  std::vector<Floats> cores;
  std::vector<const float*> core_pointers;
  for (int64_t k = 0; k < shape.cores(); ++k) {
    cores.emplace_back(shape.left_rank(k) * shape.n(k) * shape.m(k) * shape.right_rank(k), 0.01f);
    core_pointers.push_back(cores.back().data());
  }
  Floats x(batch * shape.in_features(), 0.5f), y(batch * shape.out_features(), 0);
  kernel.PackCores(0, 1, core_pointers, scratch);

  const double peak = MeasureFmaPeakFloat32(1) * 1e9;
  const double whole = Time([&] { kernel.Forward(0, x.data(), y.data(), scratch); });
  const double pack = Time([&] { kernel.PackCores(0, 1, core_pointers, scratch); });
  std::printf("tiles of %ld rows, %ld of m_K, %ld of n_1%s; %s; FMA peak %.1f GFLOP/s\n\n",
              static_cast<long>(plan.samples), static_cast<long>(plan.block),
              static_cast<long>(plan.chunk), plan.mirrored ? ", first core first" : "",
              kernel.gemm_name(), peak * 1e-9);
  std::printf("%-14s %20s %10s %10s %7s %9s\n", "step", "rows x lanes x depth", "calls", "us",
              "share", "of peak");
  double flops = 0, products = 0;
  auto line = [&](const std::string& name, const std::string& size, const std::string& calls,
                  double seconds, double work) {
    std::printf("%-14s %20s %10s %10.1f %6.1f%%", name.c_str(), size.c_str(), calls.c_str(),
                seconds * 1e6, 100 * seconds / whole);
    if (work > 0) std::printf(" %8.1f%%", 100 * work / seconds / peak);
    std::printf("\n");
  };
  for (const Step& step : TimeProducts(order, plan, scratch)) {
    const double work = 2.0 * static_cast<double>(step.rows * step.lanes * step.depth) *
                        static_cast<double>(step.calls);
    line(step.name,
         std::to_string(step.rows) + " x " + std::to_string(step.lanes) + " x " +
             std::to_string(step.depth),
         std::to_string(step.calls), step.seconds, work);
    flops += work;
    products += step.seconds;
  }
  line("all products", "", "", products, flops);
  line("x and y", "", "", std::max(0.0, whole - products), 0);
  line("the forward", "", "", whole, flops);
  line("+ packing cores", "", "", pack, 0);
}

}  // namespace
}  // namespace ttbench

int main(int argc, char** argv) {
  using namespace ttbench;
  try {
    if (argc != 4) throw std::invalid_argument("three arguments are wanted");
    Profile(TtShape::Parse(argv[1], ParseCount(argv[2])), ParseCount(argv[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fused_profile: %s\nusage: fused_profile n1x..xnK:m1x..xmK RANK BATCH\n",
                 error.what());
    return 2;
  }
}
