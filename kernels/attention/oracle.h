// The reference for attention: a decoder's attention over a sequence and its gradients in float64,
// in plain loops, independent of LibTorch and of every variant. The whole decoder too.
#pragma once

#include <cstdint>
#include <vector>

namespace ttbench {

// Row-major throughout. `rows` are rows of the batch, which do not see each other.
struct AttentionOracleInputs {
  int64_t rows = 0, source_len = 0, target_len = 0, hidden = 0;
  int64_t layers = 0;                        // LSTM layers; 0: the attention alone.
  int64_t word_size = 0;                     // With layers.
  bool additive = false;                     // Never with layers.
  std::vector<double> context;               // [rows, L, H]
  std::vector<double> steps;                 // [rows, T, H or word_size]
  std::vector<std::vector<double>> initial;  // With layers, each [rows, H]; see AttentionInputs.
  std::vector<std::vector<double>> parameters;
  std::vector<double> dy;  // [rows, T, H]; empty: no gradients.
};

struct AttentionOracleResult {
  std::vector<double> y;  // [rows, T, H]
  // Empty without dy. In the forms of the inputs; parameters' are summed over the rows.
  std::vector<double> dcontext, dsteps;
  std::vector<std::vector<double>> dinitial, dparameters;
};

AttentionOracleResult EvaluateAttentionOracle(const AttentionOracleInputs& inputs);

}  // namespace ttbench
