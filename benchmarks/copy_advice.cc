#include "benchmarks/copy_advice.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace ttbench {
namespace {

using Dims = std::vector<int64_t>;

std::string Join(const Dims& numbers, const char* between) {
  std::string text;
  for (const int64_t number : numbers)
    text += (text.empty() ? "" : between) + std::to_string(number);
  return text;
}

Dims Permuted(const Dims& values, const Dims& order) {
  Dims permuted;
  for (const int64_t dim : order) permuted.push_back(values[dim]);
  return permuted;
}

// The dimensions, those of size 1 left out, as they follow each other in memory.
Dims MemoryOrder(const Layout& layout) {
  Dims order;
  for (size_t dim = 0; dim < layout.sizes.size(); ++dim) {
    if (layout.sizes[dim] > 1) order.push_back(static_cast<int64_t>(dim));
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return layout.strides[a] > layout.strides[b]; });
  return order;
}

bool FillsMemory(const Layout& layout, const Dims& order) {
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    if (layout.strides[order[i]] != stride) return false;
    stride *= layout.sizes[order[i]];
  }
  return true;
}

bool IsProduct(const std::string& op) {
  static const std::set<std::string> products = {"mm",     "bmm",           "addmm", "baddbmm",
                                                 "linear", "mkldnn_linear", "dot"};
  return products.count(op) > 0;
}

// Whether an operator computes its result element by element, or a sum at a time, and so in any
// order.
bool TakesAnyOrder(const std::string& op) {
  return !op.empty() && !IsProduct(op) && op != "clone" && op != "copy_";
}

// The calls by which `use`, a product whose matrix lies over `placed`, could have it at `wanted`.
std::optional<StridedProducts> InPlace(const BufferUse& use, const Layout& placed,
                                       const Layout& wanted) {
  const Dims order = MemoryOrder(placed);
  if (!IsProduct(use.op) || !FillsMemory(placed, order)) return std::nullopt;
  const auto sides = SidesOf(Permuted(placed.sizes, order), use.layout);
  if (!sides) return std::nullopt;
  return AddressInPlace({Permuted(wanted.sizes, order), Permuted(wanted.strides, order)}, *sides);
}

std::string Calls(const StridedProducts& products) {
  return std::to_string(products.count) + (products.count == 1 ? " call" : " calls") + " with " +
         std::to_string(products.rows) + "x" + std::to_string(products.columns) + " of it";
}

}  // namespace

const char* Name(Origin origin) {
  switch (origin) {
    case Origin::kInput:
      return "x";
    case Origin::kParameter:
      return "core";
    case Origin::kParametersAlone:
      return "joined cores";
    case Origin::kActivation:
      return "intermediate";
    case Origin::kGradient:
      return "gradient";
  }
  return "";
}

const char* Name(Remedy remedy) {
  switch (remedy) {
    case Remedy::kKeepOrder:
      return "keep in order";
    case Remedy::kReadInPlace:
      return "read in place";
    case Remedy::kWriteInPlace:
      return "write in place";
    case Remedy::kBroadcast:
      return "broadcast";
    case Remedy::kTakeOver:
      return "take over";
    case Remedy::kCopyOnce:
      return "copy once";
    case Remedy::kOneType:
      return "one type";
    case Remedy::kOtherOrder:
      return "other order";
  }
  return "";
}

Advice AdviseOn(const RecordedCopy& copy, const std::string& source) {
  if (copy.converts) return {Remedy::kOneType, {}, "keep " + source + " in the type it is used in"};
  int64_t repeats = 1;
  for (size_t dim = 0; dim < copy.source.sizes.size(); ++dim) {
    if (copy.source.strides[dim] == 0) repeats *= copy.source.sizes[dim];
  }
  if (repeats > 1) {
    return {Remedy::kBroadcast,
            {},
            "each element of " + source + " is written " + std::to_string(repeats) +
                " times: " + copy.consumer.op + " could read it by a stride of 0"};
  }
  const Dims lies = MemoryOrder(copy.source), wanted = MemoryOrder(copy.target);
  if (lies == wanted && FillsMemory(copy.source, lies)) {
    return {Remedy::kTakeOver, {}, source + " lies as its copy does: use it itself"};
  }
  if (copy.origin == Origin::kParameter) {
    Dims order;
    for (const int64_t dim : wanted)
      order.push_back(std::find(lies.begin(), lies.end(), dim) - lies.begin());
    return {Remedy::kKeepOrder,
            {},
            "keep " + source + ", in memory " + Join(Permuted(copy.source.sizes, lies), "x") +
                ", with its dimensions in the order " + Join(order, " ") + ": " +
                Join(Permuted(copy.source.sizes, wanted), "x")};
  }
  if (copy.consumer.op == "copy_") {
    return {Remedy::kCopyOnce, {}, "the copy is only copied again: permute once"};
  }
  if (TakesAnyOrder(copy.consumer.op)) {
    return {Remedy::kReadInPlace, {}, copy.consumer.op + " can read " + source + " in any order"};
  }
  if (TakesAnyOrder(copy.producer.op)) {
    return {Remedy::kWriteInPlace, {}, copy.producer.op + " can write " + source + " in any order"};
  }
  const auto read = InPlace(copy.consumer, copy.target, copy.source);
  const auto written = InPlace(copy.producer, copy.source, copy.target);
  if (read && (!written || read->count <= written->count)) {
    return {Remedy::kReadInPlace, read,
            copy.consumer.op + " can read " + source + " where it lies, in " + Calls(*read)};
  }
  if (written) {
    return {
        Remedy::kWriteInPlace, written,
        copy.producer.op + " can write " + source + " where it is wanted, in " + Calls(*written)};
  }
  return {Remedy::kOtherOrder, {}, "contract in an order that does not part " + source};
}

}  // namespace ttbench
