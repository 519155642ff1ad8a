#include "kernels/attention/variant.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace ttbench {
namespace {

std::vector<std::unique_ptr<const AttentionVariant>>& MutableVariants() {
  static auto* variants = new std::vector<std::unique_ptr<const AttentionVariant>>();
  return *variants;
}

}  // namespace

std::string AttentionVariant::WhyUnsupported(const AttentionProblem& problem) const {
  if (problem.dtype == DType::kBFloat16) return "attention runs in float32 and float64";
  if (problem.layers == 0) return "";
  if (takes_all_steps()) return "the decoder feeds its attention back: there is no next step yet";
  return "computes the attention alone, not the whole decoder";
}

std::vector<NamedSizes> AttentionParameters(const AttentionVariant& variant,
                                            const AttentionProblem& problem) {
  const int64_t hidden = problem.hidden;
  std::vector<NamedSizes> parameters;
  for (int64_t n = 1; n <= problem.layers; ++n) {
    const std::string layer = " of layer " + std::to_string(n);
    const int64_t in = n == 1 ? kWordVectorSize + hidden : hidden;
    parameters.push_back({"W_i2h" + layer, {4 * hidden, in}});
    parameters.push_back({"b" + layer, {4 * hidden}});
    parameters.push_back({"W_h2h" + layer, {4 * hidden, hidden}});
  }
  if (variant.is_additive()) {
    parameters.push_back({"W_q", {hidden, hidden}});
    parameters.push_back({"W_s", {hidden, hidden}});
    parameters.push_back({"v", {hidden}});
  } else {
    parameters.push_back({"W_a", {hidden, hidden}});
  }
  parameters.push_back({"W_c", {hidden, 2 * hidden}});
  return parameters;
}

AttentionInputSizes InputSizes(const AttentionVariant& variant, const AttentionProblem& problem) {
  const int64_t batch = problem.batch, hidden = problem.hidden;
  AttentionInputSizes sizes;
  sizes.context = {"context", {batch, problem.source_len, hidden}};
  if (variant.takes_all_steps()) {
    sizes.steps = {{"h", {batch, problem.target_len, hidden}}};
  } else if (problem.layers == 0) {
    sizes.steps.assign(problem.target_len, {"h", {batch, hidden}});
  } else {
    sizes.steps.assign(problem.target_len, {"word", {batch, kWordVectorSize}});
    sizes.initial.assign(1 + 2 * problem.layers, {"initial state", {batch, hidden}});
  }
  return sizes;
}

const std::vector<std::unique_ptr<const AttentionVariant>>& AttentionVariants() {
  return MutableVariants();
}

const AttentionVariant* FindAttentionVariant(const std::string& name) {
  for (const auto& variant : AttentionVariants()) {
    if (variant->name() == name) return variant.get();
  }
  return nullptr;
}

RegisterAttentionVariant::RegisterAttentionVariant(
    std::unique_ptr<const AttentionVariant> variant) {
  if (FindAttentionVariant(variant->name())) {
    std::fprintf(stderr, "ttbench: two attention variants are named '%s'; rename one of them\n",
                 variant->name().c_str());
    std::abort();
  }
  auto& variants = MutableVariants();
  auto sort_key = [](const AttentionVariant& v) {
    return std::pair(v.name() != kAttentionBaseline, v.name());
  };
  const auto position = std::find_if(variants.begin(), variants.end(), [&](const auto& other) {
    return sort_key(*variant) < sort_key(*other);
  });
  variants.insert(position, std::move(variant));
}

}  // namespace ttbench
