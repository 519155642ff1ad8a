// What one cell of the Transformer-XL family computes: a segment of B sequences with a full memory,
// the loss of each token, and in training the gradients of all parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/problem.h"
#include "networks/transformer_xl/options.h"

namespace ttbench {

struct TransformerXlProblem {
  TransformerXlOptions network;
  int64_t batch = 1;  // B: sequences.
  Phase phase = Phase::kInference;
  DType dtype = DType::kFloat32;
  int64_t threads = 1;

  int64_t rows() const { return network.target_len * batch; }
  // The position-wise layers as problems of the linear family; of a TT network alone.
  LinearProblem Up() const { return {*network.up, rows(), phase, dtype, threads}; }
  LinearProblem Down() const { return {*network.down, rows(), phase, dtype, threads}; }
};

// "L16-D410-I2100-T150-M150"; with "-H8" for other than 10 heads and "-V1000" for another
// vocabulary than the published one; of a TT network also the layers, "/2x5x41:10x14x15/r8". Where
// the way back is not the way there, both: "/41x5x2:10x14x15+15x14x10:2x5x41/r8".
std::string SizeName(const TransformerXlProblem& problem);
// "2x5x41:10x14x15" or "41x5x2:10x14x15+15x14x10:2x5x41".
std::string LayersName(const TransformerXlOptions& network);

// The layer back from d_inner that has the factors of the layer there.
TtShape Mirrored(const TtShape& up);

// The words of the cell, [T, B] row by row. Sequence b reads words b (T + 1), b (T + 1) + 1, .. of
// one text, and each target is the word that follows. The text follows Zipf's law: word w, counted
// from the most frequent, has the share log(1 + 1 / (w + 1)) / log(V + 1) of it, and any stretch
// of the text has nearly these shares, which decide what the adaptive softmax allocates.
std::vector<int64_t> TokensOf(const TransformerXlProblem& problem);
std::vector<int64_t> TargetsOf(const TransformerXlProblem& problem);

// The largest error, relative to the largest element of the result, that a correct variant may show
// against the float64 network: that of three contractions in series (kernels/problem.h) for each
// three products in series, which are eight in a layer and two beside them.
double Tolerance(const TransformerXlProblem& problem);

}  // namespace ttbench
