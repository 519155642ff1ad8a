// What one attention cell computes.
//
// Global attention over a source of L states, for T decoder steps. With additive scores the second
// line is v . tanh(W_s context[b, l] + W_q h[t, b]) instead:
//
//   q[t, b]         = W_a h[t, b]                          [H]
//   score[t, b, l]  = context[b, l] . q[t, b]
//   attn[t, b]      = softmax over l of score[t, b]        [L]
//   c[t, b]         = sum over l of attn[t, b, l] context[b, l]
//   y[t, b]         = tanh(W_c [c[t, b]; h[t, b]])         [H]
//
// No mask and no scaling (Luong, Pham, Manning 2015, "general" scores). With layers > 0 the whole
// decoder runs: h[t, b] is the top state of an LSTM of that many layers, whose input is the word
// vector of step t beside y[t - 1, b] (input feeding).
#pragma once

#include <cstdint>
#include <string>

#include "kernels/problem.h"

namespace ttbench {

// Of the decoder's words, as in the thread's configuration.
inline constexpr int64_t kWordVectorSize = 500;

struct AttentionProblem {
  int64_t source_len = 1;  // L
  int64_t target_len = 1;  // T: decoder steps.
  int64_t hidden = 1;      // H
  int64_t layers = 0;      // LSTM layers of the whole decoder; 0: the attention alone.
  int64_t batch = 1;       // B
  Phase phase = Phase::kInference;
  DType dtype = DType::kFloat32;
  int64_t threads = 1;
  Device device = Device::kCpu;
  bool tf32 = false;  // As LinearProblem::tf32.

  // Elements of context, the tensor of which the emulated decoder keeps three a step.
  int64_t context_elements() const { return batch * source_len * hidden; }
};

// "L52-T52-H600"; with layers also "-N2".
std::string SizeName(const AttentionProblem& problem);

// The largest error, relative to the largest element of the result, that a correct variant may show
// against the float64 oracle. As for linear layers (kernels/problem.h): 1e-5 in float32 for a chain
// of few products; a gradient may be a sum over all steps and source states, and rounding n sums
// grows as sqrt(n) roundoffs. The decoder's steps are in series, and so are their errors.
double Tolerance(const AttentionProblem& problem);

}  // namespace ttbench
