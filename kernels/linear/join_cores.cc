#include "kernels/linear/join_cores.h"

#include <ATen/ops/mm.h>

namespace ttbench {
namespace {

// [r, n_1, m_1, .., n_j, m_j, r'] -> [r, n_1 .. n_j, m_1 .. m_j, r'].
std::vector<int64_t> SplitSizes(const TtShape& shape, const CoreGroup& group) {
  std::vector<int64_t> sizes = {shape.left_rank(group.first)};
  for (int64_t k = group.first; k < group.last; ++k) {
    sizes.insert(sizes.end(), {shape.n(k), shape.m(k)});
  }
  sizes.push_back(shape.right_rank(group.last - 1));
  return sizes;
}

std::vector<int64_t> JoinOrder(const CoreGroup& group) {
  std::vector<int64_t> order = {0};
  const int64_t count = group.last - group.first;
  for (int64_t k = 0; k < count; ++k) order.push_back(1 + 2 * k);
  for (int64_t k = 0; k < count; ++k) order.push_back(2 + 2 * k);
  order.push_back(1 + 2 * count);
  return order;
}

// The joined core's sizes.
Modes JoinedSizes(const TtShape& shape, const CoreGroup& group) {
  Modes sizes = {shape.left_rank(group.first), 1, 1, shape.right_rank(group.last - 1)};
  for (int64_t k = group.first; k < group.last; ++k) {
    sizes[1] *= shape.n(k);
    sizes[2] *= shape.m(k);
  }
  return sizes;
}

}  // namespace

at::Tensor JoinCores(const TtShape& shape, const CoreGroup& group, at::TensorList cores) {
  at::Tensor joined = cores[group.first];
  if (group.last - group.first == 1) return joined;
  for (int64_t k = group.first + 1; k < group.last; ++k) {
    const int64_t rank = shape.left_rank(k);
    joined = at::mm(joined.view({joined.numel() / rank, rank}),
                    cores[k].view({rank, cores[k].numel() / rank}));
  }
  return joined.view(SplitSizes(shape, group))
      .permute(JoinOrder(group))
      .reshape(JoinedSizes(shape, group));
}

cost::Tensor JoinCores(cost::Tape& tape, const TtShape& shape, const CoreGroup& group,
                       const std::vector<cost::Tensor>& cores, const std::string& name) {
  cost::Tensor joined = cores[group.first];
  if (group.last - group.first == 1) return joined;
  for (int64_t k = group.first + 1; k < group.last; ++k) {
    const int64_t rank = shape.left_rank(k);
    joined = tape.Mm(tape.Reshape(joined, {joined.numel() / rank, rank}, ""),
                     tape.Reshape(cores[k], {rank, cores[k].numel() / rank}, ""), name);
  }
  joined = tape.Reshape(joined, SplitSizes(shape, group), "");
  return tape.Reshape(tape.Permute(joined, JoinOrder(group)), JoinedSizes(shape, group),
                      name + ", permuted");
}

}  // namespace ttbench
