#include "kernels/variant.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace ttbench {
namespace {

std::vector<std::unique_ptr<const LinearVariant>>& MutableVariants() {
  static auto* variants = new std::vector<std::unique_ptr<const LinearVariant>>();
  return *variants;
}

}  // namespace

const std::vector<std::unique_ptr<const LinearVariant>>& LinearVariants() {
  return MutableVariants();
}

const LinearVariant* FindLinearVariant(const std::string& name) {
  for (const auto& variant : LinearVariants()) {
    if (variant->name() == name) return variant.get();
  }
  return nullptr;
}

RegisterLinearVariant::RegisterLinearVariant(std::unique_ptr<const LinearVariant> variant) {
  if (FindLinearVariant(variant->name())) {
    std::fprintf(stderr, "ttbench: two linear variants are named '%s'; rename one of them\n",
                 variant->name().c_str());
    std::abort();
  }
  auto& variants = MutableVariants();
  auto sort_key = [](const LinearVariant& v) {
    return std::pair(v.name() != kBaselineVariant, v.name());
  };
  const auto position = std::find_if(variants.begin(), variants.end(), [&](const auto& other) {
    return sort_key(*variant) < sort_key(*other);
  });
  variants.insert(position, std::move(variant));
}

}  // namespace ttbench
