#include "kernels/cost/tape.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "kernels/shape.h"

namespace ttbench::cost {

// One step of the backward pass.
struct Node {
  struct Edge {
    std::shared_ptr<Node> node;  // Null: of an input that has no gradient.
    int64_t output_nr;           // The output of that node which is this one's input.
  };
  // As Tape::Backward, from the gradients of all outputs.
  using Function = std::function<std::vector<Tensor>(std::vector<Tensor>& grads,
                                                     const std::vector<Tensor>& saved)>;

  int64_t sequence = 0;
  std::string name;  // Of the output, for naming its gradient.
  std::string part;  // Of the program, at the time.
  int64_t outputs = 1;
  std::vector<Edge> inputs;
  std::vector<Tensor> saved;
  Function backward;
  // While the engine runs: gradients that have arrived, and how many have yet to.
  std::vector<Tensor> arrived;
  int64_t expected = 0;
  // Of a leaf: the layout its gradient must have.
  bool is_leaf = false;
  Sizes leaf_sizes, leaf_strides;
};

namespace {

constexpr int64_t kLeafSequence = std::numeric_limits<int64_t>::max();

// The strides that view a tensor as `sizes` without a copy, if there are any: dimensions are merged
// or split only within runs that are contiguous in memory.
std::optional<Sizes> ViewStrides(const Sizes& old_sizes, const Sizes& old_strides,
                                 const Sizes& sizes) {
  if (old_sizes.empty()) return Sizes(sizes.size(), 1);
  Sizes strides(sizes.size());
  int64_t view_dim = static_cast<int64_t>(sizes.size()) - 1;
  int64_t run_stride = old_strides.back();
  int64_t run_numel = 1;
  int64_t view_numel = 1;
  for (int64_t dim = static_cast<int64_t>(old_sizes.size()) - 1; dim >= 0; --dim) {
    run_numel *= old_sizes[dim];
    const bool run_ends =
        dim == 0 || (old_sizes[dim - 1] != 1 && old_strides[dim - 1] != run_numel * run_stride);
    if (!run_ends) continue;
    while (view_dim >= 0 && (view_numel < run_numel || sizes[view_dim] == 1)) {
      strides[view_dim] = view_numel * run_stride;
      view_numel *= sizes[view_dim];
      --view_dim;
    }
    if (view_numel != run_numel) return std::nullopt;
    if (dim > 0) {
      run_stride = old_strides[dim - 1];
      run_numel = 1;
      view_numel = 1;
    }
  }
  if (view_dim != -1) return std::nullopt;
  return strides;
}

// The dimension order, innermost first, in which an elementwise operator lays out its output: that
// of its operands' strides, broadcast dimensions (stride 0) having no say.
Sizes ElementwiseOrder(const Sizes& out_sizes, const std::vector<Sizes>& operand_strides) {
  const int64_t dims = static_cast<int64_t>(out_sizes.size());
  Sizes order(dims);
  for (int64_t i = 0; i < dims; ++i) order[i] = dims - 1 - i;
  auto compare = [&](int64_t a, int64_t b) {
    for (const Sizes& strides : operand_strides) {
      if (strides[a] == 0 || strides[b] == 0) continue;
      if (strides[a] != strides[b]) return strides[a] < strides[b] ? -1 : 1;
      if (out_sizes[a] > out_sizes[b]) return 1;
    }
    return 0;
  };
  for (int64_t i = 1; i < dims; ++i) {
    int64_t moving = i;
    for (int64_t j = i - 1; j >= 0; --j) {
      const int comparison = compare(order[j], order[moving]);
      if (comparison > 0) {
        std::swap(order[j], order[moving]);
        moving = j;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  return order;
}

bool IsContiguous(const Tensor& t) {
  int64_t stride = 1;
  for (int64_t dim = t.dim() - 1; dim >= 0; --dim) {
    if (t.size(dim) != 1 && t.strides()[dim] != stride) return false;
    stride *= t.size(dim);
  }
  return true;
}

// Whether GEMM can read a matrix where it lies: one dimension of stride 1, and the other's stride
// at least the first's size.
bool BlasAddresses(const Tensor& matrix) {
  const Sizes& sizes = matrix.sizes();
  const Sizes& strides = matrix.strides();
  return (strides[0] == 1 && strides[1] >= std::max<int64_t>(1, sizes[0])) ||
         (strides[1] == 1 && strides[0] >= std::max<int64_t>(1, sizes[1]));
}

}  // namespace

int64_t Tensor::numel() const { return Product(sizes_); }

Tensor Tensor::Detach() const {
  Tensor detached = *this;
  detached.grad_fn_ = nullptr;
  return detached;
}

Tape::Tape(Ledger* ledger, int64_t element_bytes, bool with_grad, int64_t threads)
    : ledger_(ledger), element_bytes_(element_bytes), recording_(with_grad), threads_(threads) {}

Tape::~Tape() = default;

Tensor Tape::New(std::string name, Sizes sizes, const Sizes& order, int64_t element_bytes) {
  Tensor t;
  if (!part_.empty() && name.find(part_) == std::string::npos) name.insert(0, part_);
  t.buffer_ = ledger_->Allocate(std::move(name), CheckedMul(Product(sizes), element_bytes));
  t.element_bytes_ = element_bytes;
  t.strides_.resize(sizes.size());
  int64_t stride = 1;
  for (int64_t dim : order) {
    t.strides_[dim] = stride;
    stride *= sizes[dim];
  }
  t.sizes_ = std::move(sizes);
  return t;
}

Tensor Tape::Empty(std::string name, Sizes sizes) {
  return Empty(std::move(name), std::move(sizes), element_bytes_);
}

Tensor Tape::Empty(std::string name, Sizes sizes, int64_t element_bytes) {
  Sizes order(sizes.size());
  std::iota(order.rbegin(), order.rend(), 0);
  return New(std::move(name), std::move(sizes), order, element_bytes);
}

Tensor Tape::Leaf(std::string name, Sizes sizes) {
  Tensor leaf = Empty(std::move(name), std::move(sizes));
  if (recording_) {
    leaf.grad_fn_ = std::make_shared<Node>();
    leaf.grad_fn_->sequence = kLeafSequence;
    leaf.grad_fn_->name = leaf.name();
    leaf.grad_fn_->is_leaf = true;
    leaf.grad_fn_->leaf_sizes = leaf.sizes_;
    leaf.grad_fn_->leaf_strides = leaf.strides_;
  }
  return leaf;
}

Tensor Tape::Gradient(const Tensor& leaf) const {
  for (const auto& [node, gradient] : gradients_) {
    if (node == leaf.grad_fn_.get()) return gradient;
  }
  return Tensor();
}

void Tape::SetGradient(const Tensor& leaf, Tensor gradient) {
  ClearGradient(leaf);
  gradients_.emplace_back(leaf.grad_fn_.get(), std::move(gradient));
}

void Tape::ClearGradient(const Tensor& leaf) {
  gradients_.erase(
      std::remove_if(gradients_.begin(), gradients_.end(),
                     [&](const auto& entry) { return entry.first == leaf.grad_fn_.get(); }),
      gradients_.end());
}

Tensor Tape::View(const Tensor& a, Sizes sizes, Sizes strides) {
  Tensor view;
  view.buffer_ = a.buffer_;
  view.sizes_ = std::move(sizes);
  view.strides_ = std::move(strides);
  view.element_bytes_ = a.element_bytes_;
  view.is_view_ = true;
  return view;
}

void Tape::Record(Tensor* out, const std::vector<Tensor>& inputs, std::vector<Tensor> saved,
                  Backward backward) {
  if (!recording_) return;
  if (std::none_of(inputs.begin(), inputs.end(), [](const Tensor& t) { return t.grad_fn_; })) {
    return;
  }
  auto node = std::make_shared<Node>();
  node->sequence = next_sequence_++;
  node->name = out->name();
  node->part = part_;
  for (const Tensor& input : inputs) node->inputs.push_back({input.grad_fn_, input.output_nr_});
  node->saved = std::move(saved);
  node->backward = [backward = std::move(backward)](std::vector<Tensor>& grads,
                                                    const std::vector<Tensor>& saved) {
    return backward(grads.front(), saved);
  };
  out->grad_fn_ = std::move(node);
}

void Tape::NoteCopy(const Tensor& source, const Tensor& target) {
  const Ledger::Buffer &from = *source.buffer_, &to = *target.buffer_;
  if (to.bytes() == 0) return;
  copies_.push_back({from.name(), to.name(), to.bytes(), from.event(), to.event()});
}

Tensor Tape::Copy(const Tensor& source, Sizes sizes, const std::string& name) {
  // A transposed matrix is copied block by block, by way of one block.
  constexpr int64_t kBlock = 60;
  Tensor copy = Empty(name, std::move(sizes), source.element_bytes_);
  NoteCopy(source, copy);
  if (source.dim() == 2 && source.strides_[0] == 1 && source.strides_[1] == source.sizes_[0] &&
      source.numel() >= kBlock * kBlock) {
    Empty("block of a transposing copy", {kBlock, kBlock}, source.element_bytes_);
  }
  return copy;
}

void Tape::AddFlops(int64_t flops) { flops_ = CheckedAdd(flops_, flops); }

Tensor Tape::Permute(const Tensor& a, const Sizes& dims) {
  Sizes sizes, strides, inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    sizes.push_back(a.sizes_[dims[i]]);
    strides.push_back(a.strides_[dims[i]]);
    inverse[dims[i]] = static_cast<int64_t>(i);
  }
  Tensor out = View(a, std::move(sizes), std::move(strides));
  Record(&out, {a}, {}, [this, inverse](const Tensor& grad, const std::vector<Tensor>&) {
    return std::vector<Tensor>{Permute(grad, inverse)};
  });
  return out;
}

Tensor Tape::Reshape(const Tensor& a, Sizes sizes, const std::string& name) {
  if (Product(sizes) != a.numel()) throw std::logic_error("cost tape: reshape of " + a.name());
  auto strides = ViewStrides(a.sizes_, a.strides_, sizes);
  Tensor out =
      strides ? View(a, std::move(sizes), std::move(*strides)) : Copy(a, std::move(sizes), name);
  Record(&out, {a}, {}, [this, back = a.sizes_](const Tensor& grad, const std::vector<Tensor>&) {
    return std::vector<Tensor>{Reshape(grad, back, grad.name() + ", permuted")};
  });
  return out;
}

Tensor Tape::Contiguous(const Tensor& a, const std::string& name) {
  if (IsContiguous(a)) return a;
  Tensor out = Copy(a, a.sizes_, name);
  if (!a.requires_grad()) return out;  // Of a tensor without history, as a Function sees it.
  Record(&out, {a}, {},
         [](const Tensor& grad, const std::vector<Tensor>&) { return std::vector<Tensor>{grad}; });
  return out;
}

Tensor Tape::Cast(const Tensor& a, int64_t element_bytes, const std::string& name) {
  Tensor out = Empty(name, a.sizes_, element_bytes);
  out.strides_ = a.strides_;
  NoteCopy(a, out);
  Record(&out, {a}, {},
         [this, back = a.element_bytes_](const Tensor& grad, const std::vector<Tensor>&) {
           return std::vector<Tensor>{Cast(grad, back, grad.name() + ", cast")};
         });
  return out;
}

Tensor Tape::Expand(const Tensor& a, Sizes sizes) {
  Sizes strides = a.strides_;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (a.sizes_[i] != sizes[i]) strides[i] = 0;
  }
  Tensor out = View(a, std::move(sizes), std::move(strides));
  Record(&out, {a}, {}, [this, back = a.sizes_](const Tensor& grad, const std::vector<Tensor>&) {
    return std::vector<Tensor>{SumTo(grad, back, grad.name() + ", summed")};
  });
  return out;
}

Tensor Tape::Sum(const Tensor& a, const Sizes& dims, const std::string& name) {
  Sizes sizes = a.sizes_;
  for (int64_t dim : dims) sizes[dim] = 1;
  Tensor out = Empty(name, std::move(sizes), a.element_bytes_);
  Record(&out, {a}, {}, [this, back = a.sizes_](const Tensor& grad, const std::vector<Tensor>&) {
    return std::vector<Tensor>{Expand(grad, back)};
  });
  return out;
}

Tensor Tape::SumTo(const Tensor& grad, const Sizes& sizes, const std::string& name) {
  const size_t leading = grad.sizes_.size() - sizes.size();
  Sizes dims;
  for (size_t i = 0; i < grad.sizes_.size(); ++i) {
    if (i < leading || (sizes[i - leading] == 1 && grad.sizes_[i] != 1)) {
      dims.push_back(static_cast<int64_t>(i));
    }
  }
  if (dims.empty()) return grad;
  const Tensor sum = Sum(grad, dims, name);
  return leading == 0 ? sum : Reshape(sum, sizes, "");
}

Tensor Tape::Elementwise(const Tensor& a, const Tensor& b, const std::string& name) {
  Sizes sizes(a.sizes_.size()), b_sizes = b.sizes_;
  std::vector<Sizes> strides{a.strides_, b.strides_};
  const size_t leading = a.sizes_.size() - b.sizes_.size();
  b_sizes.insert(b_sizes.begin(), leading, 1);
  strides[1].insert(strides[1].begin(), leading, 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = std::max(a.sizes_[i], b_sizes[i]);
    if (a.sizes_[i] != sizes[i]) strides[0][i] = 0;
    if (b_sizes[i] != sizes[i]) strides[1][i] = 0;
  }
  Sizes order = ElementwiseOrder(sizes, strides);
  return New(name, std::move(sizes), order, a.element_bytes_);
}

Tensor Tape::Mul(const Tensor& a, const Tensor& b, const std::string& name) {
  Tensor out = Elementwise(a, b, name);
  AddFlops(out.numel());
  Record(&out, {a, b}, {a.Detach(), b.Detach()},
         [this](const Tensor& grad, const std::vector<Tensor>& saved) {
           Tensor grad_b = Mul(grad, saved[0], "d(" + saved[1].name() + "), broadcast");
           Tensor grad_a = Mul(grad, saved[1], "d(" + saved[0].name() + "), broadcast");
           grad_a = SumTo(grad_a, saved[0].sizes_, "d(" + saved[0].name() + ")");
           grad_b = SumTo(grad_b, saved[1].sizes_, "d(" + saved[1].name() + ")");
           return std::vector<Tensor>{std::move(grad_a), std::move(grad_b)};
         });
  return out;
}

Tensor Tape::Add(const Tensor& a, const Tensor& b, const std::string& name) {
  Tensor out = Elementwise(a, b, name);
  RecordSum(&out, a, b);
  return out;
}

Tensor Tape::AddInPlace(const Tensor& a, const Tensor& b) {
  Tensor out = a;
  RecordSum(&out, a, b);
  return out;
}

void Tape::RecordSum(Tensor* out, const Tensor& a, const Tensor& b) {
  Record(out, {a, b}, {},
         [this, a_operand = Operand(a), b_operand = Operand(b)](const Tensor& grad,
                                                                const std::vector<Tensor>&) {
           std::vector<Tensor> grads;
           for (const Operand& operand : {a_operand, b_operand}) {
             grads.push_back(operand.requires_grad
                                 ? SumTo(grad, operand.sizes, "d(" + operand.name + ")")
                                 : Tensor());
           }
           return grads;
         });
}

std::pair<Tensor, Tensor> Tape::Scalar(int64_t element_bytes) {
  constexpr int64_t kWrappedBytes = 8;
  Tensor wrapped = Empty("scalar", {}, kWrappedBytes);
  return {wrapped,
          element_bytes == kWrappedBytes ? wrapped : Empty("scalar, converted", {}, element_bytes)};
}

Tensor Tape::ScaleInPlace(const Tensor& a) {
  Tensor out = a;
  Scalar(a.element_bytes_);
  Record(&out, {a}, {}, [this, name = a.name()](const Tensor& grad, const std::vector<Tensor>&) {
    const auto scalar = Scalar(grad.element_bytes_);
    return std::vector<Tensor>{Like(grad, "d(" + name + ")")};
  });
  return out;
}

Tensor Tape::Like(const Tensor& a, const std::string& name) {
  return New(name, a.sizes_, ElementwiseOrder(a.sizes_, {a.strides_}), a.element_bytes_);
}

Tensor Tape::SavingResult(const Tensor& a, const std::string& name) {
  Tensor out = Like(a, name);
  Record(&out, {a}, {out.Detach()}, [this](const Tensor& grad, const std::vector<Tensor>& saved) {
    return std::vector<Tensor>{Elementwise(grad, saved[0], "d(" + saved[0].name() + "'s input)")};
  });
  return out;
}

Tensor Tape::Negate(const Tensor& a, const std::string& name) {
  Tensor out = Like(a, name);
  Record(&out, {a}, {}, [this, name = a.name()](const Tensor& grad, const std::vector<Tensor>&) {
    return std::vector<Tensor>{Like(grad, "d(" + name + ")")};
  });
  return out;
}

Tensor Tape::Tanh(const Tensor& a, const std::string& name) { return SavingResult(a, name); }
Tensor Tape::Relu(const Tensor& a, const std::string& name) { return SavingResult(a, name); }
Tensor Tape::LogSoftmax(const Tensor& a, const std::string& name) { return SavingResult(a, name); }
Tensor Tape::Sigmoid(const Tensor& a, const std::string& name) { return SavingResult(a, name); }
Tensor Tape::Softmax(const Tensor& a, const std::string& name) { return SavingResult(a, name); }

Tensor Tape::LayerNorm(const Tensor& a, const Tensor& weight, const Tensor& bias,
                       const std::string& name) {
  const int64_t width = a.sizes_.back(), rows = a.numel() / width;
  Tensor out = Empty(name, a.sizes_, a.element_bytes_);
  Tensor means = Empty("means for " + name, {rows}, a.element_bytes_);
  Tensor deviations = Empty("deviations for " + name, {rows}, a.element_bytes_);
  Record(
      &out, {a, weight, bias},
      {a.Detach(), weight.Detach(), bias.Detach(), std::move(means), std::move(deviations)},
      [this, width](const Tensor&, const std::vector<Tensor>& saved) {
        const Tensor& a = saved[0];
        const Tensor& weight = saved[1];
        const Tensor& bias = saved[2];
        Tensor grad_a = Empty("d(" + a.name() + ")", a.sizes_, a.element_bytes_);
        Tensor grad_weight =
            Empty("d(" + weight.name() + ")", weight.sizes_, weight.element_bytes_);
        Tensor grad_bias = Empty("d(" + bias.name() + ")", bias.sizes_, bias.element_bytes_);
        // Each thread sums up its rows.
        Empty("sums of layer_norm's threads", {2, threads_, width}, a.element_bytes_);
        return std::vector<Tensor>{std::move(grad_a), std::move(grad_weight), std::move(grad_bias)};
      });
  return out;
}

Tensor Tape::Joined(const Tensor& a, const Tensor& b, int64_t dim, const std::string& name) {
  Sizes sizes = a.sizes_;
  sizes[dim] += b.sizes_[dim];
  Tensor out = Empty(name, std::move(sizes), a.element_bytes_);
  Record(&out, {a, b}, {},
         [this, a_sizes = a.sizes_, b_sizes = b.sizes_](const Tensor& grad,
                                                        const std::vector<Tensor>&) {
           return std::vector<Tensor>{View(grad, a_sizes, grad.strides_),
                                      View(grad, b_sizes, grad.strides_)};
         });
  return out;
}

Tensor Tape::Cat(const Tensor& a, const Tensor& b, const std::string& name) {
  return Joined(a, b, a.dim() - 1, name);
}

Tensor Tape::CatRows(const Tensor& a, const Tensor& b, const std::string& name) {
  return Joined(a, b, 0, name);
}

std::vector<Tensor> Tape::RecordParts(const Tensor& a, std::vector<Tensor> parts) {
  if (!recording_ || !a.grad_fn_) return parts;
  Record(&parts.front(), {a}, {}, nullptr);
  Node& node = *parts.front().grad_fn_;
  node.outputs = static_cast<int64_t>(parts.size());
  std::vector<Sizes> part_sizes;
  for (const Tensor& part : parts) part_sizes.push_back(part.sizes_);
  node.backward = [this, whole = a.sizes_, element_bytes = a.element_bytes_, name = a.name(),
                   part_sizes](std::vector<Tensor>& grads, const std::vector<Tensor>&) {
    // Parts that nobody used are zeros.
    for (size_t i = 0; i < grads.size(); ++i) {
      if (grads[i].defined()) continue;
      grads[i] = Empty("d(part of " + name + ")", part_sizes[i], element_bytes);
    }
    return std::vector<Tensor>{
        Empty(grads.front().name() + " and others, joined", whole, element_bytes)};
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].grad_fn_ = parts.front().grad_fn_;
    parts[i].output_nr_ = static_cast<int64_t>(i);
  }
  return parts;
}

std::vector<Tensor> Tape::Chunk(const Tensor& a, int64_t parts) {
  Sizes sizes = a.sizes_;
  sizes.back() /= parts;
  return RecordParts(a, std::vector<Tensor>(parts, View(a, sizes, a.strides_)));
}

std::vector<Tensor> Tape::SplitRows(const Tensor& a, const Sizes& rows) {
  std::vector<Tensor> parts;
  for (const int64_t count : rows) {
    Sizes sizes = a.sizes_;
    sizes[0] = count;
    parts.push_back(View(a, std::move(sizes), a.strides_));
  }
  return RecordParts(a, std::move(parts));
}

Tensor Tape::From(const Tensor& a, int64_t dim, int64_t begin) {
  Sizes sizes = a.sizes_;
  sizes[dim] -= begin;
  Tensor out = View(a, std::move(sizes), a.strides_);
  Record(&out, {a}, {}, [this, back = a.sizes_](const Tensor& grad, const std::vector<Tensor>&) {
    return std::vector<Tensor>{Empty(grad.name() + ", zeros before", back, grad.element_bytes_)};
  });
  return out;
}

Tensor Tape::PadFront(const Tensor& a, const std::string& name) {
  Sizes sizes = a.sizes_;
  ++sizes.back();
  Tensor out = Empty(name, std::move(sizes), a.element_bytes_);
  Record(&out, {a}, {}, [this, back = a.sizes_](const Tensor& grad, const std::vector<Tensor>&) {
    return std::vector<Tensor>{Empty(grad.name() + ", cut", back, grad.element_bytes_)};
  });
  return out;
}

Tensor Tape::Embedding(const Tensor& table, const Tensor& rows, const std::string& name) {
  return SelectRows(table, rows, name);
}

Tensor Tape::SelectRows(const Tensor& a, const Tensor& rows, const std::string& name) {
  Sizes sizes = a.sizes_;
  sizes[0] = rows.size(0);
  Tensor out = Empty(name, std::move(sizes), a.element_bytes_);
  Record(&out, {a}, {rows},
         [this, back = a.sizes_, name = a.name()](const Tensor& grad, const std::vector<Tensor>&) {
           return std::vector<Tensor>{Empty("d(" + name + ")", back, grad.element_bytes_)};
         });
  return out;
}

Tensor Tape::AddToRows(const Tensor& a, const Tensor& rows, const Tensor& b,
                       const std::string& name) {
  Tensor out = Empty(name, a.sizes_, a.element_bytes_);
  Record(&out, {a, b}, {rows, b.Detach()},
         [this](const Tensor& grad, const std::vector<Tensor>& saved) {
           const Tensor& b = saved[1];
           Tensor grad_b = Empty("d(" + b.name() + ")", b.sizes_, grad.element_bytes_);
           return std::vector<Tensor>{grad, std::move(grad_b)};
         });
  return out;
}

Tensor Tape::Gather(const Tensor& a, const Tensor& index, const std::string& name) {
  Tensor out = Empty(name, index.sizes_, a.element_bytes_);
  Record(&out, {a}, {a.Detach(), index},
         [this](const Tensor& grad, const std::vector<Tensor>& saved) {
           const Tensor& a = saved[0];
           return std::vector<Tensor>{Empty("d(" + a.name() + ")", a.sizes_, grad.element_bytes_)};
         });
  return out;
}

Tensor Tape::Mm(const Tensor& a, const Tensor& b, const std::string& name) {
  if (a.dim() != 2 || b.dim() != 2 || a.size(1) != b.size(0)) {
    throw std::logic_error("cost tape: mm of " + a.name() + " and " + b.name());
  }
  Tensor out = Empty(name, {a.size(0), b.size(1)}, a.element_bytes_);
  AddFlops(CheckedMul(2 * a.size(1), out.numel()));
  {
    // Operands that BLAS cannot address are copied for the product's duration.
    std::vector<Tensor> copies;
    for (const Tensor* operand : {&a, &b}) {
      if (!BlasAddresses(*operand))
        copies.push_back(Copy(*operand, operand->sizes_, operand->name() + ", copied by mm"));
    }
  }
  Record(&out, {a, b}, SavedOperands(a, b),
         [this, operands = std::vector<Operand>{Operand(a), Operand(b)}](
             const Tensor& grad, const std::vector<Tensor>& saved) {
           return MmBackward(grad, operands, saved);
         });
  return out;
}

Tape::Operand::Operand(const Tensor& t)
    : name(t.name()), sizes(t.sizes_), strides(t.strides_), requires_grad(t.requires_grad()) {}

std::vector<Tensor> Tape::SavedOperands(const Tensor& a, const Tensor& b) {
  return {b.requires_grad() ? a.Detach() : Tensor(), a.requires_grad() ? b.Detach() : Tensor()};
}

std::vector<Tensor> Tape::MmBackward(const Tensor& grad, const std::vector<Operand>& operands,
                                     const std::vector<Tensor>& saved) {
  // An operand stored by columns gets its gradient by columns.
  auto column_major = [](const Operand& operand) {
    return operand.strides[0] == 1 && operand.strides[1] == operand.sizes[0];
  };
  const Tensor& a = saved[0];
  const Tensor& b = saved[1];
  Tensor grad_a, grad_b;
  if (operands[1].requires_grad) {
    const std::string name = "d(" + operands[1].name + ")";
    grad_b = column_major(operands[1]) ? Transpose(Mm(Transpose(grad), a, name))
                                       : Mm(Transpose(a), grad, name);
  }
  if (operands[0].requires_grad) {
    const std::string name = "d(" + operands[0].name + ")";
    grad_a = column_major(operands[0]) ? Transpose(Mm(b, Transpose(grad), name))
                                       : Mm(grad, Transpose(b), name);
  }
  return {std::move(grad_a), std::move(grad_b)};
}

Tensor Tape::Addmm(const Tensor& bias, const Tensor& a, const Tensor& b, const std::string& name) {
  const bool recording = std::exchange(recording_, false);
  Tensor out = Mm(a, b, name);
  recording_ = recording;
  Record(&out, {bias, a, b}, SavedOperands(a, b),
         [this, bias_name = bias.name(), operands = std::vector<Operand>{Operand(a), Operand(b)}](
             const Tensor& grad, const std::vector<Tensor>& saved) {
           std::vector<Tensor> grads = MmBackward(grad, operands, saved);
           Tensor sum = Empty("d(" + bias_name + ")", {grad.size(1)});
           grads.insert(grads.begin(), std::move(sum));
           return grads;
         });
  return out;
}

Tensor Tape::Bmm(const Tensor& a, const Tensor& b, const std::string& name) {
  if (a.dim() != 3 || b.dim() != 3 || a.size(0) != b.size(0) || a.size(2) != b.size(1)) {
    throw std::logic_error("cost tape: bmm of " + a.name() + " and " + b.name());
  }
  Tensor out = Empty(name, {a.size(0), a.size(1), b.size(2)}, a.element_bytes_);
  AddFlops(CheckedMul(2 * a.size(2), out.numel()));
  Record(&out, {a, b}, {a.Detach(), b.Detach()},
         [this](const Tensor& grad, const std::vector<Tensor>& saved) {
           const Tensor& a = saved[0];
           const Tensor& b = saved[1];
           Tensor grad_b = Bmm(Permute(a, {0, 2, 1}), grad, "d(" + b.name() + ")");
           Tensor grad_a = Bmm(grad, Permute(b, {0, 2, 1}), "d(" + a.name() + ")");
           return std::vector<Tensor>{std::move(grad_a), std::move(grad_b)};
         });
  return out;
}

Tensor Tape::Tensordot(const Tensor& a, const Tensor& b, const Sizes& dims_a, const Sizes& dims_b,
                       const std::string& name) {
  Tensor t1 = a, t2 = b;
  int64_t contracted = 1;
  for (size_t i = 0; i < dims_a.size(); ++i) {
    // A dimension of size 1 is summed away at once.
    if (b.size(dims_b[i]) == 1) {
      t1 = Sum(t1, {dims_a[i]}, a.name() + ", summed");
    } else if (a.size(dims_a[i]) == 1) {
      t2 = Sum(t2, {dims_b[i]}, b.name() + ", summed");
    } else {
      contracted *= a.size(dims_a[i]);
    }
  }
  auto holds = [](const Sizes& dims, int64_t dim) {
    return std::find(dims.begin(), dims.end(), dim) != dims.end();
  };
  Sizes order_a, order_b(dims_b), out_sizes;
  int64_t rows = 1, columns = 1;
  for (int64_t dim = 0; dim < a.dim(); ++dim) {
    if (holds(dims_a, dim)) continue;
    order_a.push_back(dim);
    rows *= t1.size(dim);
    out_sizes.push_back(t1.size(dim));
  }
  order_a.insert(order_a.end(), dims_a.begin(), dims_a.end());
  for (int64_t dim = 0; dim < b.dim(); ++dim) {
    if (holds(dims_b, dim)) continue;
    order_b.push_back(dim);
    columns *= t2.size(dim);
    out_sizes.push_back(t2.size(dim));
  }
  t1 = Permute(t1, order_a);
  t2 = Permute(t2, order_b);
  if (rows == 1 && columns == 1) {
    return Reshape(InnerProduct(t1, t2, contracted, name), out_sizes, name);
  }
  t1 = Reshape(t1, {rows, contracted}, a.name() + ", permuted");
  t2 = Reshape(t2, {contracted, columns}, b.name() + ", permuted");
  return Reshape(Mm(t1, t2, name), out_sizes, name);
}

Tensor Tape::InnerProduct(const Tensor& a, const Tensor& b, int64_t numel,
                          const std::string& name) {
  AddFlops(CheckedMul(2, numel));
  if (IsContiguous(a) && IsContiguous(b)) {
    const Tensor flat_a = Reshape(a, {numel}, ""), flat_b = Reshape(b, {numel}, "");
    Tensor out = Empty(name, {1}, a.element_bytes_);
    Record(&out, {flat_a, flat_b}, {flat_a.Detach(), flat_b.Detach()},
           [this](const Tensor&, const std::vector<Tensor>& saved) {
             std::vector<Tensor> grads;
             for (const Tensor* other : {&saved[0], &saved[1]}) {
               AddFlops(CheckedMul(2, other->numel()));
               grads.push_back(
                   Empty("d(" + other->name() + ")", other->sizes_, other->element_bytes_));
             }
             return grads;
           });
    return out;
  }
  auto squeeze = [this](const Tensor& t) {
    Sizes sizes;
    for (int64_t size : t.sizes_) {
      if (size != 1) sizes.push_back(size);
    }
    return Reshape(t, std::move(sizes), "");
  };
  const Tensor product = Mul(squeeze(a), squeeze(b), name + ", before its sum");
  Sizes all(product.dim());
  std::iota(all.begin(), all.end(), 0);
  return Sum(product, all, name);
}

Tensor Tape::SumproductPair(Tensor left, Tensor right, const Sizes& sum_dims,
                            const std::string& name) {
  if (sum_dims.empty()) return Mul(left, right, name);
  const int64_t dims = left.dim();
  Sizes both, left_only, right_only;
  int64_t both_size = 1, left_size = 1, right_size = 1, sum_size = 1;
  for (int64_t i = 0; i < dims; ++i) {
    const bool in_left = left.size(i) != 1, in_right = right.size(i) != 1;
    if (std::find(sum_dims.begin(), sum_dims.end(), i) != sum_dims.end()) {
      sum_size *= left.size(i);  // Only dimensions that both have are summed here.
    } else if (in_left && in_right) {
      both.push_back(i);
      both_size *= left.size(i);
    } else if (in_left) {
      left_only.push_back(i);
      left_size *= left.size(i);
    } else {
      right_only.push_back(i);
      right_size *= right.size(i);
    }
  }
  // Output dimensions of the right operand that all come before those of the left: trading places
  // saves a permute.
  if (!left_only.empty() && !right_only.empty() && right_only.back() < left_only.front()) {
    std::swap(left, right);
    std::swap(left_only, right_only);
    std::swap(left_size, right_size);
  }
  const std::string left_name = left.name(), right_name = right.name();
  auto concat = [](std::initializer_list<const Sizes*> parts) {
    Sizes all;
    for (const Sizes* part : parts) all.insert(all.end(), part->begin(), part->end());
    return all;
  };
  Sizes out_sizes;
  for (int64_t i : both) out_sizes.push_back(left.size(i));
  for (int64_t i : left_only) out_sizes.push_back(left.size(i));
  out_sizes.insert(out_sizes.end(), sum_dims.size(), 1);
  for (int64_t i : right_only) out_sizes.push_back(right.size(i));
  const Sizes out_order = concat({&both, &left_only, &sum_dims, &right_only});
  Sizes inverse(out_order.size());
  for (size_t i = 0; i < out_order.size(); ++i) inverse[out_order[i]] = static_cast<int64_t>(i);

  left =
      Reshape(Permute(left, out_order), {both_size, left_size, sum_size}, left_name + ", permuted");
  right = Reshape(Permute(right, concat({&both, &sum_dims, &right_only, &left_only})),
                  {both_size, sum_size, right_size}, right_name + ", permuted");
  Tensor result = Bmm(left, right, name);
  return Permute(Reshape(result, out_sizes, name), inverse);
}

Tensor Tape::Einsum(const std::vector<std::string>& labels, const std::string& out_labels,
                    std::vector<Tensor> operands, const std::vector<std::string>& names) {
  // Dimensions are aligned as: the output's, then those summed, in alphabetical order (capitals
  // first).
  std::string aligned = out_labels;
  std::string summed;
  for (const std::string& operand_labels : labels) {
    for (char c : operand_labels) {
      if (aligned.find(c) == std::string::npos && summed.find(c) == std::string::npos) summed += c;
    }
  }
  std::sort(summed.begin(), summed.end());
  aligned += summed;
  std::vector<int64_t> uses(aligned.size(), 0);
  for (size_t i = 0; i < operands.size(); ++i) {
    Sizes order(aligned.size(), -1);
    for (size_t dim = 0; dim < labels[i].size(); ++dim) {
      const size_t position = aligned.find(labels[i][dim]);
      order[position] = static_cast<int64_t>(dim);
      if (operands[i].size(static_cast<int64_t>(dim)) != 1) ++uses[position];
    }
    Sizes sizes = operands[i].sizes();
    for (int64_t& dim : order) {
      if (dim >= 0) continue;
      dim = static_cast<int64_t>(sizes.size());
      sizes.push_back(1);
      operands[i] = Reshape(operands[i], sizes, "");
    }
    operands[i] = Permute(operands[i], order);
  }
  Tensor result = std::move(operands[0]);
  for (size_t i = 1; i < operands.size(); ++i) {
    Tensor left = std::move(result), right = std::move(operands[i]);
    Sizes sum_dims, left_sums, right_sums;
    for (size_t dim = out_labels.size(); dim < aligned.size(); ++dim) {
      const int64_t d = static_cast<int64_t>(dim);
      const bool in_left = left.size(d) != 1, in_right = right.size(d) != 1;
      if (in_left && in_right) {
        if (--uses[dim] == 1) {
          sum_dims.push_back(d);
          uses[dim] = 0;
        }
      } else if (uses[dim] == 1 && (in_left || in_right)) {
        (in_left ? left_sums : right_sums).push_back(d);
        uses[dim] = 0;
      }
    }
    if (!left_sums.empty()) left = Sum(left, left_sums, left.name() + ", summed");
    if (!right_sums.empty()) right = Sum(right, right_sums, right.name() + ", summed");
    result = SumproductPair(left, right, sum_dims, names[i - 1]);
  }
  if (summed.empty()) return result;
  Sizes sizes(result.sizes().begin(), result.sizes().begin() + out_labels.size());
  return Reshape(result, sizes, names.back());
}

Tensor Tape::Custom(const std::vector<Tensor>& inputs, const std::vector<Tensor>& saved,
                    const std::function<Tensor()>& forward, Backward backward) {
  const bool recording = std::exchange(recording_, false);
  Tensor out = forward();
  recording_ = recording;
  std::vector<Tensor> detached;
  for (const Tensor& t : saved) detached.push_back(t.Detach());
  Record(&out, inputs, std::move(detached), std::move(backward));
  return out;
}

void Tape::RunBackward(const std::vector<Tensor>& y, const std::vector<Tensor>& dy) {
  const bool recording = std::exchange(recording_, false);
  // How many gradients each node waits for.
  std::vector<Node*> stack;
  std::set<Node*> seen;
  auto expect = [&](Node* node) {
    ++node->expected;
    if (seen.insert(node).second) {
      node->arrived.resize(node->outputs);
      stack.push_back(node);
    }
  };
  for (const Tensor& root : y) expect(root.grad_fn_.get());
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    for (const Node::Edge& edge : node->inputs) {
      if (edge.node) expect(edge.node.get());
    }
  }

  auto runs_later = [](const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) {
    return a->sequence < b->sequence;
  };
  std::vector<std::shared_ptr<Node>> ready;
  auto arrive = [&](const std::shared_ptr<Node>& node, int64_t output_nr, Tensor grad) {
    Tensor& sum = node->arrived[output_nr];
    if (!sum.defined()) {
      sum = std::move(grad);
    } else if (sum.buffer_.use_count() > 1 || sum.is_view_) {
      sum = Elementwise(sum, grad, "sum of d(" + node->name + ")");
    }
    if (--node->expected > 0) return;
    ready.push_back(node);
    std::push_heap(ready.begin(), ready.end(), runs_later);
  };
  for (size_t i = 0; i < y.size(); ++i) arrive(y[i].grad_fn_, y[i].output_nr_, dy[i]);
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), runs_later);
    const std::shared_ptr<Node> node = std::move(ready.back());
    ready.pop_back();
    std::vector<Tensor> arrived = std::exchange(node->arrived, {});
    if (node->is_leaf) {
      Tensor grad = std::move(arrived.front());
      // The gradient layout contract: kept as it is only if laid out as the leaf, and not shared
      // with the caller's dy.
      bool keep = true;
      for (size_t i = 0; i < node->leaf_sizes.size(); ++i) {
        if (node->leaf_sizes[i] == 1 ? grad.strides_[i] == 0
                                     : grad.strides_[i] != node->leaf_strides[i]) {
          keep = false;
        }
      }
      if (!keep) grad = Copy(grad, node->leaf_sizes, "gradient of " + node->name);
      gradients_.emplace_back(node.get(), std::move(grad));
      continue;
    }
    part_ = node->part;
    std::vector<Tensor> grads = node->backward(arrived, node->saved);
    part_.clear();
    arrived.clear();
    node->saved.clear();
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      if (!node->inputs[i].node) continue;
      arrive(node->inputs[i].node, node->inputs[i].output_nr, std::move(grads[i]));
    }
  }
  recording_ = recording;
}

}  // namespace ttbench::cost
