// Rebuild the full matrix from the cores, then one product, all under autograd: the threads' remedy
// ("naive" in t3nsor), for any number of cores.
//
// Held beyond x: the matrix of M*N, twice while it is put in order, and one intermediate for each
// join but the last.
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "kernels/variant.h"

namespace ttbench {
namespace {

// The joined cores lie as n_1 m_1 n_2 m_2 ...; the matrix wants all m before all n.
std::vector<int64_t> InterleavedSizes(const TtShape& shape) {
  std::vector<int64_t> sizes;
  for (int64_t k = 0; k < shape.cores(); ++k) {
    sizes.push_back(shape.n(k));
    sizes.push_back(shape.m(k));
  }
  return sizes;
}

std::vector<int64_t> MatrixOrder(const TtShape& shape) {
  std::vector<int64_t> order;
  for (int64_t k = 0; k < shape.cores(); ++k) order.push_back(2 * k + 1);
  for (int64_t k = 0; k < shape.cores(); ++k) order.push_back(2 * k);
  return order;
}

class Naive : public LinearVariant {
 public:
  std::string name() const override { return "naive"; }
  std::string Algorithm(const LinearProblem&) const override {
    return "cores joined left to right, permute, linear";
  }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    at::Tensor joined = cores[0].view({-1, shape.right_rank(0)});
    for (int64_t k = 1; k < shape.cores(); ++k) {
      joined =
          at::mm(joined, cores[k].view({shape.left_rank(k), -1})).view({-1, shape.right_rank(k)});
    }
    joined = joined.view(InterleavedSizes(shape)).permute(MatrixOrder(shape));
    joined = joined.reshape({shape.out_features(), shape.in_features()});
    return at::linear(x, joined);
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    cost::Tensor joined =
        tape.Reshape(cores[0], {shape.n(0) * shape.m(0), shape.right_rank(0)}, "");
    int64_t rows = joined.size(0);
    for (int64_t k = 1; k < shape.cores(); ++k) {
      cost::Tensor core = tape.Reshape(
          cores[k], {shape.left_rank(k), shape.n(k) * shape.m(k) * shape.right_rank(k)}, "");
      rows *= shape.n(k) * shape.m(k);
      joined = tape.Reshape(tape.Mm(joined, core, "G1.." + std::to_string(k + 1)),
                            {rows, shape.right_rank(k)}, "");
    }
    joined = tape.Permute(tape.Reshape(joined, InterleavedSizes(shape), ""), MatrixOrder(shape));
    joined = tape.Reshape(joined, {shape.out_features(), shape.in_features()}, "matrix");
    return tape.Mm(x, tape.Transpose(joined), "y");
  }
  double planning_gflops() const override { return 40; }
};

const RegisterLinearVariant kNaive(std::make_unique<Naive>());

}  // namespace
}  // namespace ttbench
