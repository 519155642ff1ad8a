// test-planted: the layer as `fused` computes it, with a regression that the environment
// plants in single layers, for trials of the regression check. TTBENCH_TEST_PLANT is a list like
//
//   8x8x8:8x8x8/r4/b64=0.1,16x16x16:16x16x16/r8/b32=copy
//
// The first layer's forward takes 10% longer than it would; the second one's copies x. Its
// Trace() knows of neither.
#include <chrono>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "kernels/variant.h"

namespace ttbench {
namespace {

using Clock = std::chrono::steady_clock;

// {layer: what is planted in it}
const std::map<std::string, std::string>& Plants() {
  static const auto* plants = [] {
    auto* read = new std::map<std::string, std::string>;
    const char* text = std::getenv("TTBENCH_TEST_PLANT");
    std::istringstream list(text == nullptr ? "" : text);
    for (std::string plant; std::getline(list, plant, ',');) {
      const size_t equals = plant.find('=');
      (*read)[plant.substr(0, equals)] = plant.substr(equals + 1);
    }
    return read;
  }();
  return *plants;
}

class Planted : public LinearVariant {
 public:
  std::string name() const override { return "test-planted"; }
  bool is_trusted() const override { return false; }
  std::string Algorithm(const LinearProblem& problem) const override {
    return Base().Algorithm(problem);
  }
  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    const auto plant = Plants().find(shape.modes_name() + "/" + shape.rank_label() + "/b" +
                                     std::to_string(x.size(0)));
    if (plant == Plants().end()) return Base().Forward(shape, x, cores);
    if (plant->second == "copy") return Base().Forward(shape, x.clone(), cores);
    const auto begin = Clock::now();
    at::Tensor y = Base().Forward(shape, x, cores);
    const auto end = Clock::now();
    const auto longer = (end - begin) * std::stod(plant->second);
    while (Clock::now() < end + longer) {
    }
    return y;
  }
  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    return Base().Trace(tape, shape, x, cores);
  }

 private:
  static const LinearVariant& Base() { return *FindLinearVariant("fused"); }
};

const RegisterLinearVariant kPlanted(std::make_unique<Planted>());

}  // namespace
}  // namespace ttbench
