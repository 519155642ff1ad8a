// A symbolic LibTorch: runs a variant's forward on tensors that have sizes, strides and names but
// no elements, and writes into a ledger what LibTorch and its autograd would allocate and release.
//
// Modelled, from LibTorch 2.11: which reshapes are views and which copy; what each operator's node
// saves; the order in which the engine runs nodes (latest created first); that a node's incoming
// gradient dies before its saved tensors do; that gradients of a tensor used more than once meet
// where they arrive, the first taking the others in unless someone else sees its storage (that of a
// view does what it is a view of); that a leaf's gradient is copied unless its strides are the
// leaf's (the gradient layout contract).
//
// A model written on the tape is a program beside the variant's own, with the same lifetimes: a
// Tensor here keeps its buffer alive exactly as an at::Tensor does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cost/ledger.h"

namespace ttbench::cost {

using Sizes = std::vector<int64_t>;

class Tape;
struct Node;

class Tensor {
 public:
  Tensor() = default;
  bool defined() const { return buffer_ != nullptr; }
  const Sizes& sizes() const { return sizes_; }
  const Sizes& strides() const { return strides_; }
  int64_t size(int64_t dim) const { return sizes_[dim]; }
  int64_t dim() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t numel() const;
  int64_t element_bytes() const { return element_bytes_; }
  bool requires_grad() const { return grad_fn_ != nullptr; }
  const std::string& name() const { return buffer_->name(); }
  const Ledger::Handle& buffer() const { return buffer_; }
  // The same elements without history.
  Tensor Detach() const;

 private:
  friend class Tape;
  Ledger::Handle buffer_;
  Sizes sizes_, strides_;
  int64_t element_bytes_ = 0;
  std::shared_ptr<Node> grad_fn_;  // For a leaf: the node that accumulates its gradient.
  int64_t output_nr_ = 0;          // Which of the node's outputs it is.
  bool is_view_ = false;           // LibTorch keeps the tensor alive that it is a view of.
};

// A tensor whose elements were moved into a new buffer, and nothing computed from them. Events are
// the places in the ledger's events() where the buffers were allocated.
struct CopyRecord {
  std::string source, target;
  int64_t bytes = 0;  // Written.
  int64_t source_event = 0, target_event = 0;
};

class Tape {
 public:
  // element_bytes: of leaves, and of what is made from them but by Cast; with_grad: operators
  // record nodes; threads: how many a kernel of ours will share its work among, each with scratch
  // of its own.
  Tape(Ledger* ledger, int64_t element_bytes, bool with_grad, int64_t threads = 1);
  ~Tape();

  // A new tensor, contiguous; of the tape's elements unless told. A leaf with requires_grad has its
  // gradient kept by the tape.
  Tensor Empty(std::string name, Sizes sizes);
  Tensor Empty(std::string name, Sizes sizes, int64_t element_bytes);
  Tensor Leaf(std::string name, Sizes sizes);
  // The leaf's gradient after Backward(); undefined before.
  Tensor Gradient(const Tensor& leaf) const;
  // For gradients that no engine computes.
  void SetGradient(const Tensor& leaf, Tensor gradient);
  void ClearGradient(const Tensor& leaf);
  void ClearGradients() { gradients_.clear(); }

  // Operators, named and defined as in ATen. `name` names the buffer allocated, if one is. An
  // operand without history, as Empty() makes one, gets no gradient.
  Tensor Permute(const Tensor& a, const Sizes& dims);
  Tensor Transpose(const Tensor& a) { return Permute(a, {1, 0}); }
  Tensor Reshape(const Tensor& a, Sizes sizes, const std::string& name);
  Tensor Contiguous(const Tensor& a, const std::string& name);
  // Tensor::to(another dtype) of a tensor whose elements fill its memory: a copy, laid out alike.
  Tensor Cast(const Tensor& a, int64_t element_bytes, const std::string& name);
  Tensor Expand(const Tensor& a, Sizes sizes);  // New sizes for dimensions of size 1.
  Tensor Sum(const Tensor& a, const Sizes& dims, const std::string& name);  // keepdim
  Tensor Mul(const Tensor& a, const Tensor& b, const std::string& name);    // Broadcasting.
  Tensor Mm(const Tensor& a, const Tensor& b, const std::string& name);
  Tensor Bmm(const Tensor& a, const Tensor& b, const std::string& name);
  // at::tensordot, and at::einsum without a path: one string of labels for each operand.
  Tensor Tensordot(const Tensor& a, const Tensor& b, const Sizes& dims_a, const Sizes& dims_b,
                   const std::string& name);
  Tensor Einsum(const std::vector<std::string>& labels, const std::string& out_labels,
                std::vector<Tensor> operands, const std::vector<std::string>& names);

  // Broadcasting; b may have fewer dimensions than a.
  Tensor Add(const Tensor& a, const Tensor& b, const std::string& name);
  // a += b, b broadcast to a; a *= a number. What is returned stands for a from then on.
  Tensor AddInPlace(const Tensor& a, const Tensor& b);
  Tensor ScaleInPlace(const Tensor& a);
  // bias [n] + a b; at::linear(x, w, bias) is Addmm(bias, x, Transpose(w)).
  Tensor Addmm(const Tensor& bias, const Tensor& a, const Tensor& b, const std::string& name);
  Tensor Tanh(const Tensor& a, const std::string& name);
  Tensor Sigmoid(const Tensor& a, const std::string& name);
  Tensor Relu(const Tensor& a, const std::string& name);
  Tensor Negate(const Tensor& a, const std::string& name);
  Tensor Softmax(const Tensor& a, const std::string& name);     // Over the last dimension.
  Tensor LogSoftmax(const Tensor& a, const std::string& name);  // Likewise.
  // Over the last dimension; a is contiguous, weight and bias are of that dimension's size.
  Tensor LayerNorm(const Tensor& a, const Tensor& weight, const Tensor& bias,
                   const std::string& name);
  Tensor Cat(const Tensor& a, const Tensor& b, const std::string& name);      // Along the last.
  Tensor CatRows(const Tensor& a, const Tensor& b, const std::string& name);  // Along the first.
  // Views of equal parts along the last dimension.
  std::vector<Tensor> Chunk(const Tensor& a, int64_t parts);
  // Views of parts along the first dimension, of so many rows each.
  std::vector<Tensor> SplitRows(const Tensor& a, const Sizes& rows);
  // A view of what follows the first `begin` elements of a dimension.
  Tensor From(const Tensor& a, int64_t dim, int64_t begin);
  // at::constant_pad_nd: one element put before each row of the last dimension.
  Tensor PadFront(const Tensor& a, const std::string& name);
  // Rows of a matrix by int64 indices: at::embedding (rows of a table of parameters), and
  // at::index_select and at::index_add along the first dimension.
  Tensor Embedding(const Tensor& table, const Tensor& rows, const std::string& name);
  Tensor SelectRows(const Tensor& a, const Tensor& rows, const std::string& name);
  Tensor AddToRows(const Tensor& a, const Tensor& rows, const Tensor& b, const std::string& name);
  // at::gather along the last dimension of a matrix.
  Tensor Gather(const Tensor& a, const Tensor& index, const std::string& name);
  // A new tensor by an operator that records nothing: for bodies of Custom().
  Tensor Like(const Tensor& a, const std::string& name);

  // Nothing is recorded while one lives.
  class NoGrad {
   public:
    explicit NoGrad(Tape* tape) : tape_(tape), recording_(tape->recording_) {
      tape->recording_ = false;
    }
    ~NoGrad() { tape_->recording_ = recording_; }
    NoGrad(const NoGrad&) = delete;
    NoGrad& operator=(const NoGrad&) = delete;

   private:
    Tape* tape_;
    bool recording_;
  };

  // While one lives, buffers are named as of a part of the program, "feed-forward: T2"; so are,
  // later, those of the backward of what is recorded meanwhile.
  class Part {
   public:
    Part(Tape* tape, const std::string& name) : tape_(tape), outer_(tape->part_) {
      tape->part_ = name + ": ";
    }
    ~Part() { tape_->part_ = outer_; }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    Tape* tape_;
    std::string outer_;
  };

  // A torch::autograd::Function: `forward` runs without recording and returns the output; `saved`
  // is kept until the node has run; `backward` maps the output's gradient and what was saved to the
  // inputs' gradients, and must capture no tensors.
  using Backward =
      std::function<std::vector<Tensor>(const Tensor& grad, const std::vector<Tensor>& saved)>;
  Tensor Custom(const std::vector<Tensor>& inputs, const std::vector<Tensor>& saved,
                const std::function<Tensor()>& forward, Backward backward);

  // Runs the engine from y with gradient dy, and keeps the leaves' gradients.
  void RunBackward(const Tensor& y, const Tensor& dy) { RunBackward({y}, std::vector<Tensor>{dy}); }
  void RunBackward(const std::vector<Tensor>& y, const std::vector<Tensor>& dy);

  int64_t threads() const { return threads_; }
  int64_t element_bytes() const { return element_bytes_; }
  // Whether operators record nodes for a backward now.
  bool recording() const { return recording_; }

  // Floating-point operations of all products so far (a multiply-add is two).
  int64_t flops() const { return flops_; }
  void AddFlops(int64_t flops);

  // In order: by reshape() and contiguous(), of matrices that GEMM cannot address, by to(), and of
  // leaves' gradients. Those of no bytes are left out.
  const std::vector<CopyRecord>& copies() const { return copies_; }

 private:
  friend struct Node;
  Tensor New(std::string name, Sizes sizes, const Sizes& order, int64_t element_bytes);
  void NoteCopy(const Tensor& source, const Tensor& target);
  // A contiguous copy of the elements of `source`, in the shape `sizes`.
  Tensor Copy(const Tensor& source, Sizes sizes, const std::string& name);
  Tensor View(const Tensor& a, Sizes sizes, Sizes strides);
  // Attaches a node that maps the gradient of `out` to those of `inputs`.
  void Record(Tensor* out, const std::vector<Tensor>& inputs, std::vector<Tensor> saved,
              Backward backward);
  // What the backward of a product knows of an operand that it may not have kept.
  struct Operand {
    explicit Operand(const Tensor& t);
    std::string name;
    Sizes sizes, strides;
    bool requires_grad;
  };
  std::vector<Tensor> MmBackward(const Tensor& grad, const std::vector<Operand>& operands,
                                 const std::vector<Tensor>& saved);
  // What a product keeps of its operands: each for the other's gradient.
  static std::vector<Tensor> SavedOperands(const Tensor& a, const Tensor& b);
  void RecordSum(Tensor* out, const Tensor& a, const Tensor& b);
  Tensor Joined(const Tensor& a, const Tensor& b, int64_t dim, const std::string& name);
  // Views of parts of `a` become outputs of one node, which joins their gradients.
  std::vector<Tensor> RecordParts(const Tensor& a, std::vector<Tensor> parts);
  // A number that an operator wraps into a float64 tensor and converts to its operands' type, for
  // as long as both handles live.
  std::pair<Tensor, Tensor> Scalar(int64_t element_bytes);
  // Elementwise functions whose node saves the result and makes a gradient of its size.
  Tensor SavingResult(const Tensor& a, const std::string& name);
  Tensor Elementwise(const Tensor& a, const Tensor& b, const std::string& name);
  Tensor SumTo(const Tensor& grad, const Sizes& sizes, const std::string& name);
  // What at::tensordot does where nothing but the contracted dimensions is left: at::dot of
  // contiguous operands; a product and its sum of others.
  Tensor InnerProduct(const Tensor& a, const Tensor& b, int64_t numel, const std::string& name);
  Tensor SumproductPair(Tensor left, Tensor right, const Sizes& sum_dims, const std::string& name);

  Ledger* ledger_;
  int64_t element_bytes_;
  bool recording_;
  int64_t threads_;
  std::string part_;  // "" or as it stands before a name.
  int64_t next_sequence_ = 0;
  int64_t flops_ = 0;
  std::vector<CopyRecord> copies_;
  std::vector<std::pair<const Node*, Tensor>> gradients_;
};

}  // namespace ttbench::cost
