// Variants that go wrong, one in each way a sweep must survive. Each computes the layer as
// `sequential` does and has its cost model, but for its fault:
//
//   test-wrong       a result off by a relative 1e-3
//   test-nan         a NaN among the results
//   test-mismodelled keeps a copy of x that its cost model does not know
//   test-crash       SIGSEGV, from batch 2 on
//   test-abort       abort()
//   test-exit        exit(7)
//   test-throws      an exception
//   test-hang        never returns
//   test-hungry      from batch 2 on asks for more memory than any machine has
//   test-slow        5 ms longer
//   test-alias       gives x itself for y
//   test-leak        keeps a copy of each x it has seen
//   test-gradient    twice the gradient of core 2
//   test-detached    a result without history
//   test-unmodelled  no cost model but for y
//   test-bad-model   a cost model that reshapes to another number of elements
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/variant.h"

namespace ttbench {
namespace {

using Compute = std::function<at::Tensor(const LinearVariant& sequential, const TtShape& shape,
                                         const at::Tensor& x, at::TensorList cores)>;
using Model =
    std::function<cost::Tensor(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x)>;

class Faulty : public LinearVariant {
 public:
  // Without a model, the cost is that of `sequential`.
  Faulty(std::string name, Compute compute, Model model = nullptr)
      : name_(std::move(name)), compute_(std::move(compute)), model_(std::move(model)) {}

  std::string name() const override { return name_; }
  bool is_trusted() const override { return false; }
  std::string Algorithm(const LinearProblem& problem) const override {
    return Sequential().Algorithm(problem);
  }
  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    return compute_(Sequential(), shape, x, cores);
  }
  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    return model_ ? model_(tape, shape, x) : Sequential().Trace(tape, shape, x, cores);
  }

 private:
  static const LinearVariant& Sequential() { return *FindLinearVariant("sequential"); }

  std::string name_;
  Compute compute_;
  Model model_;
};

// The fault strikes before the layer is computed.
Compute First(const std::function<void(int64_t batch)>& fault) {
  return [fault](const LinearVariant& sequential, const TtShape& shape, const at::Tensor& x,
                 at::TensorList cores) {
    fault(x.size(0));
    return sequential.Forward(shape, x, cores);
  };
}

at::Tensor ComputeWrongly(const LinearVariant& sequential, const TtShape& shape,
                          const at::Tensor& x, at::TensorList cores) {
  at::Tensor y = sequential.Forward(shape, x, cores);
  y.detach().mul_(1 + 1e-3);
  return y;
}

at::Tensor ComputeNan(const LinearVariant& sequential, const TtShape& shape, const at::Tensor& x,
                      at::TensorList cores) {
  at::Tensor y = sequential.Forward(shape, x, cores);
  y.detach().mul_(std::nan(""));
  return y;
}

at::Tensor KeepACopy(const LinearVariant& sequential, const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) {
  return sequential.Forward(shape, x.clone(), cores);
}

at::Tensor GiveX(const LinearVariant&, const TtShape&, const at::Tensor& x, at::TensorList) {
  return x;
}

at::Tensor Leak(const LinearVariant& sequential, const TtShape& shape, const at::Tensor& x,
                at::TensorList cores) {
  static auto* kept = new std::vector<at::Tensor>;
  kept->push_back(x.detach().clone());
  return sequential.Forward(shape, x, cores);
}

// The second core's value, with twice its gradient.
at::Tensor DoubleAGradient(const LinearVariant& sequential, const TtShape& shape,
                           const at::Tensor& x, at::TensorList cores) {
  std::vector<at::Tensor> changed = cores.vec();
  changed[1] = cores[1].detach().add(cores[1].sub(cores[1].detach()), 2);
  return sequential.Forward(shape, x, changed);
}

at::Tensor Detach(const LinearVariant& sequential, const TtShape& shape, const at::Tensor& x,
                  at::TensorList cores) {
  return sequential.Forward(shape, x, cores).detach();
}

at::Tensor ComputeRightly(const LinearVariant& sequential, const TtShape& shape,
                          const at::Tensor& x, at::TensorList cores) {
  return sequential.Forward(shape, x, cores);
}

cost::Tensor ModelOnlyY(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x) {
  return tape.Empty("y", {x.size(0), shape.out_features()});
}

cost::Tensor ModelNonsense(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x) {
  return tape.Reshape(x, {x.size(0), shape.out_features() + 1}, "y");
}

void Crash(int64_t batch) {
  if (batch >= 2) std::raise(SIGSEGV);
}

void Hang(int64_t) {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

// 2^47 bytes: the whole address space of a process, so that it fails even where the kernel promises
// memory it does not have.
void TakeAllMemory(int64_t batch) {
  if (batch >= 2) at::empty({int64_t{1} << 47}, at::kByte);
}

void Abort(int64_t) { std::abort(); }

void Exit(int64_t) { std::exit(7); }

void Throw(int64_t) { throw std::runtime_error("the layer gave up"); }

void Dawdle(int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

const RegisterLinearVariant kWrong(std::make_unique<Faulty>("test-wrong", ComputeWrongly));
const RegisterLinearVariant kNan(std::make_unique<Faulty>("test-nan", ComputeNan));
const RegisterLinearVariant kMismodelled(std::make_unique<Faulty>("test-mismodelled", KeepACopy));
const RegisterLinearVariant kCrash(std::make_unique<Faulty>("test-crash", First(Crash)));
const RegisterLinearVariant kAbort(std::make_unique<Faulty>("test-abort", First(Abort)));
const RegisterLinearVariant kExit(std::make_unique<Faulty>("test-exit", First(Exit)));
const RegisterLinearVariant kThrows(std::make_unique<Faulty>("test-throws", First(Throw)));
const RegisterLinearVariant kHang(std::make_unique<Faulty>("test-hang", First(Hang)));
const RegisterLinearVariant kHungry(std::make_unique<Faulty>("test-hungry", First(TakeAllMemory)));
const RegisterLinearVariant kAlias(std::make_unique<Faulty>("test-alias", GiveX));
const RegisterLinearVariant kLeak(std::make_unique<Faulty>("test-leak", Leak));
const RegisterLinearVariant kGradient(std::make_unique<Faulty>("test-gradient", DoubleAGradient));
const RegisterLinearVariant kDetached(std::make_unique<Faulty>("test-detached", Detach));
const RegisterLinearVariant kUnmodelled(std::make_unique<Faulty>("test-unmodelled", ComputeRightly,
                                                                 ModelOnlyY));
const RegisterLinearVariant kBadModel(std::make_unique<Faulty>("test-bad-model", ComputeRightly,
                                                               ModelNonsense));
const RegisterLinearVariant kSlow(std::make_unique<Faulty>("test-slow", First(Dawdle)));

}  // namespace
}  // namespace ttbench
