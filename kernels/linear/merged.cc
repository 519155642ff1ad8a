// merged: the cores on either side of one cut are multiplied into one core each, and the layer of
// two cores that is left takes two contractions (right to left, permute and mm). The cut is where
// that costs least at this batch. With three cubic cores, one pair is merged: B d^4 r (1 + d) +
// d^4 r^2 multiply-adds; with two cores there is nothing to merge.
//
// Under autograd: held are the intermediate of B d^3 r, and what merging leaves.
#include "kernels/linear/join_cores.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

class Merged : public LinearVariant {
 public:
  std::string name() const override { return "merged"; }
  std::string Algorithm(const LinearProblem& problem) const override {
    const int64_t cores = problem.shape.cores(), cut = CheapestCut(problem.shape, problem.batch);
    auto range = [](int64_t first, int64_t last) {
      const std::string name = "G" + std::to_string(first + 1);
      return last - first == 1 ? name : name + "..G" + std::to_string(last);
    };
    return range(0, cut) + " and " + range(cut, cores) + ", then right to left, permute and mm";
  }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    const int64_t cut = CheapestCut(shape, x.size(0));
    const TtShape merged = JoinedShape(shape, cut);
    const std::vector<at::Tensor> two = {JoinCores(shape, {0, cut}, cores),
                                         JoinCores(shape, {cut, shape.cores()}, cores)};
    return Contraction().Forward(merged, x, two);
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    const int64_t cut = CheapestCut(shape, x.size(0));
    const TtShape merged = JoinedShape(shape, cut);
    const std::vector<cost::Tensor> two = {
        JoinCores(tape, shape, {0, cut}, cores, "merged G1"),
        JoinCores(tape, shape, {cut, shape.cores()}, cores, "merged G2")};
    return Contraction().Trace(tape, merged, x, two);
  }

 private:
  static const LinearVariant& Contraction() { return *FindLinearVariant("sequential"); }
};

const RegisterLinearVariant kMerged(std::make_unique<Merged>());

}  // namespace
}  // namespace ttbench
