// merged: the cores on either side of one cut are multiplied into one core each, and the layer of
// two cores that is left takes two contractions (right to left, permute and mm). The cut is where
// that costs least at this batch. With three cubic cores, one pair is merged: B d^4 r (1 + d) +
// d^4 r^2 multiply-adds; with two cores there is nothing to merge.
//
// Under autograd: held are the intermediate of B d^3 r, and what merging leaves.
#include <ATen/ops/mm.h>

#include <algorithm>

#include "kernels/variant.h"

namespace ttbench {
namespace {

// Cores first .. last - 1 as one.
struct Group {
  int64_t first, last;
};

int64_t MergingMacs(const TtShape& shape, const Group& group) {
  int64_t rows = shape.left_rank(group.first) * shape.n(group.first) * shape.m(group.first);
  int64_t macs = 0;
  for (int64_t k = group.first + 1; k < group.last; ++k) {
    const int64_t columns = shape.n(k) * shape.m(k) * shape.right_rank(k);
    macs = CheckedAdd(macs, CheckedMul(rows, CheckedMul(shape.left_rank(k), columns)));
    rows *= shape.n(k) * shape.m(k);
  }
  return macs;
}

// The layer of the cores before `cut` and of those from it on.
TtShape MergedShape(const TtShape& shape, int64_t cut) {
  Modes in(2, 1), out(2, 1);
  for (int64_t k = 0; k < shape.cores(); ++k) {
    in[k >= cut] *= shape.n(k);
    out[k >= cut] *= shape.m(k);
  }
  return TtShape(in, out, {shape.left_rank(cut)});
}

int64_t BestCut(const TtShape& shape, int64_t batch) {
  int64_t best = 1, best_macs = -1;
  for (int64_t cut = 1; cut < shape.cores(); ++cut) {
    int64_t macs = CheckedMul(batch, MergedShape(shape, cut).sequential_macs_per_row());
    macs = CheckedAdd(macs, MergingMacs(shape, {0, cut}));
    macs = CheckedAdd(macs, MergingMacs(shape, {cut, shape.cores()}));
    if (best_macs < 0 || macs < best_macs) {
      best = cut;
      best_macs = macs;
    }
  }
  return best;
}

// [r, n_1, m_1, .., n_j, m_j, r'] -> [r, n_1 .. n_j, m_1 .. m_j, r'].
std::vector<int64_t> SplitSizes(const TtShape& shape, const Group& group) {
  std::vector<int64_t> sizes = {shape.left_rank(group.first)};
  for (int64_t k = group.first; k < group.last; ++k) {
    sizes.insert(sizes.end(), {shape.n(k), shape.m(k)});
  }
  sizes.push_back(shape.right_rank(group.last - 1));
  return sizes;
}

std::vector<int64_t> JoinOrder(const Group& group) {
  std::vector<int64_t> order = {0};
  const int64_t count = group.last - group.first;
  for (int64_t k = 0; k < count; ++k) order.push_back(1 + 2 * k);
  for (int64_t k = 0; k < count; ++k) order.push_back(2 + 2 * k);
  order.push_back(1 + 2 * count);
  return order;
}

class Merged : public LinearVariant {
 public:
  std::string name() const override { return "merged"; }
  std::string Algorithm(const LinearProblem& problem) const override {
    const int64_t cores = problem.shape.cores(), cut = BestCut(problem.shape, problem.batch);
    auto range = [](int64_t first, int64_t last) {
      const std::string name = "G" + std::to_string(first + 1);
      return last - first == 1 ? name : name + "..G" + std::to_string(last);
    };
    return range(0, cut) + " and " + range(cut, cores) + ", then right to left, permute and mm";
  }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x, at::TensorList cores) const override {
    const int64_t cut = BestCut(shape, x.size(0));
    const TtShape merged = MergedShape(shape, cut);
    const std::vector<at::Tensor> two = {Join(shape, {0, cut}, merged.CoreSizes(0), cores),
                                         Join(shape, {cut, shape.cores()}, merged.CoreSizes(1), cores)};
    return Contraction().Forward(merged, x, two);
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    const int64_t cut = BestCut(shape, x.size(0));
    const TtShape merged = MergedShape(shape, cut);
    const std::vector<cost::Tensor> two = {
        Join(tape, shape, {0, cut}, merged.CoreSizes(0), cores, "merged G1"),
        Join(tape, shape, {cut, shape.cores()}, merged.CoreSizes(1), cores, "merged G2")};
    return Contraction().Trace(tape, merged, x, two);
  }

 private:
  static const LinearVariant& Contraction() { return *FindLinearVariant("sequential"); }

  static at::Tensor Join(const TtShape& shape, const Group& group, const Modes& sizes,
                         at::TensorList cores) {
    at::Tensor joined = cores[group.first];
    if (group.last - group.first == 1) return joined;
    for (int64_t k = group.first + 1; k < group.last; ++k) {
      const int64_t rank = shape.left_rank(k);
      joined = at::mm(joined.view({joined.numel() / rank, rank}),
                      cores[k].view({rank, cores[k].numel() / rank}));
    }
    return joined.view(SplitSizes(shape, group)).permute(JoinOrder(group)).reshape(sizes);
  }

  static cost::Tensor Join(cost::Tape& tape, const TtShape& shape, const Group& group,
                           const Modes& sizes, const std::vector<cost::Tensor>& cores,
                           const std::string& name) {
    cost::Tensor joined = cores[group.first];
    if (group.last - group.first == 1) return joined;
    for (int64_t k = group.first + 1; k < group.last; ++k) {
      const int64_t rank = shape.left_rank(k);
      joined = tape.Mm(tape.Reshape(joined, {joined.numel() / rank, rank}, ""),
                       tape.Reshape(cores[k], {rank, cores[k].numel() / rank}, ""), name);
    }
    joined = tape.Reshape(joined, SplitSizes(shape, group), "");
    return tape.Reshape(tape.Permute(joined, JoinOrder(group)), sizes, name + ", permuted");
  }
};

const RegisterLinearVariant kMerged(std::make_unique<Merged>());

}  // namespace
}  // namespace ttbench
