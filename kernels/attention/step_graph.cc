#include "kernels/attention/step_graph.h"

#include <algorithm>
#include <utility>

#include "kernels/shape.h"

namespace ttbench {
namespace {

class Builder {
 public:
  int Input(const std::string& name, Sizes sizes) {
    Value value;
    value.name = name;
    value.sizes = std::move(sizes);
    graph_.values.push_back(std::move(value));
    return static_cast<int>(graph_.values.size()) - 1;
  }
  int Parameter(Sizes sizes) {
    graph_.parameters.push_back(std::move(sizes));
    return static_cast<int>(graph_.parameters.size()) - 1;
  }

  int Linear(const std::string& name, int x, int64_t out, bool with_bias = false) {
    const Sizes in = graph_.values[x].sizes;
    const int y = Op(OpKind::kLinear, name, {x}, {in[0], out});
    graph_.ops.back().weight = Parameter({out, in[1]});
    if (with_bias) graph_.ops.back().bias = Parameter({out});
    return y;
  }
  int Op(OpKind kind, const std::string& name, std::vector<int> inputs, Sizes sizes,
         bool is_view = false) {
    return Add(kind, name, std::move(inputs), {std::move(sizes)}, is_view).front();
  }
  std::vector<int> Split4(const std::string& name, int x) {
    const Sizes in = graph_.values[x].sizes;
    return Add(OpKind::kSplit, name, {x}, std::vector<Sizes>(4, {in[0], in[1] / 4}), true);
  }
  // An LSTM over x; the top layer's state h.
  int Lstm(int x, int64_t layers, int64_t hidden) {
    const int64_t batch = graph_.values[x].sizes[0];
    const Sizes state{batch, hidden}, gates{batch, 4 * hidden};
    for (int64_t n = 1; n <= layers; ++n) {
      const std::string layer = "lstm" + std::to_string(n) + ".";
      const int prev_c = Input(layer + "prev_c", state);
      const int prev_h = Input(layer + "prev_h", state);
      const int i2h = Linear(layer + "i2h", x, 4 * hidden, /*with_bias=*/true);
      const int h2h = Linear(layer + "h2h", prev_h, 4 * hidden);
      const int sums = Op(OpKind::kAdd, layer + "all_input", {i2h, h2h}, gates);
      const std::vector<int> parts = Split4(layer + "split", sums);
      const int in = Op(OpKind::kSigmoid, layer + "in_gate", {parts[0]}, state);
      const int forget = Op(OpKind::kSigmoid, layer + "forget_gate", {parts[1]}, state);
      const int out = Op(OpKind::kSigmoid, layer + "out_gate", {parts[2]}, state);
      const int write = Op(OpKind::kTanh, layer + "write", {parts[3]}, state);
      const int kept = Op(OpKind::kMul, layer + "kept", {forget, prev_c}, state);
      const int added = Op(OpKind::kMul, layer + "added", {in, write}, state);
      const int c = Op(OpKind::kAdd, layer + "c", {kept, added}, state);
      const int tanh_c = Op(OpKind::kTanh, layer + "tanh_c", {c}, state);
      const int h = Op(OpKind::kMul, layer + "h", {out, tanh_c}, state);
      Carry(c, prev_c);
      Carry(h, prev_h);
      x = h;
    }
    return x;
  }
  // `from` of one step is the step input `input` of the next.
  void Carry(int from, int input) {
    graph_.values[from].next = input;
    graph_.values[input].previous = from;
  }

  // The attention over `context` from state h; returns the attentional state.
  int Attention(int context, int h) {
    const Sizes sizes = graph_.values[context].sizes;
    const int64_t b = sizes[0], l = sizes[1], n = sizes[2];
    graph_.context = context;
    int q = Linear("linear_q", h, n);
    q = Op(OpKind::kReplicate, "replicate_q", {q}, {b, n, 1}, true);
    int attn = Op(OpKind::kMatMul, "mm1", {context, q}, {b, l, 1});
    attn = Op(OpKind::kSum, "sum1", {attn}, {b, l});
    attn = Op(OpKind::kSoftMax, "softmax", {attn}, {b, l});
    attn = Op(OpKind::kReplicate, "replicate_attn", {attn}, {b, 1, l}, true);
    int c = Op(OpKind::kMatMul, "mm2", {attn, context}, {b, 1, n});
    c = Op(OpKind::kSum, "sum2", {c}, {b, n});
    c = Op(OpKind::kJoin, "join", {c, h}, {b, 2 * n});
    c = Linear("linear_c", c, n);
    return Op(OpKind::kTanh, "tanh", {c}, {b, n});
  }

  // Derives the readers, the gradients' sums, the schedule and what each action reads.
  StepGraph Finish(int result) {
    graph_.result = result;
    graph_.values[result].is_result = true;
    for (int op = static_cast<int>(graph_.ops.size()) - 1; op >= 0; --op) {
      const Operation& o = graph_.ops[op];
      for (size_t i = 0; i < o.inputs.size(); ++i)
        graph_.values[o.inputs[i]].readers.emplace_back(op, static_cast<int>(i));
    }
    for (Value& value : graph_.values) {
      if (value.readers.size() + value.has_outer_gradient() > 1) {
        value.grad_sum =
            NewBuffer("sum of d(" + value.name + ")", Role::kGradSum, value.op, value.sizes);
      }
    }
    for (Operation& op : graph_.ops) {
      if (op.kind == OpKind::kIdentity) op.grad_inputs = graph_.GradientBuffers(op.outputs[0]);
    }
    for (size_t op = 0; op < graph_.ops.size(); ++op) graph_.forward.push_back(Forward(op));
    for (int op = static_cast<int>(graph_.ops.size()) - 1; op >= 0; --op) {
      for (int output : graph_.ops[op].outputs) AddSum(output);
      if (graph_.ops[op].kind != OpKind::kIdentity) graph_.backward.push_back(Backward(op));
    }
    for (int v = 0; v < static_cast<int>(graph_.values.size()); ++v) {
      const Value& value = graph_.values[v];
      if (value.is_result) graph_.read_after_forward.push_back(value.buffer);
      if (value.op >= 0) continue;
      AddSum(v);
      Action delivery;
      delivery.value = v;
      delivery.backward = true;
      for (int buffer : graph_.GradientBuffers(v)) {
        delivery.reads.push_back({buffer, 0});
        if (value.grad_is_kept) graph_.read_after_backward.push_back(buffer);
      }
      graph_.backward.push_back(std::move(delivery));
    }
    return std::move(graph_);
  }

  StepGraph& graph() { return graph_; }

 private:
  int NewBuffer(std::string name, Role role, int op, Sizes sizes) {
    graph_.buffers.push_back({std::move(name), role, op, std::move(sizes)});
    return static_cast<int>(graph_.buffers.size()) - 1;
  }

  std::vector<int> Add(OpKind kind, const std::string& name, std::vector<int> inputs,
                       std::vector<Sizes> sizes, bool is_view) {
    const int op = static_cast<int>(graph_.ops.size());
    Operation o{kind, name, std::move(inputs), {}, -1, {}, -1, -1};
    if (!is_view) o.output_buffer = NewBuffer(name + ".output", Role::kOutput, op, sizes.front());
    for (size_t i = 0; i < o.inputs.size(); ++i) {
      const std::string which = o.inputs.size() > 1 ? "[" + std::to_string(i + 1) + "]" : "";
      if (kind == OpKind::kIdentity) continue;
      o.grad_inputs.push_back(NewBuffer(name + ".gradInput" + which, Role::kGradInput, op,
                                        graph_.values[o.inputs[i]].sizes));
    }
    for (Sizes& size : sizes) {
      Value value;
      value.name = name;
      value.sizes = std::move(size);
      value.op = op;
      value.buffer = is_view ? graph_.values[o.inputs[0]].buffer : o.output_buffer;
      o.outputs.push_back(static_cast<int>(graph_.values.size()));
      graph_.values.push_back(std::move(value));
    }
    graph_.ops.push_back(std::move(o));
    return graph_.ops.back().outputs;
  }

  // Where a value lies when an operation reads it.
  void AddRead(int value, std::vector<Read>* reads) const {
    const Value& v = graph_.values[value];
    if (v.buffer >= 0) reads->push_back({v.buffer, 0});
    if (v.previous >= 0) reads->push_back({graph_.values[v.previous].buffer, 1});
  }

  Action Forward(size_t op) const {
    const Operation& o = graph_.ops[op];
    Action action;
    action.op = static_cast<int>(op);
    for (int input : o.inputs) AddRead(input, &action.reads);
    if (o.output_buffer >= 0) action.writes = {o.output_buffer};
    return action;
  }

  Action Backward(int op) const {
    const Operation& o = graph_.ops[op];
    Action action;
    action.op = op;
    action.backward = true;
    for (int output : o.outputs) {
      for (int buffer : graph_.GradientBuffers(output)) action.reads.push_back({buffer, 0});
    }
    switch (o.kind) {
      case OpKind::kLinear:  // The weight's gradient.
      case OpKind::kMatMul:
      case OpKind::kMul:
        for (int input : o.inputs) AddRead(input, &action.reads);
        break;
      case OpKind::kSoftMax:
      case OpKind::kTanh:
      case OpKind::kSigmoid:
        AddRead(o.outputs.front(), &action.reads);
        break;
      case OpKind::kIdentity:
      case OpKind::kReplicate:
      case OpKind::kSum:
      case OpKind::kJoin:
      case OpKind::kAdd:
      case OpKind::kSplit:
        break;
    }
    action.writes = o.grad_inputs;
    return action;
  }

  void AddSum(int value) {
    if (graph_.values[value].grad_sum < 0) return;
    Action action;
    action.value = value;
    action.backward = true;
    for (int buffer : graph_.Gradients(value)) action.reads.push_back({buffer, 0});
    action.writes = {graph_.values[value].grad_sum};
    graph_.backward.push_back(std::move(action));
  }

  StepGraph graph_;
};

}  // namespace

const char* Name(OpKind kind) {
  switch (kind) {
    case OpKind::kLinear:
      return "Linear";
    case OpKind::kIdentity:
      return "Identity";
    case OpKind::kReplicate:
      return "Replicate";
    case OpKind::kMatMul:
      return "MM";
    case OpKind::kSum:
      return "Sum";
    case OpKind::kSoftMax:
      return "SoftMax";
    case OpKind::kJoin:
      return "JoinTable";
    case OpKind::kTanh:
      return "Tanh";
    case OpKind::kSigmoid:
      return "Sigmoid";
    case OpKind::kMul:
      return "CMulTable";
    case OpKind::kAdd:
      return "CAddTable";
    case OpKind::kSplit:
      return "SplitTable";
  }
  return "";
}

int64_t Buffer::elements() const { return Product(sizes); }

std::vector<int> StepGraph::GradientBuffers(int value) const {
  return values[value].grad_sum >= 0 ? std::vector<int>{values[value].grad_sum} : Gradients(value);
}

std::vector<int> StepGraph::Gradients(int value) const {
  std::vector<int> buffers;
  for (const auto& [op, input] : values[value].readers)
    buffers.push_back(ops[op].grad_inputs[input]);
  return buffers;
}

StepGraph AttentionStep(int64_t batch, int64_t source_len, int64_t hidden) {
  Builder build;
  const int context = build.Input("context", {batch, source_len, hidden});
  const int h = build.Input("h", {batch, hidden});
  build.graph().values[h].grad_is_kept = true;
  return build.Finish(build.Attention(context, h));
}

StepGraph DecoderStep(int64_t batch, int64_t source_len, int64_t hidden, int64_t layers,
                      int64_t word_size) {
  Builder build;
  const int context = build.Input("context", {batch, source_len, hidden});
  const int word = build.Input("word", {batch, word_size});
  const int fed = build.Input("fed attention", {batch, hidden});
  int x = build.Op(OpKind::kJoin, "feed_join", {word, fed}, {batch, word_size + hidden});
  x = build.Lstm(x, layers, hidden);
  x = build.Op(OpKind::kIdentity, "h", {x}, {batch, hidden}, /*is_view=*/true);
  const int y = build.Attention(context, x);
  build.Carry(y, fed);
  return build.Finish(y);
}

StepGraph EncoderStep(int64_t batch, int64_t hidden, int64_t layers, int64_t word_size) {
  Builder build;
  const int word = build.Input("word", {batch, word_size});
  return build.Finish(build.Lstm(word, layers, hidden));
}

StepGraph StepOf(const AttentionProblem& problem) {
  return problem.layers == 0 ? AttentionStep(problem.batch, problem.source_len, problem.hidden)
                             : DecoderStep(problem.batch, problem.source_len, problem.hidden,
                                           problem.layers, kWordVectorSize);
}

}  // namespace ttbench
