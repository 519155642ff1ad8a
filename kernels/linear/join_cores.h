// Neighbouring cores multiplied into one, under autograd or on the tape.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "kernels/cost/tape.h"
#include "kernels/linear/core_groups.h"
#include "kernels/shape.h"

namespace ttbench {

// The group's cores as one, [r, n_1 .. n_j, m_1 .. m_j, r'], multiplied from the left; a group of
// one core is that core itself.
at::Tensor JoinCores(const TtShape& shape, const CoreGroup& group, at::TensorList cores);
cost::Tensor JoinCores(cost::Tape& tape, const TtShape& shape, const CoreGroup& group,
                       const std::vector<cost::Tensor>& cores, const std::string& name);

}  // namespace ttbench
