// What to expect of each variant on a layer of one's own, and where the answer changes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/problem.h"

namespace ttbench {

// Batches from `first` on have this answer, up to where the next one begins.
struct Answer {
  int64_t first = 1;
  std::string text;
};
// The answers over the batches 1 .. most. Powers of two are asked, and between two that differ the
// change is found by bisection: an answer that comes and goes between two of them is missed.
std::vector<Answer> AnswersByBatch(const std::function<std::string(int64_t)>& ask, int64_t most);

// "fused up to B = 511, dense-onednn from 512"
std::string Format(const std::vector<Answer>& answers);

// A report for people on one layer, in the given phases and at the given batches: for each variant
// its peak memory by its model, its time by MeasuredSpeeds(), both also over the dense layer's,
// what `auto` picks, and the batches at which each answer changes. `variants`: by name.
std::string Advise(const LinearProblem& layer, const std::vector<Phase>& phases,
                   const std::vector<int64_t>& batches, const std::vector<std::string>& variants);

}  // namespace ttbench
