#include "kernels/linear/core_groups.h"

namespace ttbench {

int64_t JoiningMacs(const TtShape& shape, const CoreGroup& group) {
  int64_t rows = shape.left_rank(group.first) * shape.n(group.first) * shape.m(group.first);
  int64_t macs = 0;
  for (int64_t k = group.first + 1; k < group.last; ++k) {
    const int64_t columns = shape.n(k) * shape.m(k) * shape.right_rank(k);
    macs = CheckedAdd(macs, CheckedMul(rows, CheckedMul(shape.left_rank(k), columns)));
    rows *= shape.n(k) * shape.m(k);
  }
  return macs;
}

TtShape JoinedShape(const TtShape& shape, int64_t cut) {
  Modes in(2, 1), out(2, 1);
  for (int64_t k = 0; k < shape.cores(); ++k) {
    in[k >= cut] *= shape.n(k);
    out[k >= cut] *= shape.m(k);
  }
  return TtShape(in, out, {shape.left_rank(cut)});
}

int64_t CheapestCut(const TtShape& shape, int64_t batch) {
  int64_t best = 1, best_macs = -1;
  for (int64_t cut = 1; cut < shape.cores(); ++cut) {
    int64_t macs = CheckedMul(batch, JoinedShape(shape, cut).sequential_macs_per_row());
    macs = CheckedAdd(macs, JoiningMacs(shape, {0, cut}));
    macs = CheckedAdd(macs, JoiningMacs(shape, {cut, shape.cores()}));
    if (best_macs < 0 || macs < best_macs) {
      best = cut;
      best_macs = macs;
    }
  }
  return best;
}

}  // namespace ttbench
