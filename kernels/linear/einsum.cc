// One einsum call over x and all cores.
//
// C++ at::einsum contracts its operands from left to right; it does not look for a better order as
// the Python function does with opt_einsum. So the order of the operands is the algorithm:
//   einsum              x, G_1, .., G_K: x is contracted with one core after another.
//   einsum-cores-first  G_1, .., G_K, x: the cores are joined to the full matrix first. The result
//                       comes transposed, and y is a copy of it.
#include <ATen/ops/einsum.h>

#include "kernels/variant.h"

namespace ttbench {
namespace {

// Labels: z for the batch, a.. for input modes, m.. for output modes, A.. for ranks.
constexpr int64_t kMaxCores = 12;

struct Labels {
  std::string x, y;
  std::vector<std::string> cores;
};

Labels MakeLabels(const TtShape& shape) {
  Labels labels{"z", "z", {}};
  for (int64_t k = 0; k < shape.cores(); ++k) {
    const char n = static_cast<char>('a' + k), m = static_cast<char>('m' + k);
    labels.x += n;
    labels.y += m;
    std::string core;
    if (k > 0) core += static_cast<char>('A' + k - 1);
    core += n;
    core += m;
    if (k + 1 < shape.cores()) core += static_cast<char>('A' + k);
    labels.cores.push_back(core);
  }
  return labels;
}

// Core k without the ranks of 1 at the ends.
std::vector<int64_t> InnerSizes(const TtShape& shape, int64_t k) {
  std::vector<int64_t> sizes;
  if (k > 0) sizes.push_back(shape.left_rank(k));
  sizes.push_back(shape.n(k));
  sizes.push_back(shape.m(k));
  if (k + 1 < shape.cores()) sizes.push_back(shape.right_rank(k));
  return sizes;
}

class Einsum : public LinearVariant {
 public:
  explicit Einsum(bool cores_first) : cores_first_(cores_first) {}
  std::string name() const override { return cores_first_ ? "einsum-cores-first" : "einsum"; }

  std::string Algorithm(const LinearProblem& problem) const override {
    const int64_t operands = problem.shape.cores() + 1;
    std::string path = cores_first_ ? "G1" : "x";
    for (int64_t i = 1; i < operands; ++i) {
      const int64_t core = cores_first_ ? i + 1 : i;
      const std::string operand = core > problem.shape.cores() ? "x" : "G" + std::to_string(core);
      path = "(" + path + " " + operand + ")";
    }
    return "einsum, left to right: " + path;
  }

  std::string WhyUnsupported(const LinearProblem& problem) const override {
    return problem.shape.cores() > kMaxCores ? "einsum has labels for at most 12 cores" : "";
  }

  at::Tensor Forward(const TtShape& shape, const at::Tensor& x,
                     at::TensorList cores) const override {
    const Labels labels = MakeLabels(shape);
    std::string equation;
    std::vector<at::Tensor> operands;
    for (int64_t k = 0; k < shape.cores(); ++k) {
      equation += (k > 0 ? "," : "") + labels.cores[k];
      operands.push_back(cores[k].view(InnerSizes(shape, k)));
    }
    std::vector<int64_t> sizes = shape.in_modes();
    sizes.insert(sizes.begin(), x.size(0));
    operands.insert(cores_first_ ? operands.end() : operands.begin(), x.view(sizes));
    equation = cores_first_ ? equation + "," + labels.x : labels.x + "," + equation;
    return at::einsum(equation + "->" + labels.y, operands)
        .reshape({x.size(0), shape.out_features()})
        .contiguous();
  }

  cost::Tensor Trace(cost::Tape& tape, const TtShape& shape, const cost::Tensor& x,
                     const std::vector<cost::Tensor>& cores) const override {
    Labels labels = MakeLabels(shape);
    std::vector<cost::Tensor> operands;
    std::vector<std::string> names;
    for (int64_t k = 0; k < shape.cores(); ++k) {
      operands.push_back(tape.Reshape(cores[k], InnerSizes(shape, k), ""));
      names.push_back(cores_first_ ? "G1.." + std::to_string(k + 2)
                                   : "x G1.." + std::to_string(k + 1));
    }
    cost::Sizes sizes = shape.in_modes();
    sizes.insert(sizes.begin(), x.size(0));
    const cost::Tensor x_modes = tape.Reshape(x, sizes, "");
    operands.insert(cores_first_ ? operands.end() : operands.begin(), x_modes);
    labels.cores.insert(cores_first_ ? labels.cores.end() : labels.cores.begin(), labels.x);
    names.back() = "y by einsum";
    const cost::Tensor y = tape.Einsum(labels.cores, labels.y, operands, names);
    return tape.Contiguous(tape.Reshape(y, {x.size(0), shape.out_features()}, "y"), "y");
  }
  double planning_gflops() const override { return cores_first_ ? 40 : 15; }

 private:
  bool cores_first_;
};

const RegisterLinearVariant kEinsum(std::make_unique<Einsum>(false));
const RegisterLinearVariant kEinsumCoresFirst(std::make_unique<Einsum>(true));

}  // namespace
}  // namespace ttbench
