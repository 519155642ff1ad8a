// Which variant `auto` runs.
#pragma once

#include <string>
#include <vector>

#include "kernels/problem.h"
#include "kernels/variant.h"

namespace ttbench {

inline constexpr const char* kAutoVariant = "auto";

// The variants that compute the problem from its cores, with an exact memory model, in no more
// memory than the dense layer takes (or than `fused`, where that takes more): what `auto` picks
// from. Never empty: `fused` is among them, and for no rows alone.
std::vector<const LinearVariant*> AutoCandidates(const LinearProblem& problem);

// The candidate of least predicted time (kernels/cost/speed.h). Where the layer has been
// calibrated, only candidates that were timed count.
const LinearVariant& PickLinearVariant(const LinearProblem& problem);

}  // namespace ttbench
