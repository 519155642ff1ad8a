// The tape's rules against LibTorch's tensors: sizes, strides, and what is a view and what a copy.
#include "kernels/cost/tape.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ttbench::cost {
namespace {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(bound));
  }
  // 1 to 5 dimensions of 1 to 4.
  Sizes RandomSizes() {
    Sizes sizes(1 + Below(5));
    for (int64_t& size : sizes) size = 1 + Below(4);
    return sizes;
  }
  Sizes Order(int64_t dims) {
    Sizes order(dims);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), engine_);
    return order;
  }
  // Other sizes of the same product: neighbours joined, one split, a one put in.
  Sizes Regroup(Sizes sizes) {
    for (int64_t step = 1 + Below(3); step > 0; --step) {
      const int64_t at = sizes.empty() ? 0 : Below(static_cast<int64_t>(sizes.size()));
      switch (Below(5)) {
        case 0:
        case 1:
        case 2:
          if (at + 1 < static_cast<int64_t>(sizes.size())) {
            sizes[at] *= sizes[at + 1];
            sizes.erase(sizes.begin() + at + 1);
          }
          break;
        case 3:
          for (const int64_t factor : {2, 3}) {
            if (sizes[at] % factor != 0) continue;
            sizes[at] /= factor;
            sizes.insert(sizes.begin() + at + Below(2), factor);
            break;
          }
          break;
        default:
          sizes.insert(sizes.begin() + at, 1);
      }
    }
    return sizes;
  }

 private:
  std::mt19937_64 engine_;
};

std::string Text(const Sizes& values) {
  std::string text;
  for (const int64_t value : values) text += std::to_string(value) + " ";
  return "[ " + text + "]";
}

// The same program run on a symbolic and on a real tensor.
struct Pair {
  Tensor model;
  at::Tensor real;
};

void ExpectSameLayout(const Tensor& model, const at::Tensor& real) {
  EXPECT_EQ(at::IntArrayRef(model.sizes()), real.sizes());
  EXPECT_EQ(at::IntArrayRef(model.strides()), real.strides());
}

// One random step of the program. Returns what it was, for the trace.
std::string Step(Random* random, Tape* tape, Pair* pair) {
  std::string step;
  const Ledger::Handle buffer_before = pair->model.buffer();
  const at::Tensor real_before = pair->real;
  if (random->Below(2) == 0) {
    const Sizes order = random->Order(pair->model.dim());
    step = "permute " + Text(order);
    pair->model = tape->Permute(pair->model, order);
    pair->real = pair->real.permute(order);
  } else {
    const Sizes sizes = random->Regroup(pair->model.sizes());
    step = "reshape " + Text(sizes);
    pair->model = tape->Reshape(pair->model, sizes, "copy");
    pair->real = pair->real.reshape(sizes);
  }
  const bool real_copied = !pair->real.is_alias_of(real_before);
  EXPECT_EQ(pair->model.buffer() != buffer_before, real_copied) << step;
  return step + (real_copied ? " copied" : "");
}

TEST(TapeTest, ViewsAndCopiesAsLibTorchDoes) {
  Random random(5);
  int copies = 0, views = 0;
  for (int program = 0; program < 2000; ++program) {
    Ledger ledger;
    Tape tape(&ledger, 4, /*with_grad=*/false);
    const Sizes sizes = random.RandomSizes();
    Pair pair{tape.Empty("start", sizes), at::empty(sizes)};
    std::string trace = Text(sizes);
    for (int step = 0; step < 6; ++step) {
      const Ledger::Handle before = pair.model.buffer();
      trace += ", " + Step(&random, &tape, &pair);
      ++(pair.model.buffer() == before ? views : copies);
      SCOPED_TRACE(trace);
      ExpectSameLayout(pair.model, pair.real);
      ASSERT_FALSE(HasFailure());
    }
  }
  // Both answers were put to the test.
  EXPECT_GT(copies, 300);
  EXPECT_GT(views, 300);
}

TEST(TapeTest, ContiguousCopiesOnlyWhatIsNot) {
  Random random(6);
  int copies = 0;
  for (int program = 0; program < 300; ++program) {
    Ledger ledger;
    Tape tape(&ledger, 4, /*with_grad=*/false);
    const Sizes sizes = random.RandomSizes();
    const Sizes order = random.Order(static_cast<int64_t>(sizes.size()));
    SCOPED_TRACE(Text(sizes) + " by " + Text(order));
    const Tensor model = tape.Permute(tape.Empty("start", sizes), order);
    const at::Tensor real = at::empty(sizes).permute(order);
    const Tensor model_out = tape.Contiguous(model, "copy");
    const at::Tensor real_out = real.contiguous();
    ExpectSameLayout(model_out, real_out);
    const bool copied = !real_out.is_alias_of(real);
    EXPECT_EQ(model_out.buffer() != model.buffer(), copied);
    copies += copied;
  }
  EXPECT_GT(copies, 50);
}

TEST(TapeTest, CopiesWhatHasNoHistoryWithout) {
  Ledger ledger;
  Tape tape(&ledger, 4, /*with_grad=*/true);
  const Tensor transposed = tape.Transpose(tape.Leaf("leaf", {5, 7}));
  EXPECT_FALSE(tape.Contiguous(transposed.Detach(), "copy").requires_grad());
  EXPECT_TRUE(tape.Contiguous(transposed, "copy").requires_grad());
}

// The output's layout follows the operands': its order of dimensions is theirs, dimensions that are
// broadcast having no say.
TEST(TapeTest, LaysOutAProductAsLibTorchDoes) {
  Random random(7);
  int permuted = 0;
  for (int program = 0; program < 2000; ++program) {
    Ledger ledger;
    Tape tape(&ledger, 4, /*with_grad=*/false);
    const Sizes sizes = random.RandomSizes();
    const int64_t dims = static_cast<int64_t>(sizes.size());
    std::string trace;
    auto operand = [&] {
      // Stored in a random order, with some dimensions of size 1 to be broadcast.
      const Sizes order = random.Order(dims);
      Sizes own = sizes, stored(dims);
      for (int64_t& size : own) {
        if (random.Below(4) == 0) size = 1;
      }
      Sizes inverse(dims);
      for (int64_t i = 0; i < dims; ++i) {
        stored[i] = own[order[i]];
        inverse[order[i]] = i;
      }
      trace += Text(stored) + " by " + Text(inverse) + "; ";
      return Pair{tape.Permute(tape.Empty("operand", stored), inverse),
                  at::empty(stored).permute(inverse)};
    };
    const Pair a = operand(), b = operand();
    SCOPED_TRACE(trace);
    const Tensor model = tape.Mul(a.model, b.model, "product");
    const at::Tensor real = at::mul(a.real, b.real);
    ASSERT_EQ(at::IntArrayRef(model.sizes()), real.sizes());
    for (int64_t dim = 0; dim < dims; ++dim) {
      // The stride of a dimension of size 1 addresses nothing.
      if (model.size(dim) > 1) {
        EXPECT_EQ(model.strides()[dim], real.stride(dim)) << dim;
      }
    }
    permuted += !real.is_contiguous();
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(permuted, 300);
}

TEST(TapeTest, ExpandsWithStrideZero) {
  Ledger ledger;
  Tape tape(&ledger, 4, /*with_grad=*/false);
  const Tensor expanded = tape.Expand(tape.Empty("a", {1, 3, 1}), {5, 3, 2});
  const at::Tensor real = at::empty({1, 3, 1}).expand({5, 3, 2});
  ExpectSameLayout(expanded, real);
  EXPECT_EQ(ledger.live_bytes(), 3 * 4);
}

TEST(TapeTest, CastsIntoAnEqualLayoutAndBack) {
  Ledger ledger;
  Tape tape(&ledger, 2, /*with_grad=*/true);
  const Tensor leaf = tape.Leaf("leaf", {5, 7});
  {
    const Tensor wide = tape.Cast(tape.Transpose(leaf), 4, "wide");
    ExpectSameLayout(wide, at::empty({5, 7}, at::kBFloat16).t().to(at::kFloat));
    EXPECT_EQ(wide.buffer()->bytes(), 4 * 5 * 7);
    // What is made from it has its elements.
    const Tensor other = tape.Cast(tape.Leaf("other", {5, 3}), 4, "other, wide");
    const Tensor y = tape.Mm(wide, other, "y");
    EXPECT_EQ(y.buffer()->bytes(), 4 * 7 * 3);
    tape.RunBackward(y, tape.Empty("dy", {7, 3}, 4));
  }
  EXPECT_EQ(tape.Gradient(leaf).element_bytes(), 2);
  EXPECT_EQ(tape.Gradient(leaf).buffer()->bytes(), 2 * 5 * 7);
}

TEST(TapeTest, CountsAMultiplyAddAsTwoOperations) {
  Ledger ledger;
  Tape tape(&ledger, 8, /*with_grad=*/true);
  const Tensor a = tape.Leaf("a", {5, 7}), b = tape.Leaf("b", {7, 3});
  Tensor y = tape.Mm(a, b, "y");
  EXPECT_EQ(tape.flops(), 2 * 5 * 7 * 3);
  EXPECT_EQ(y.buffer()->bytes(), 5 * 3 * 8);
  tape.RunBackward(y, tape.Empty("dy", {5, 3}));
  EXPECT_EQ(tape.flops(), 3 * 2 * 5 * 7 * 3);
}

TEST(TapeTest, KeepsGradientsOfLeavesInTheirLayout) {
  Ledger ledger;
  Tape tape(&ledger, 4, /*with_grad=*/true);
  const Tensor x = tape.Leaf("x", {5, 7}), weight = tape.Leaf("weight", {3, 7});
  EXPECT_FALSE(tape.Gradient(x).defined());
  const int64_t base_bytes = ledger.live_bytes();
  {
    const Tensor y = tape.Mm(x, tape.Transpose(weight), "y");
    tape.RunBackward(y, tape.Empty("dy", {5, 3}));
  }
  EXPECT_EQ(tape.Gradient(x).strides(), x.strides());
  EXPECT_EQ(tape.Gradient(weight).sizes(), weight.sizes());
  EXPECT_EQ(tape.Gradient(weight).strides(), weight.strides());
  EXPECT_EQ(ledger.live_bytes(), base_bytes + (5 * 7 + 3 * 7) * 4);
  tape.ClearGradient(x);
  EXPECT_FALSE(tape.Gradient(x).defined());
  tape.ClearGradients();
  EXPECT_EQ(ledger.live_bytes(), base_bytes);
}

TEST(TapeTest, RecordsNothingWithoutGrad) {
  Ledger ledger;
  Tape tape(&ledger, 4, /*with_grad=*/false);
  const Tensor x = tape.Leaf("x", {5, 7});
  EXPECT_FALSE(x.requires_grad());
  const Tensor y = tape.Mm(x, tape.Transpose(x), "y");
  EXPECT_FALSE(y.requires_grad());
}

TEST(TapeTest, HoldsWhatACustomFunctionSavesAndNothingElse) {
  Ledger ledger;
  Tape tape(&ledger, 4, /*with_grad=*/true);
  const Tensor x = tape.Leaf("x", {5, 7}), weight = tape.Leaf("weight", {7, 3});
  const int64_t base_bytes = ledger.live_bytes();
  const Tensor y = tape.Custom(
      {x, weight}, {x, weight},
      [&] {
        return tape.Mm(tape.Mm(x, weight, "inner"), tape.Empty("square", {3, 3}), "y");
      },
      [&tape](const Tensor& dy, const std::vector<Tensor>& saved) {
        return std::vector<Tensor>{tape.Mm(dy, tape.Transpose(saved[1]), "d(x)"),
                                   tape.Mm(tape.Transpose(saved[0]), dy, "d(weight)")};
      });
  EXPECT_EQ(ledger.live_bytes(), base_bytes + 5 * 3 * 4);  // y alone.
  tape.RunBackward(y, tape.Empty("dy", {5, 3}));
  EXPECT_EQ(tape.Gradient(x).sizes(), x.sizes());
  EXPECT_EQ(tape.Gradient(weight).sizes(), weight.sizes());
}

// Gradients that meet are added up in the first; a leaf used three times has one gradient, and at
// most one more in flight.
TEST(TapeTest, GradientsMeetInTheFirst) {
  Ledger ledger;
  Tape tape(&ledger, 4, /*with_grad=*/true);
  const Tensor x = tape.Leaf("x", {5, 7}), weight = tape.Leaf("weight", {7, 3});
  const int64_t base_bytes = ledger.live_bytes();
  std::vector<Tensor> y, dy;
  for (int step = 0; step < 3; ++step) {
    y.push_back(tape.Mm(x, weight, "y"));
    dy.push_back(tape.Empty("dy", {5, 3}));
  }
  const int64_t before_bytes = ledger.live_bytes();
  ledger.ResetPeak();
  tape.RunBackward(y, dy);
  EXPECT_EQ(ledger.peak_bytes(), before_bytes + 2 * (5 * 7 + 7 * 3) * 4);
  y.clear();
  dy.clear();
  EXPECT_EQ(ledger.live_bytes(), base_bytes + (5 * 7 + 7 * 3) * 4);
}

// Views are no place to add to: the gradients of a concatenation are views of one tensor.
TEST(TapeTest, AViewTakesNothingIn) {
  Ledger ledger;
  Tape tape(&ledger, 4, /*with_grad=*/true);
  const Tensor x = tape.Leaf("x", {5, 7}), z = tape.Leaf("z", {5, 2});
  const Tensor other = tape.Tanh(x, "other");
  const Tensor joined = tape.Cat(x, z, "joined");
  tape.RunBackward({other, joined}, {tape.Empty("dy", {5, 7}), tape.Empty("dy", {5, 9})});
  EXPECT_EQ(tape.Gradient(x).strides(), x.strides());
  EXPECT_EQ(tape.Gradient(z).strides(), z.strides());
  EXPECT_EQ(tape.Gradient(x).name(), "sum of d(x)");
  EXPECT_EQ(tape.Gradient(z).name(), "gradient of z");
}

TEST(TapeTest, ChunksShareOneNode) {
  Ledger ledger;
  Tape tape(&ledger, 4, /*with_grad=*/true);
  const Tensor x = tape.Leaf("x", {5, 8});
  std::vector<Tensor> y;
  std::vector<Tensor> dy;
  for (const Tensor& part : tape.Chunk(x, 4)) {
    EXPECT_EQ(part.sizes(), (Sizes{5, 2}));
    EXPECT_EQ(part.strides(), (Sizes{8, 1}));
    y.push_back(tape.Tanh(part, "y"));
    dy.push_back(tape.Empty("dy", {5, 2}));
  }
  tape.RunBackward(y, dy);
  EXPECT_EQ(tape.Gradient(x).sizes(), x.sizes());
}

TEST(TapeTest, NamesBuffersOfAPartOfTheProgram) {
  Ledger ledger;
  Tape tape(&ledger, 4, /*with_grad=*/true);
  const Tensor x = tape.Leaf("x", {5, 7});
  Tensor y;
  {
    const Tape::Part part(&tape, "part");
    y = tape.Tanh(x, "y");
  }
  EXPECT_EQ(y.name(), "part: y");
  EXPECT_EQ(tape.Tanh(y, "z").name(), "z");
  tape.RunBackward(y, tape.Empty("dy", {5, 7}));
  EXPECT_EQ(tape.Gradient(x).name(), "d(part: y's input)");
  EXPECT_EQ(tape.Empty("after", {1}).name(), "after");
}

// The gradient of what has no history is not asked for.
TEST(TapeTest, ConstantsGetNoGradient) {
  Ledger ledger;
  Tape tape(&ledger, 4, /*with_grad=*/true);
  const Tensor weight = tape.Leaf("weight", {7, 3}), constant = tape.Empty("constant", {5, 7});
  const Tensor y = tape.Mm(constant, weight, "y");
  tape.RunBackward(y, tape.Empty("dy", {5, 3}));
  // One product forward, one for the weight's gradient.
  EXPECT_EQ(tape.flops(), 2 * 2 * 5 * 7 * 3);
  EXPECT_TRUE(tape.Gradient(weight).defined());
  EXPECT_FALSE(tape.Add(constant, constant, "sum").requires_grad());
}

TEST(TapeTest, RefusesSizesThatDoNotFit) {
  Ledger ledger;
  Tape tape(&ledger, 4, /*with_grad=*/false);
  const Tensor a = tape.Empty("a", {5, 7}), b = tape.Empty("b", {2, 5, 7});
  EXPECT_THROW(tape.Reshape(a, {5, 8}, ""), std::logic_error);
  EXPECT_THROW(tape.Mm(a, a, ""), std::logic_error);
  EXPECT_THROW(tape.Mm(a, b, ""), std::logic_error);
  EXPECT_THROW(tape.Bmm(b, b, ""), std::logic_error);
}

}  // namespace
}  // namespace ttbench::cost
