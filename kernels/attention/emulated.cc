// The decoder as nngraph ran it, emulated: explicit buffers for each operation's output and
// gradInputs, cloned once per target step, where the step graph says (step_graph.h). LibTorch's
// autograd does not have this waste; these variants exist to measure what the threads measured.
//
//   clones           every buffer of every step its own, alive for the whole sequence
//   clones-reuse     a module's gradInput takes its output's storage where sizes agree and it is
//                    safe (reuseMem)
//   prealloc-mm      the gradInputs of the two products are shared by all clones (the first patch)
//   prealloc-all     so are all module buffers that nothing after their step reads (its sequel)
//   prealloc-proven  so are nngraph's own sums of gradients, which neither patch reached
//
// A buffer is allocated when it is first written, and kept from one sequence to the next, as in
// Torch7, until Release().
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/add.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sigmoid_backward.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/step_graph.h"
#include "kernels/attention/storage.h"
#include "kernels/attention/variant.h"

namespace ttbench {
namespace {

// What an operation works on, in one step. Gradients of parameters are added to.
template <typename Tensor>
struct Operands {
  std::vector<Tensor> inputs, grad_inputs, output_grads;
  Tensor output;
  Tensor weight, bias, d_weight, d_bias, ones;
};

// The operations on tensors. All write into tensors that are there, and allocate nothing.
class RealLibrary {
 public:
  using Tensor = at::Tensor;
  // Gradients are ours to compute.
  struct Guard : at::NoGradGuard {
    explicit Guard(const RealLibrary*) {}
  };

  explicit RealLibrary(at::TensorOptions options) : options_(options) {}
  const RealLibrary* guarded() const { return this; }

  Tensor Empty(const std::string&, const Sizes& sizes) const { return at::empty(sizes, options_); }
  Tensor Zeros(const std::string&, const Sizes& sizes) const {
    return at::empty(sizes, options_).zero_();
  }
  Tensor Ones(const std::string&, const Sizes& sizes) const {
    return at::empty(sizes, options_).fill_(1);
  }
  Tensor View(const Tensor& a, const Sizes& sizes) const { return a.view(sizes); }
  // Columns [first, first + count).
  Tensor Part(const Tensor& a, int64_t first, int64_t count) const {
    return a.narrow(-1, first, count);
  }
  void Copy(Tensor& to, const Tensor& from) const { to.copy_(from); }
  void AddTo(Tensor& to, const Tensor& from) const { to.add_(from); }
  void SetGradient(const Tensor& leaf, const Tensor& gradient) const {
    leaf.mutable_grad() = gradient;
  }

  void Forward(OpKind kind, Operands<Tensor>& o) const {
    const std::vector<Tensor>& in = o.inputs;
    switch (kind) {
      case OpKind::kLinear:
        at::mm_out(o.output, in[0], o.weight.t());
        if (o.bias.defined()) o.output.add_(o.bias);
        break;
      case OpKind::kMatMul:
        at::bmm_out(o.output, in[0], in[1]);
        break;
      case OpKind::kSum:
        o.output.view(in[0].sizes()).copy_(in[0]);
        break;
      case OpKind::kSoftMax:
        at::_softmax_out(o.output, in[0], 1, false);
        break;
      case OpKind::kJoin:
        o.output.narrow(-1, 0, in[0].size(-1)).copy_(in[0]);
        o.output.narrow(-1, in[0].size(-1), in[1].size(-1)).copy_(in[1]);
        break;
      case OpKind::kTanh:
        at::tanh_out(o.output, in[0]);
        break;
      case OpKind::kSigmoid:
        at::sigmoid_out(o.output, in[0]);
        break;
      case OpKind::kMul:
        at::mul_out(o.output, in[0], in[1]);
        break;
      case OpKind::kAdd:
        at::add_out(o.output, in[0], in[1]);
        break;
      case OpKind::kIdentity:
      case OpKind::kReplicate:
      case OpKind::kSplit:
        break;  // Views.
    }
  }

  void Backward(OpKind kind, Operands<Tensor>& o) const {
    const std::vector<Tensor>& in = o.inputs;
    std::vector<Tensor>& din = o.grad_inputs;
    const Tensor& dout = o.output_grads[0];
    switch (kind) {
      case OpKind::kLinear:
        at::mm_out(din[0], dout, o.weight);
        o.d_weight.addmm_(dout.t(), in[0]);
        if (o.bias.defined()) o.d_bias.addmv_(dout.t(), o.ones);
        break;
      case OpKind::kMatMul:
        at::bmm_out(din[0], dout, in[1].transpose(1, 2));
        at::bmm_out(din[1], in[0].transpose(1, 2), dout);
        break;
      case OpKind::kReplicate:
      case OpKind::kSum:
        din[0].copy_(dout.view(din[0].sizes()));
        break;
      case OpKind::kSoftMax:
        at::_softmax_backward_data_out(din[0], dout, o.output, 1, o.output.scalar_type());
        break;
      case OpKind::kJoin:
        din[0].copy_(dout.narrow(-1, 0, din[0].size(-1)));
        din[1].copy_(dout.narrow(-1, din[0].size(-1), din[1].size(-1)));
        break;
      case OpKind::kTanh:
        at::tanh_backward_out(din[0], dout, o.output);
        break;
      case OpKind::kSigmoid:
        at::sigmoid_backward_out(din[0], dout, o.output);
        break;
      case OpKind::kMul:
        at::mul_out(din[0], dout, in[1]);
        at::mul_out(din[1], dout, in[0]);
        break;
      case OpKind::kAdd:
        din[0].copy_(dout);
        din[1].copy_(dout);
        break;
      case OpKind::kSplit:
        for (size_t i = 0; i < o.output_grads.size(); ++i) {
          const int64_t width = o.output_grads[i].size(-1);
          din[0].narrow(-1, static_cast<int64_t>(i) * width, width).copy_(o.output_grads[i]);
        }
        break;
      case OpKind::kIdentity:
        break;
    }
  }

 private:
  at::TensorOptions options_;
};

// The same on the tape: buffers, and the products' operations.
class TracedLibrary {
 public:
  using Tensor = cost::Tensor;
  using Guard = cost::Tape::NoGrad;

  explicit TracedLibrary(cost::Tape* tape) : tape_(tape) {}
  cost::Tape* guarded() const { return tape_; }

  Tensor Empty(const std::string& name, const Sizes& sizes) const {
    return tape_->Empty(name, sizes);
  }
  Tensor Zeros(const std::string& name, const Sizes& sizes) const { return Empty(name, sizes); }
  Tensor Ones(const std::string& name, const Sizes& sizes) const { return Empty(name, sizes); }
  Tensor View(const Tensor& a, const Sizes& sizes) const { return tape_->Reshape(a, sizes, ""); }
  Tensor Part(const Tensor& a, int64_t, int64_t) const { return a; }
  void Copy(Tensor&, const Tensor&) const {}
  void AddTo(Tensor&, const Tensor&) const {}
  void SetGradient(const Tensor& leaf, const Tensor& gradient) const {
    tape_->SetGradient(leaf, gradient);
  }
  void Forward(OpKind kind, Operands<Tensor>& o) const {
    if (kind == OpKind::kMul) tape_->AddFlops(o.output.numel());
    if (kind == OpKind::kLinear) tape_->AddFlops(2 * o.output.numel() * o.weight.size(1));
    if (kind == OpKind::kMatMul) tape_->AddFlops(2 * o.output.numel() * o.inputs[0].size(2));
  }
  // Two products of the forward's size.
  void Backward(OpKind kind, Operands<Tensor>& o) const {
    if (kind == OpKind::kMul) tape_->AddFlops(2 * o.inputs[0].numel());
    if (kind == OpKind::kLinear) tape_->AddFlops(4 * o.output_grads[0].numel() * o.weight.size(1));
    if (kind == OpKind::kMatMul)
      tape_->AddFlops(4 * o.output_grads[0].numel() * o.inputs[0].size(2));
  }

 private:
  cost::Tape* tape_;
};

template <typename Library>
class EmulatedPass : public AttentionPass<typename Library::Tensor> {
 public:
  using Tensor = typename Library::Tensor;

  EmulatedPass(Library library, StepGraph graph, StoragePlan plan,
               const AttentionInputs<Tensor>& inputs)
      : library_(library),
        graph_(std::move(graph)),
        plan_(std::move(plan)),
        leaves_(inputs),
        steps_(static_cast<int64_t>(inputs.steps.size())) {
    Release();
  }

  std::vector<Tensor> Forward() override {
    const typename Library::Guard guard(library_.guarded());
    for (int64_t step = 0; step < steps_; ++step) {
      for (const Action& action : graph_.forward) {
        const Operation& op = graph_.ops[action.op];
        Operands<Tensor> o = InputsOf(op, step);
        if (op.output_buffer >= 0) o.output = ValueOf(op.outputs[0], step);
        library_.Forward(op.kind, o);
      }
    }
    std::vector<Tensor> y;
    for (int64_t step = 0; step < steps_; ++step) y.push_back(ValueOf(graph_.result, step));
    return y;
  }

  void Backward(const std::vector<Tensor>&, const std::vector<Tensor>& dy) override {
    const typename Library::Guard guard(library_.guarded());
    std::vector<Tensor> d_parameters;
    bool has_bias = false;
    for (const Sizes& sizes : graph_.parameters) {
      d_parameters.push_back(library_.Zeros("gradient of a parameter", sizes));
      has_bias = has_bias || sizes.size() == 1;
    }
    const Sizes& context_sizes = graph_.values[graph_.context].sizes;
    Tensor d_context = library_.Zeros("gradient of the context", context_sizes);
    // nn.Linear sums a bias's gradient by a product with ones.
    Tensor ones;
    if (has_bias) ones = library_.Ones("ones", {context_sizes[0]});
    // What the step after gave to the values that it reads; at first nothing.
    std::vector<Tensor> carried(graph_.values.size());
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (graph_.values[v].next < 0) continue;
      carried[v] =
          library_.Zeros("carried d(" + graph_.values[v].name + ")", graph_.values[v].sizes);
    }

    for (int64_t step = steps_ - 1; step >= 0; --step) {
      // dy is the caller's; where a step reads y of the step before, both parts meet here.
      if (carried[graph_.result].defined()) library_.AddTo(carried[graph_.result], dy[step]);
      auto outer_gradient = [&](int value) {
        return carried[value].defined() ? carried[value] : dy[step];
      };
      auto gradient_of = [&](int value) {
        const std::vector<int> buffers = graph_.GradientBuffers(value);
        if (buffers.empty()) return outer_gradient(value);
        return library_.View(BufferOf(buffers.front(), step), graph_.values[value].sizes);
      };
      for (const Action& action : graph_.backward) {
        if (action.op >= 0) {
          const Operation& op = graph_.ops[action.op];
          Operands<Tensor> o = InputsOf(op, step);
          if (op.kind != OpKind::kSplit) o.output = ValueOf(op.outputs[0], step);
          for (int output : op.outputs) o.output_grads.push_back(gradient_of(output));
          for (int buffer : op.grad_inputs) o.grad_inputs.push_back(BufferOf(buffer, step));
          if (op.weight >= 0) o.d_weight = d_parameters[op.weight];
          if (op.bias >= 0) o.d_bias = d_parameters[op.bias];
          o.ones = ones;
          library_.Backward(op.kind, o);
          continue;
        }
        const Value& value = graph_.values[action.value];
        if (!action.writes.empty()) {
          Tensor sum = BufferOf(action.writes.front(), step);
          const std::vector<int> parts = graph_.Gradients(action.value);
          library_.Copy(sum, BufferOf(parts.front(), step));
          for (size_t i = 1; i < parts.size(); ++i) library_.AddTo(sum, BufferOf(parts[i], step));
          if (value.has_outer_gradient()) library_.AddTo(sum, outer_gradient(action.value));
          continue;
        }
        const Tensor gradient = gradient_of(action.value);
        if (action.value == graph_.context) {
          library_.AddTo(d_context, gradient);
        } else if (value.previous >= 0) {
          library_.Copy(carried[value.previous], gradient);
        } else if (value.grad_is_kept) {
          library_.SetGradient(leaves_.steps[step], gradient);
        } else {
          Tensor kept = library_.Empty("gradient of " + value.name, value.sizes);
          library_.Copy(kept, gradient);
          library_.SetGradient(leaves_.steps[step], kept);
        }
      }
    }
    for (size_t i = 0; i < d_parameters.size(); ++i)
      library_.SetGradient(leaves_.parameters[i], d_parameters[i]);
    library_.SetGradient(leaves_.context, d_context);
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      if (carried[v].defined())
        library_.SetGradient(leaves_.initial[InitialIndex(graph_.values[v].next)], carried[v]);
    }
  }

  void Release() override { storages_.assign(graph_.buffers.size(), std::vector<Tensor>(steps_)); }

 private:
  // The storage of a buffer in a step, as the buffer's sizes.
  Tensor BufferOf(int buffer, int64_t step) {
    const int place = plan_.place[buffer];
    Tensor& storage = storages_[place][plan_.shared[place] ? 0 : step];
    if (!storage.defined()) {
      storage = library_.Empty(graph_.buffers[place].name, graph_.buffers[place].sizes);
    }
    return library_.View(storage, graph_.buffers[buffer].sizes);
  }

  Tensor ValueOf(int value, int64_t step) {
    const Value& v = graph_.values[value];
    if (v.previous >= 0 && step > 0) return ValueOf(v.previous, step - 1);
    if (v.previous >= 0) return leaves_.initial[InitialIndex(value)];
    if (value == graph_.context) return leaves_.context;
    if (v.op < 0) return leaves_.steps[step];
    const Operation& op = graph_.ops[v.op];
    if (op.output_buffer >= 0) return library_.View(BufferOf(v.buffer, step), v.sizes);
    const Tensor input = ValueOf(op.inputs[0], step);
    if (op.kind != OpKind::kSplit) return library_.View(input, v.sizes);
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      if (op.outputs[i] != value) continue;
      return library_.Part(input, static_cast<int64_t>(i) * v.sizes[1], v.sizes[1]);
    }
    return input;
  }

  // The initial states are the step inputs that come from the step before, in order.
  size_t InitialIndex(int value) const {
    size_t index = 0;
    for (int v = 0; v < value; ++v) index += graph_.values[v].previous >= 0;
    return index;
  }

  Operands<Tensor> InputsOf(const Operation& op, int64_t step) {
    Operands<Tensor> o;
    for (int input : op.inputs) o.inputs.push_back(ValueOf(input, step));
    if (op.weight >= 0) o.weight = leaves_.parameters[op.weight];
    if (op.bias >= 0) o.bias = leaves_.parameters[op.bias];
    return o;
  }

  Library library_;
  StepGraph graph_;
  StoragePlan plan_;
  AttentionInputs<Tensor> leaves_;
  int64_t steps_;
  std::vector<std::vector<Tensor>> storages_;  // By place and step.
};

class Emulated : public AttentionVariant {
 public:
  using MakePlan = std::function<StoragePlan(const StepGraph&)>;
  Emulated(std::string name, std::string words, MakePlan make_plan)
      : name_(std::move(name)), words_(std::move(words)), make_plan_(std::move(make_plan)) {}

  std::string name() const override { return name_; }
  std::string Algorithm(const AttentionProblem&) const override {
    return "emulated nngraph: " + words_;
  }
  std::string WhyUnsupported(const AttentionProblem& problem) const override {
    AttentionProblem alone = problem;
    alone.layers = 0;
    return AttentionVariant::WhyUnsupported(alone);
  }
  std::unique_ptr<AttentionPass<at::Tensor>> NewPass(
      const AttentionProblem& problem, const AttentionInputs<at::Tensor>& inputs) const override {
    const at::Tensor& context = inputs.context;
    return NewPassOf(
        RealLibrary(at::TensorOptions().dtype(context.scalar_type()).device(context.device())),
        problem, inputs);
  }
  std::unique_ptr<AttentionPass<cost::Tensor>> NewTracedPass(
      cost::Tape& tape, const AttentionProblem& problem,
      const AttentionInputs<cost::Tensor>& inputs) const override {
    return NewPassOf(TracedLibrary(&tape), problem, inputs);
  }

 private:
  template <typename Library>
  std::unique_ptr<EmulatedPass<Library>> NewPassOf(
      Library library, const AttentionProblem& problem,
      const AttentionInputs<typename Library::Tensor>& inputs) const {
    StepGraph graph = StepOf(problem);
    StoragePlan plan = make_plan_(graph);
    return std::make_unique<EmulatedPass<Library>>(library, std::move(graph), std::move(plan),
                                                   inputs);
  }

  std::string name_, words_;
  MakePlan make_plan_;
};

const RegisterAttentionVariant kClones(std::make_unique<Emulated>(
    "clones", "every clone's buffers its own", [](const StepGraph& g) { return OwnStorage(g); }));
const RegisterAttentionVariant kReuse(
    std::make_unique<Emulated>("clones-reuse", "gradInput in output's storage",
                               [](const StepGraph& g) { return ReuseOutputs(g); }));
const RegisterAttentionVariant kProducts(std::make_unique<Emulated>(
    "prealloc-mm", "gradInputs of both products shared",
    [](const StepGraph& g) { return ShareAcrossSteps(g, ProductGradients(g)); }));
const RegisterAttentionVariant kModules(std::make_unique<Emulated>(
    "prealloc-all", "module buffers shared where nothing reads them later",
    [](const StepGraph& g) { return ShareAcrossSteps(g, ShareableModuleBuffers(g)); }));
const RegisterAttentionVariant kProven(std::make_unique<Emulated>(
    "prealloc-proven", "all buffers shared where nothing reads them later",
    [](const StepGraph& g) { return ShareAcrossSteps(g, ShareableBuffers(g)); }));

}  // namespace
}  // namespace ttbench
