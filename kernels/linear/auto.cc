// auto: picks, for each layer, batch and phase, the variant of least predicted time among those
// that need no more memory than the dense layer, and runs it. A pure function of the problem and of
// the calibrated rates, so that its memory is as exactly modelled as that of what it picks.
#include "kernels/linear/auto.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/cost/linear_cost.h"
#include "kernels/cost/speed.h"
#include "kernels/scalar_type.h"

namespace ttbench {
namespace {

constexpr const char* kAlwaysCandidate = "fused";

int64_t PeakBytes(const char* variant, const LinearProblem& problem) {
  return *PredictLinearCost(*FindLinearVariant(variant), problem).bytes.peak;
}

const LinearVariant& PickAnew(const LinearProblem& problem) {
  const SpeedTable& speeds = MeasuredSpeeds();
  const bool calibrated = speeds.Knows(problem);
  const LinearVariant* best = FindLinearVariant(kAlwaysCandidate);
  double best_seconds = -1;
  for (const LinearVariant* variant : AutoCandidates(problem)) {
    if (calibrated && !speeds.Gflops(variant->name(), problem)) continue;
    const double seconds = PredictSeconds(*variant, problem, PredictLinearCost(*variant, problem));
    if (best_seconds < 0 || seconds < best_seconds) {
      best = variant;
      best_seconds = seconds;
    }
  }
  return *best;
}

class Auto : public LinearVariant {
 public:
  std::string name() const override { return kAutoVariant; }
  bool RunsOn(Device device) const override { return device == Device::kCpu; }
  std::string Algorithm(const LinearProblem& problem) const override {
    const LinearVariant& pick = PickLinearVariant(problem);
    return pick.name() + ": " + pick.Algorithm(problem);
  }
  // The pick is among variants with an exact model.
  std::string WhyPeaksUnmodelled(const LinearProblem&) const override { return ""; }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    const bool with_grad =
        at::GradMode::is_enabled() &&
        (x.requires_grad() || std::any_of(cores.begin(), cores.end(), [](const at::Tensor& core) {
           return core.requires_grad();
         }));
    const LinearProblem problem{shape, x.size(0), with_grad ? Phase::kTrain : Phase::kInference,
                                DTypeOf(x.scalar_type()), at::get_num_threads()};
    return PickLinearVariant(problem).Forward(shape, x, cores);
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    const auto dtype = std::find_if(kDTypes.begin(), kDTypes.end(), [&](DType candidate) {
      return ElementBytes(candidate) == tape.element_bytes();
    });
    const LinearProblem problem{shape, x.size(0),
                                tape.recording() ? Phase::kTrain : Phase::kInference, *dtype,
                                tape.threads()};
    return PickLinearVariant(problem).Trace(tape, shape, x, cores);
  }

  double planning_gflops() const override { return 60; }
};

const RegisterLinearVariant kAuto(std::make_unique<Auto>());

}  // namespace

std::vector<const LinearVariant*> AutoCandidates(const LinearProblem& given) {
  LinearProblem problem = given;
  problem.phase = WithoutOptimizer(given.phase);
  if (problem.batch == 0) return {FindLinearVariant(kAlwaysCandidate)};
  const int64_t most_bytes =
      std::max(PeakBytes(kBaselineVariant, problem), PeakBytes(kAlwaysCandidate, problem));
  std::vector<const LinearVariant*> candidates;
  for (const auto& variant : LinearVariants()) {
    if (variant->is_dense() || !variant->is_trusted() || variant->name() == kAutoVariant) {
      continue;
    }
    if (!variant->WhySkipped(problem).empty()) continue;
    if (!variant->WhyPeaksUnmodelled(problem).empty()) continue;
    if (PeakBytes(variant->name().c_str(), problem) <= most_bytes) {
      candidates.push_back(variant.get());
    }
  }
  return candidates;
}

// The latest few picks are kept: a small layer runs in less time than it takes to decide.
const LinearVariant& PickLinearVariant(const LinearProblem& given) {
  struct Entry {
    LinearProblem problem;
    int64_t version;
    const LinearVariant* pick;
  };
  static std::mutex mutex;
  static auto* entries = new std::list<Entry>;
  constexpr size_t kKept = 64;
  LinearProblem problem = given;
  problem.phase = WithoutOptimizer(given.phase);
  const int64_t version = MeasuredSpeeds().version();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = std::find_if(entries->begin(), entries->end(), [&](const Entry& entry) {
    return entry.version == version && entry.problem.batch == problem.batch &&
           entry.problem.phase == problem.phase && entry.problem.dtype == problem.dtype &&
           entry.problem.threads == problem.threads && entry.problem.shape == problem.shape;
  });
  if (found != entries->end()) {
    entries->splice(entries->begin(), *entries, found);
  } else {
    entries->push_front({problem, version, &PickAnew(problem)});
    if (entries->size() > kKept) entries->pop_back();
  }
  return *entries->front().pick;
}

}  // namespace ttbench
