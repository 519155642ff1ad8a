#include "benchmarks/replica_checks.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/parallel/data_parallel.h>
#include <torch/serialize.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "benchmarks/fill.h"
#include "benchmarks/inputs.h"
#include "benchmarks/process_group.h"
#include "kernels/scalar_type.h"
#include "kernels/tt_linear.h"

namespace ttbench {
namespace {

using Tensors = std::vector<at::Tensor>;
using Clock = std::chrono::steady_clock;

// The dense layer; or a layer whose cores are attributes of its own.
class BareLayerImpl : public torch::nn::Cloneable<BareLayerImpl> {
 public:
  BareLayerImpl(const LinearVariant& variant, const LinearProblem& problem, Keeping keeping)
      : variant_(&variant), problem_(problem), keeping_(keeping) {
    reset();
  }

  void reset() override {
    const TtShape& shape = problem_.shape;
    weights.clear();
    for (int64_t k = 0; k < (variant_->is_dense() ? 1 : shape.cores()); ++k) {
      const std::vector<int64_t> sizes =
          variant_->is_dense() ? std::vector<int64_t>{shape.out_features(), shape.in_features()}
                               : shape.CoreSizes(k);
      at::Tensor weight = at::randn(sizes, ScalarTypeOf(problem_.dtype));
      weight *= CoreScale(shape, k);
      weights.push_back(keeping_ == Keeping::kRegistered
                            ? register_parameter("weight" + std::to_string(k + 1), weight)
                            : weight.set_requires_grad(true));
    }
  }

  at::Tensor forward(const at::Tensor& x) { return variant_->Forward(problem_.shape, x, weights); }

  Tensors weights;

 private:
  const LinearVariant* variant_;
  LinearProblem problem_;
  Keeping keeping_;
};

const Tensors& WeightsOf(const BareLayerImpl& layer) { return layer.weights; }
const Tensors& WeightsOf(const TtLinearImpl& layer) { return layer.cores(); }

double ErrorOf(const at::Tensor& got, const at::Tensor& want) {
  if (got.sizes() != want.sizes()) return std::numeric_limits<double>::infinity();
  const at::Tensor a = got.detach().to(at::kDouble), b = want.detach().to(at::kDouble);
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

// Of the worst; infinite where one is missing.
double ErrorOf(const Tensors& got, const Tensors& want) {
  double error = got.size() == want.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    error = std::max(error, got[i].defined() ? ErrorOf(got[i], want[i])
                                             : std::numeric_limits<double>::infinity());
  }
  return error;
}

Tensors Clones(const Tensors& tensors) {
  Tensors clones;
  for (const at::Tensor& tensor : tensors) clones.push_back(tensor.detach().clone());
  return clones;
}

Tensors GradientsOf(const Tensors& tensors) {
  Tensors gradients;
  for (const at::Tensor& tensor : tensors) gradients.push_back(tensor.grad());
  return gradients;
}

void ClearGradients(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) tensor.mutable_grad() = at::Tensor();
}

int64_t Median(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

int64_t NanosecondsSince(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

template <typename Layer>
class Checks {
 public:
  Checks(std::function<std::shared_ptr<Layer>()> make, const LinearVariant& variant,
         const LinearProblem& problem, uint64_t seed, int64_t steps)
      : make_(std::move(make)), variant_(variant), problem_(problem), steps_(steps) {
    const TtShape& shape = problem.shape;
    const at::ScalarType type = ScalarTypeOf(problem.dtype);
    x_ = at::empty({problem.batch, shape.in_features()}, type);
    dy_ = at::empty({problem.batch, shape.out_features()}, type);
    Fill(UniformValues(seed, kStreamX, 1), 0, x_.numel(), x_);
    Fill(UniformValues(seed, kStreamDy, 1), 0, dy_.numel(), dy_);
  }

  ReplicaFindings Run(const std::string& rendezvous) {
    // First, while nothing has been computed.
    Try("processes", [&](ReplicaCheck* check) { Processes(rendezvous, check); });
    Try("to-dtype", [&](ReplicaCheck* check) { ToDtype(check); });
    Try("to-device", [&](ReplicaCheck* check) { ToDevice(check); });
    Try("clone", [&](ReplicaCheck* check) { Clone(check); });
    Try("save-load", [&](ReplicaCheck* check) { SaveLoad(check); });
    Try("replicate", [&](ReplicaCheck* check) { Replicate(check); });
    return std::move(findings_);
  }

 private:
  void Try(const char* name, const std::function<void(ReplicaCheck*)>& body) {
    ReplicaCheck check;
    check.check = name;
    try {
      body(&check);
      check.ok = check.reason.empty();
    } catch (const std::exception& error) {
      const std::string what = error.what();
      check.reason = what.substr(0, what.find('\n'));
    }
    findings_.checks.push_back(std::move(check));
  }

  void Compare(double error, double tolerance, const std::string& what, ReplicaCheck* check) const {
    check->max_relative_error = error;
    if (!(error <= tolerance)) check->reason = what;
  }

  at::Tensor Half(const at::Tensor& all, int64_t which) const {
    const int64_t rows = problem_.batch / 2;
    return all.narrow(0, which * rows, rows).contiguous();
  }

  static void Train(Layer& layer, const at::Tensor& x, const at::Tensor& dy) {
    ClearGradients(WeightsOf(layer));
    torch::autograd::backward({layer.forward(x)}, {dy});
  }

  Tensors JoinedGradients(Layer& layer) const {
    Train(layer, x_, dy_);
    Tensors gradients = GradientsOf(WeightsOf(layer));
    ClearGradients(WeightsOf(layer));
    return gradients;
  }

  void ToDtype(ReplicaCheck* check) {
    const std::shared_ptr<Layer> layer = make_();
    const at::NoGradGuard no_grad;
    const at::Tensor y = layer->forward(x_);
    const bool to_double = problem_.dtype != DType::kFloat64;
    const at::ScalarType type = to_double ? at::kDouble : at::kFloat;
    layer->to(type);
    size_t moved = 0;
    for (const at::Tensor& weight : WeightsOf(*layer)) moved += weight.scalar_type() == type;
    const size_t all = WeightsOf(*layer).size();
    if (moved < all) {
      check->reason =
          std::to_string(moved) + " of " + std::to_string(all) + " weights have the new type";
      return;
    }
    LinearProblem moved_problem = problem_;
    moved_problem.dtype = to_double ? DType::kFloat64 : DType::kFloat32;
    if (!variant_.WhySkipped(moved_problem).empty()) return;
    Compare(ErrorOf(layer->forward(x_.to(type)), y), Tolerance(problem_.shape, DType::kFloat32),
            "y is another one", check);
  }

  // to(device) moves what parameters() names. It is not called: LibTorch moves no module, of its
  // own neither, from the CPU to the meta device, and there may be no other.
  void ToDevice(ReplicaCheck* check) {
    const std::shared_ptr<Layer> layer = make_();
    const Tensors parameters = layer->parameters();
    size_t named = 0;
    for (const at::Tensor& weight : WeightsOf(*layer)) {
      named += std::any_of(parameters.begin(), parameters.end(),
                           [&](const at::Tensor& parameter) { return parameter.is_same(weight); });
    }
    const size_t all = WeightsOf(*layer).size();
    if (named < all) {
      check->reason =
          "to() moves " + std::to_string(named) + " of " + std::to_string(all) + " weights";
    }
  }

  void Clone(ReplicaCheck* check) {
    const std::shared_ptr<Layer> layer = make_();
    const Tensors before = Clones(WeightsOf(*layer));
    const auto copy = std::dynamic_pointer_cast<Layer>(layer->clone());
    const at::NoGradGuard no_grad;
    for (const at::Tensor& weight : WeightsOf(*layer)) weight.zero_();
    Compare(ErrorOf(WeightsOf(*copy), before), 0, "the copy has other weights", check);
  }

  void SaveLoad(ReplicaCheck* check) {
    const std::shared_ptr<Layer> layer = make_(), loaded = make_();
    std::stringstream stream;
    torch::save(layer, stream);
    std::shared_ptr<Layer> into = loaded;
    torch::load(into, stream);
    Compare(ErrorOf(WeightsOf(*loaded), WeightsOf(*layer)), 0, "the loaded layer has other weights",
            check);
  }

  // LibTorch's data-parallel replicas: copies whose gradients go to the original's parameters.
  void Replicate(ReplicaCheck* check) {
    const std::shared_ptr<Layer> layer = make_();
    const Tensors joined = JoinedGradients(*layer);
    const auto replicas =
        torch::nn::parallel::replicate<Layer>(layer, {at::Device(at::kCPU), at::Device(at::kCPU)});
    const at::Tensor y =
        at::cat({replicas[0]->forward(Half(x_, 0)), replicas[1]->forward(Half(x_, 1))});
    torch::autograd::backward({y}, {dy_});
    Compare(ErrorOf(GradientsOf(WeightsOf(*layer)), joined), Tolerance(problem_),
            "the gradients are not those of the joined batch", check);
  }

  // One step of one of two processes; what the exchange alone took.
  int64_t Step(Layer& layer, ProcessGroup& group, int rank) const {
    Train(layer, Half(x_, rank), Half(dy_, rank));
    const Clock::time_point start = Clock::now();
    // A framework exchanges the gradients of what it knows as parameters.
    group.AllReduce(GradientsOf(layer.parameters()));
    return NanosecondsSince(start);
  }

  void Processes(const std::string& rendezvous, ReplicaCheck* check) {
    const std::shared_ptr<Layer> layer = make_();
    const pid_t parent = getpid(), other = fork();
    if (other < 0) throw std::runtime_error("no second process could be made");
    if (other == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      try {
        ProcessGroup group(rendezvous, 1, 2);
        for (int64_t step = 0; step <= steps_; ++step) Step(*layer, group, 1);
      } catch (const std::exception&) {
        _exit(1);  // The first process sees that this one is gone.
      }
      _exit(0);
    }
    Tensors summed;
    Exchange& exchange = findings_.exchange;
    std::vector<int64_t> step_ns, exchange_ns;
    {
      ProcessGroup group(rendezvous, 0, 2);
      const std::optional<Traffic> before = TcpTraffic();
      Step(*layer, group, 0);
      const std::optional<Traffic> after = TcpTraffic();
      summed = Clones(GradientsOf(WeightsOf(*layer)));
      if (before && after) exchange.sent_bytes = after->sent_bytes - before->sent_bytes;
      for (int64_t step = 0; step < steps_; ++step) {
        const Clock::time_point start = Clock::now();
        exchange_ns.push_back(Step(*layer, group, 0));
        step_ns.push_back(NanosecondsSince(start));
      }
    }
    int status = 0;
    waitpid(other, &status, 0);
    for (const at::Tensor& gradient : summed) exchange.gradient_bytes += gradient.nbytes();
    exchange.step_ns = Median(step_ns);
    exchange.exchange_ns = Median(exchange_ns);
    const Tensors joined = JoinedGradients(*layer);
    std::vector<int64_t> joined_ns;
    for (int64_t step = 0; step < steps_; ++step) {
      const Clock::time_point start = Clock::now();
      Train(*layer, x_, dy_);
      joined_ns.push_back(NanosecondsSince(start));
    }
    exchange.joined_ns = Median(joined_ns);
    Compare(ErrorOf(summed, joined), Tolerance(problem_),
            "the gradients are not those of the joined batch", check);
  }

  std::function<std::shared_ptr<Layer>()> make_;
  const LinearVariant& variant_;
  LinearProblem problem_;
  int64_t steps_;
  at::Tensor x_, dy_;
  ReplicaFindings findings_;
};

}  // namespace

const char* Name(Keeping keeping) {
  return keeping == Keeping::kRegistered ? "registered" : "plain";
}

ReplicaFindings CheckReplicas(const LinearVariant& variant, const LinearProblem& problem,
                              Keeping keeping, uint64_t seed, int64_t steps,
                              const std::string& rendezvous) {
  at::set_num_threads(1);
  torch::manual_seed(seed);
  if (variant.is_dense() || keeping == Keeping::kPlain) {
    return Checks<BareLayerImpl>(
               [&] { return std::make_shared<BareLayerImpl>(variant, problem, keeping); }, variant,
               problem, seed, steps)
        .Run(rendezvous);
  }
  return Checks<TtLinearImpl>(
             [&] {
               return std::make_shared<TtLinearImpl>(
                   problem.shape,
                   TtLinearOptions().variant(variant.name()).dtype(ScalarTypeOf(problem.dtype)));
             },
             variant, problem, seed, steps)
      .Run(rendezvous);
}

}  // namespace ttbench
