#include "kernels/cuda/fused_cuda_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttbench {
namespace {

std::vector<double> Random(int64_t count, CudaPrecision precision, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<double> values(count);
  for (double& value : values) {
    const float real = uniform(engine);
    value = precision == CudaPrecision::kBfloat16 ? ToFloat(RoundToBfloat16(real)) : real;
  }
  return values;
}

std::vector<double> Magnitudes(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

// The relative error of a product or sum of K cores, computed one core after another: each core, x,
// dy and each intermediate of the forward and of the way back is rounded at most once, as is the
// result; and each of a sum's terms once for each of the terms after it, in float32.
double RelativeError(const CudaTestLayer& layer) {
  const double cores = static_cast<double>(layer.shape.cores());
  const double roundoff = layer.precision == CudaPrecision::kFloat32 ? 0
                          : layer.precision == CudaPrecision::kTf32  ? std::ldexp(1, -11)
                                                                     : std::ldexp(1, -9);
  double terms = static_cast<double>(
      layer.batch * std::max(layer.shape.in_features(), layer.shape.out_features()));
  for (int64_t k = 0; k < layer.shape.cores(); ++k) {
    terms += static_cast<double>(layer.shape.n(k) * layer.shape.right_rank(k) +
                                 layer.shape.m(k) * layer.shape.left_rank(k));
  }
  return (2 * cores + 3) * roundoff + terms * std::ldexp(1, -24);
}

int64_t Uniform(std::mt19937_64& engine, int64_t first, int64_t last) {
  return std::uniform_int_distribution<int64_t>(first, last)(engine);
}

int64_t RandomDivisor(std::mt19937_64& engine, int64_t value) {
  while (true) {
    const int64_t divisor = Uniform(engine, 1, value);
    if (value % divisor == 0) return divisor;
  }
}

}  // namespace

CudaTestLayer::CudaTestLayer(const TtShape& shape, int64_t batch, CudaPrecision precision,
                             uint64_t seed)
    : shape(shape), batch(batch), precision(precision) {
  for (int64_t k = 0; k < shape.cores(); ++k) {
    cores.push_back(Random(Product(shape.CoreSizes(k)), precision, seed * 100 + 10 + k));
  }
  x = Random(batch * shape.in_features(), precision, seed * 100 + 1);
  dy = Random(batch * shape.out_features(), precision, seed * 100 + 2);
  oracle = EvaluateOracle(shape, cores, x, dy);
  std::vector<std::vector<double>> core_magnitudes;
  for (const auto& core : cores) core_magnitudes.push_back(Magnitudes(core));
  magnitude = EvaluateOracle(shape, core_magnitudes, Magnitudes(x), Magnitudes(dy));
}

TtShape RandomShape(std::mt19937_64& engine) {
  const int64_t cores = Uniform(engine, 2, 6);
  const int64_t largest = cores == 2 ? 20 : cores == 3 ? 9 : cores == 4 ? 5 : 3;
  const auto sizes = [&](int64_t count, int64_t bound) {
    Modes all;
    for (int64_t i = 0; i < count; ++i) all.push_back(Uniform(engine, 1, bound));
    return all;
  };
  const Modes in = sizes(cores, largest), out = sizes(cores, largest);
  return TtShape(in, out, sizes(cores - 1, cores == 2 ? 40 : 9));
}

int64_t RandomBatch(std::mt19937_64& engine) {
  return Uniform(engine, 0, 3) == 0 ? 1 : 2 * Uniform(engine, 0, 4) + 1;
}

FusedCudaPlan RandomPlan(const TtShape& shape, int64_t batch, CudaPrecision precision,
                         CudaPass pass, const CudaDevice& device, std::mt19937_64& engine) {
  while (true) {
    const bool mirrored = Uniform(engine, 0, 1) == 1;
    const int64_t last = shape.cores() - 1;
    FusedCudaTile tile;
    tile.samples = Uniform(engine, 1, 4);
    tile.chunk = RandomDivisor(engine, shape.n(mirrored ? last : 0));
    tile.block = RandomDivisor(engine, shape.m(mirrored ? 0 : last));
    tile.threads = 32 * Uniform(engine, 1, 4);
    tile.resident_cores = Uniform(engine, 0, 1) == 1;
    tile.resident_gradients = pass == CudaPass::kBackward && Uniform(engine, 0, 1) == 1;
    // The blocks share the units unevenly.
    const auto plan = MakeFusedCudaPlan(shape, batch, precision, pass, device, mirrored, tile,
                                        Uniform(engine, 1, 3));
    if (plan && plan->grid <= plan->params.units) return *plan;
  }
}

PanelCudaPlan RandomPanelPlan(const TtShape& shape, int64_t batch, CudaPrecision precision,
                              CudaPass pass, const CudaDevice& device, std::mt19937_64& engine) {
  while (true) {
    const int64_t cut = Uniform(engine, 1, shape.cores() - 1);
    Modes in(2, 1), out(2, 1);  // Of L and R.
    for (int64_t k = 0; k < shape.cores(); ++k) {
      in[k < cut ? 0 : 1] *= shape.n(k);
      out[k < cut ? 0 : 1] *= shape.m(k);
    }
    const auto tile = [&](const Modes& from, const Modes& to) {
      PanelCudaTile random;
      random.left_in = RandomDivisor(engine, from[0]);
      random.right_in = RandomDivisor(engine, from[1]);
      random.left_out = RandomDivisor(engine, to[0]);
      random.right_out = RandomDivisor(engine, to[1]);
      random.samples = Uniform(engine, 1, 9);
      random.splits = Uniform(engine, 1, 3);
      return random;
    };
    const PanelCudaTile gradient = tile(in, out);
    const PanelCudaTile multiply = pass == CudaPass::kForward ? tile(in, out) : tile(out, in);
    // Small panels take long to emulate.
    if (in[0] * in[1] * out[0] * out[1] >
        1000 * multiply.left_in * multiply.right_in * multiply.left_out * multiply.right_out) {
      continue;
    }
    if (in[0] * in[1] * out[0] * out[1] >
        1000 * gradient.left_in * gradient.right_in * gradient.left_out * gradient.right_out) {
      continue;
    }
    const auto plan = MakePanelCudaPlan(shape, batch, precision, pass, device, cut, multiply,
                                        gradient, Uniform(engine, 1, 3));
    if (plan) return *plan;
  }
}

double CudaError(const CudaTestLayer& layer, const std::vector<float>& got,
                 const std::vector<double>& expected, const std::vector<double>& magnitude) {
  constexpr double kWrong = std::numeric_limits<double>::infinity();
  if (got.size() != expected.size()) return kWrong;
  const double relative = RelativeError(layer);
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!std::isfinite(got[i])) return kWrong;
    const double difference = std::abs(got[i] - expected[i]);
    if (difference > 0) worst = std::max(worst, difference / (relative * magnitude[i]));
  }
  return worst;
}

std::string Describe(const TtShape& shape, const FusedCudaPlan& plan) {
  const FusedCudaTile& tile = plan.tile;
  const auto text = [](int64_t value) { return std::to_string(value); };
  return shape.modes_name() + " ranks " + shape.ranks_name() + " batch " + text(plan.params.batch) +
         " " + PrecisionName(plan.precision) +
         (plan.pass == CudaPass::kForward ? " forward" : " backward") + ", tile " +
         text(tile.samples) + "/" + text(tile.chunk) + "/" + text(tile.block) + ", " +
         text(tile.threads) + " threads, grid " + text(plan.grid) +
         (plan.mirrored ? ", mirrored" : "") + (tile.resident_cores ? ", cores resident" : "") +
         (tile.resident_gradients ? ", gradients resident" : "");
}

std::string Describe(const TtShape& shape, const PanelCudaPlan& plan) {
  const auto text = [](int64_t value) { return std::to_string(value); };
  const auto describe = [&](const PanelCudaLaunch& launch) {
    const PanelCudaTile& tile = launch.tile;
    return text(tile.left_in) + "." + text(tile.right_in) + "x" + text(tile.left_out) + "." +
           text(tile.right_out) + ", " + text(tile.samples) + " rows, " + text(tile.splits) +
           " splits, " + text(launch.threads) + " threads, grid " + text(launch.grid);
  };
  return shape.modes_name() + " ranks " + shape.ranks_name() + " batch " +
         text(plan.params.multiply.batch) + " " + PrecisionName(plan.precision) +
         (plan.pass == CudaPass::kForward ? " forward" : " backward") + ", cut " + text(plan.cut) +
         ", panels " + describe(plan.multiply) +
         (plan.pass == CudaPass::kForward ? "" : "; gradient " + describe(plan.gradient));
}

}  // namespace ttbench
