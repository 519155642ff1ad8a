// One step of the decoder as nngraph runs it, as data: operations in order, the buffers they write,
// and what each of them reads, in the forward and in the backward.
//
// In Torch7 every module owns its output and a gradInput for each of its inputs, and nngraph sums
// the gradients of a value that is read more than once in a buffer of its own. Cloning the decoder
// once per target step multiplies all of these by the number of steps. LibTorch's autograd does
// not work so: this is an emulation of the program that the threads measured (harvardnlp/
// seq2seq-attn: nn.Linear, nn.MM, nn.Sum, nn.SoftMax, nn.JoinTable, ... under nn.gModule).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention/problem.h"

namespace ttbench {

using Sizes = std::vector<int64_t>;

enum class OpKind {
  kLinear,     // [B, I] -> [B, O], y = x W^T (+ bias)
  kIdentity,   // where a nested graph takes an input: no output and no gradInput of its own
  kReplicate,  // a view with one more dimension of size 1; its gradInput is a copy
  kMatMul,     // batched
  kSum,        // over a dimension of size 1, which goes
  kSoftMax,    // over the last dimension
  kJoin,       // two inputs along the last dimension
  kTanh,
  kSigmoid,
  kMul,    // two inputs, elementwise
  kAdd,    // two inputs
  kSplit,  // [B, 4 H] -> four views [B, H]; its gradInput is one buffer
};
const char* Name(OpKind kind);

enum class Role {
  kOutput,     // what a module computes
  kGradInput,  // a module's gradient of one of its inputs
  kGradSum,    // nngraph's sum of the gradients of a value that has several readers
};

struct Buffer {
  std::string name;  // "mm1.gradInput[1]"
  Role role;
  int op;  // Its operation; of a kGradSum the operation that made the value, -1 for a step input.
  Sizes sizes;
  int64_t elements() const;
};

// Something that operations read: a step input or an operation's output.
struct Value {
  std::string name;
  Sizes sizes;
  int op = -1;        // That makes it; -1: a step input.
  int buffer = -1;    // That holds it; -1: a step input that no step's buffer holds.
  int previous = -1;  // Of a step input: the value of the step before that it is, from step 2 on.
  int next = -1;      // The step input that it becomes in the step after.
  bool is_result = false;     // The caller reads it after the forward, and gives its gradient.
  bool grad_is_kept = false;  // Of a step input: its gradient's buffer is the caller's result.
  int grad_sum = -1;          // The buffer that sums its gradients, if there are several.
  // (operation, which of its inputs), in the order in which the backward meets them.
  std::vector<std::pair<int, int>> readers;

  // Whether a part of its gradient comes from outside the step: from the caller, or from the step
  // after.
  bool has_outer_gradient() const { return is_result || next >= 0; }
};

struct Operation {
  OpKind kind;
  std::string name;
  std::vector<int> inputs;       // Values.
  std::vector<int> outputs;      // Values; one but for kSplit.
  int output_buffer = -1;        // -1: a view of its input.
  std::vector<int> grad_inputs;  // Buffers, one for each input; one in all for kSplit.
  int weight = -1, bias = -1;    // Of kLinear: parameters.
};

// What an action reads: a buffer of this step (back = 0), or of the step before (1).
struct Read {
  int buffer;
  int back;
};

// An operation, in one direction; or, where op is -1, what becomes of a value's gradients: their
// sum (with a write), or, of a step input's, its delivery to the step before or to the caller.
struct Action {
  int op = -1;
  int value = -1;
  bool backward = false;
  std::vector<Read> reads;
  std::vector<int> writes;
};

struct StepGraph {
  std::vector<Buffer> buffers;
  std::vector<Value> values;
  std::vector<Operation> ops;
  std::vector<Sizes> parameters;  // Weights [O, I] and biases [O].
  // In the order in which a step runs them.
  std::vector<Action> forward, backward;
  int context = -1, result = -1;  // Values.
  // Buffers that a caller reads: after the forward of all steps, after the backward of all.
  std::vector<int> read_after_forward, read_after_backward;

  // The gradients of a value that its readers in this step compute.
  std::vector<int> Gradients(int value) const;
  // The buffer in which they end up: their sum, or the only one; none where all comes from outside.
  std::vector<int> GradientBuffers(int value) const;
};

// The attention alone: step inputs context [B, L, H] and h [B, H]. Parameters W_a, W_c.
StepGraph AttentionStep(int64_t batch, int64_t source_len, int64_t hidden);

// The whole decoder: step inputs context, word vector, attention of the step before, and c and h of
// each layer of the step before. Parameters: W_i2h [4H, I], b [4H] and W_h2h [4H, H] of each layer,
// W_a, W_c. Gates are in the order in, forget, out, write. The word vector stands for the look-up
// table's output; there is no dropout.
StepGraph DecoderStep(int64_t batch, int64_t source_len, int64_t hidden, int64_t layers,
                      int64_t word_size);

// A step of the encoder: the same LSTM without input feeding and attention.
StepGraph EncoderStep(int64_t batch, int64_t hidden, int64_t layers, int64_t word_size);

// The step of a problem.
StepGraph StepOf(const AttentionProblem& problem);

}  // namespace ttbench
