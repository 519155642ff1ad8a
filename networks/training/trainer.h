// Trains a Transformer-XL language model as its authors did: Adam, a learning rate that warms up
// and then falls as a cosine, gradients clipped by their norm, the memory carried from segment to
// segment (Dai et al., "Transformer-XL", 2019, and its published code).
#pragma once

#include <torch/optim/adam.h>

#include <cstdint>
#include <string>
#include <vector>

#include "networks/text/streams.h"
#include "networks/transformer_xl/transformer_xl.h"

namespace ttbench {

// The largest norm of all gradients together; longer ones are shortened to it (as published).
inline constexpr double kClipNorm = 0.25;

struct Schedule {
  double learning_rate = 1e-3;  // The highest.
  int64_t warm_up_steps = 0;
  int64_t steps = 1;

  // Of step 1 to `steps`: rises linearly over the warm-up, reaching the highest at its end, then
  // falls as half a cosine that reaches 0 one step after the last.
  double At(int64_t step) const;
};

// Whether a parameter of this name is a position-wise matrix or one of its cores.
bool IsFeedForward(const std::string& parameter);

class Trainer {
 public:
  Trainer(TransformerXl network, const Schedule& schedule);

  struct Step {
    double loss_nats;  // Mean over the segment's words, before the step's update.
    double learning_rate;
    // Before clipping: of all parameters, and of the position-wise layers alone.
    double gradient_norm, feed_forward_gradient_norm;
  };
  // Computes gradients on a segment, which follows on the one before, and updates the parameters.
  Step Train(const Segment& segment);
  // The next segment does not follow on the last one.
  void Forget() { memory_.clear(); }

  // Mean loss, in nats a word, over the first `segments` segments, in order and from an empty
  // memory. Changes nothing.
  double Evaluate(const Streams& text, int64_t segments);

  const TransformerXl& network() const { return network_; }

 private:
  TransformerXl network_;
  Schedule schedule_;
  torch::optim::Adam optimizer_;
  std::vector<at::Tensor> memory_;
  int64_t steps_ = 0;
};

// Gives the dense position-wise matrices of a network the values that the cores of another of the
// same sizes stand for, so that both compute the same.
void StartAlike(TransformerXl dense, TransformerXl compressed);

// Changes every element of the position-wise matrices or cores by `relative` of itself, up or down
// by chance (`seed`).
void MoveFeedForward(TransformerXl network, double relative, uint64_t seed);

}  // namespace ttbench
