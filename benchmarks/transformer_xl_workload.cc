#include "benchmarks/transformer_xl_workload.h"

#include "benchmarks/transformer_xl_run.h"
#include "kernels/variant.h"
#include "networks/transformer_xl/transformer_xl_cost.h"

namespace ttbench {
namespace {

const LinearVariant& VariantOf(const TransformerXlOptions& network) {
  return *FindLinearVariant(network.feed_forward_variant);
}

// What `say` has to say of either position-wise layer, the first that is something.
template <typename Say>
std::string OfEitherLayer(const TransformerXlProblem& problem, const Say& say) {
  if (problem.network.is_dense()) return "";
  const std::string up = say(VariantOf(problem.network), problem.Up());
  return up.empty() ? say(VariantOf(problem.network), problem.Down()) : up;
}

}  // namespace

std::vector<std::string> TransformerXlVariants() {
  std::vector<std::string> names{kBaselineVariant};
  for (const auto& variant : LinearVariants()) {
    if (!variant->is_dense() && variant->RunsOn(Device::kCpu)) names.push_back(variant->name());
  }
  return names;
}

std::string TransformerXlWorkload::SizeFlags() const {
  const TransformerXlOptions& network = problem_.network;
  std::string flags = "--network=transformer-xl --layers=" + std::to_string(network.layers) +
                      " --hidden=" + std::to_string(network.d_model) +
                      " --heads=" + std::to_string(network.heads) +
                      " --inner=" + std::to_string(network.d_inner) +
                      " --target-len=" + std::to_string(network.target_len) +
                      " --source-len=" + std::to_string(network.memory_len) +
                      " --vocabulary=" + std::to_string(network.vocabulary);
  // A dense network keeps the layers beside which it was planned: they fit its sizes.
  if (!network.up) return flags;
  return flags + " --shape=" + LayersName(network) + " --rank=" + std::to_string(rank_);
}

Setting TransformerXlWorkload::setting() const {
  return {problem_.batch, problem_.phase, problem_.dtype, problem_.threads};
}

std::string TransformerXlWorkload::reference_key() const {
  const bool gradients = problem_.phase != Phase::kInference;
  return std::string(family()) + SizeName(problem_) + "/" + std::to_string(problem_.batch) + "/" +
         Name(problem_.dtype) + (gradients ? "/gradients" : "");
}

std::vector<std::pair<const char*, std::string>> TransformerXlWorkload::SizeColumns() const {
  const TransformerXlOptions& network = problem_.network;
  std::vector<std::pair<const char*, std::string>> columns{
      {"source_len", std::to_string(network.memory_len)},
      {"target_len", std::to_string(network.target_len)},
      {"hidden", std::to_string(network.d_model)},
      {"layers", std::to_string(network.layers)}};
  if (network.is_dense()) return columns;
  const TtShape& up = *network.up;
  columns.insert(columns.end(), {{"in_modes", FormatModes(up.in_modes())},
                                 {"out_modes", FormatModes(up.out_modes())},
                                 {"ranks", up.ranks_name()},
                                 {"cores", std::to_string(up.cores())}});
  if (up.uniform_rank() > 0) columns.emplace_back("rank", std::to_string(up.uniform_rank()));
  return columns;
}

std::string TransformerXlWorkload::Algorithm() const {
  if (is_baseline()) return "dense position-wise layers";
  const LinearVariant& variant = VariantOf(problem_.network);
  const std::string up = variant.Algorithm(problem_.Up());
  const std::string down = variant.Algorithm(problem_.Down());
  return "position-wise layers: " + (up == down ? up : "up " + up + "; down " + down);
}

std::string TransformerXlWorkload::WhyUnsupported() const {
  if (problem_.dtype == DType::kBFloat16) return "Transformer-XL runs in float32 and float64";
  return OfEitherLayer(problem_, [](const LinearVariant& variant, const LinearProblem& layer) {
    return variant.WhySkipped(layer);
  });
}

std::string TransformerXlWorkload::WhyPeaksUnmodelled() const {
  return OfEitherLayer(problem_, [](const LinearVariant& variant, const LinearProblem& layer) {
    return variant.WhyPeaksUnmodelled(layer);
  });
}

std::vector<LinearProblem> TransformerXlWorkload::LinearLayers() const {
  if (is_baseline()) return {};
  return {problem_.Up(), problem_.Down()};
}

CellCost TransformerXlWorkload::Predict() const { return PredictTransformerXlCost(problem_); }

double TransformerXlWorkload::PredictSeconds(const CellCost& cost) const {
  // What a core moves when a buffer is written and read again, and reaches in products of the
  // network's sizes, most of which are dense.
  constexpr double kBytesPerSecond = 4e9, kFlopsPerSecond = 60e9;
  const double precision = problem_.dtype == DType::kFloat64 ? 2 : 1;
  return precision * static_cast<double>(cost.flops) /
             (kFlopsPerSecond * static_cast<double>(problem_.threads)) +
         static_cast<double>(cost.allocated_bytes) / kBytesPerSecond;
}

double TransformerXlWorkload::SetUpTrafficBytes() const {
  // Made one number at a time.
  constexpr double kBytesForEach = 8;
  return kBytesForEach * static_cast<double>(ParameterCounts(problem_.network).total());
}

std::shared_ptr<const Workload> TransformerXlWorkload::Baseline() const {
  TransformerXlProblem problem = problem_;
  problem.network.feed_forward_variant = kBaselineVariant;
  return std::make_shared<TransformerXlWorkload>(problem, rank_);
}

std::shared_ptr<const Workload> TransformerXlWorkload::AtBatch(int64_t batch) const {
  TransformerXlProblem problem = problem_;
  problem.batch = batch;
  return std::make_shared<TransformerXlWorkload>(problem, rank_);
}

std::unique_ptr<Reference> TransformerXlWorkload::MakeReference(uint64_t seed) const {
  return std::make_unique<TransformerXlReference>(MakeTransformerXlReference(problem_, seed));
}

std::unique_ptr<PhaseRun> TransformerXlWorkload::MakeRun(uint64_t seed, bool) const {
  return std::make_unique<TransformerXlRun>(problem_, seed);
}

Cell TransformerXlCell(const TransformerXlProblem& problem, int64_t rank,
                       const DeviceSettings& device) {
  return {std::make_shared<TransformerXlWorkload>(problem, rank), device};
}

}  // namespace ttbench
