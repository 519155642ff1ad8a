// Programs run by LibTorch and on the tape allocate and release the same bytes in the same order,
// forward and backward.
#include "kernels/ops.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "benchmarks/memory_meter.h"
#include "kernels/cost/ledger.h"

namespace ttbench {
namespace {

using cost::Sizes;

struct Event {
  int64_t bytes;
  std::string name;
};

// The order in which buffers are released together says nothing.
template <typename Events>
std::vector<Event> Sorted(const Events& events, std::string Events::value_type::*name) {
  std::vector<Event> sorted;
  for (const auto& event : events) sorted.push_back({event.bytes, event.*name});
  auto released = [](const Event& event) { return event.bytes < 0; };
  for (auto first = sorted.begin(); first != sorted.end();) {
    first = std::find_if(first, sorted.end(), released);
    const auto last = std::find_if_not(first, sorted.end(), released);
    std::sort(first, last, [](const Event& a, const Event& b) { return a.bytes < b.bytes; });
    first = last;
  }
  return sorted;
}

struct Indices {
  Sizes sizes;
  int64_t below;
};

struct Arguments {
  std::vector<Sizes> leaves;     // Tensors whose gradients are wanted.
  std::vector<Sizes> constants;  // Others.
  std::vector<Indices> indices;  // int64, without repeats as far as `below` allows.
};

template <typename Tensor>
struct Operands {
  std::vector<Tensor> leaves, constants, indices;
};

// Each operand and the result pass through an operator that makes gradients of its own: none is
// shared with the caller or kept by a leaf.
template <typename Ops, typename Program>
typename Ops::Tensor Run(const Ops& ops, Operands<typename Ops::Tensor> operands,
                         const Program& program) {
  for (auto& leaf : operands.leaves) leaf = ops.Negate(leaf, "operand");
  return ops.Negate(program(ops, operands), "result");
}

// Program: y = program(ops, operands), for any Ops.
template <typename Program>
void ExpectSameBytes(const Arguments& arguments, const Program& program) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(std::string(c10::toString(dtype)) + ", " + std::to_string(threads) + " threads");
      at::set_num_threads(threads);
      Operands<at::Tensor> real;
      for (const Sizes& sizes : arguments.leaves)
        real.leaves.push_back(at::ones(sizes, dtype).requires_grad_());
      for (const Sizes& sizes : arguments.constants)
        real.constants.push_back(at::ones(sizes, dtype));
      for (const Indices& indices : arguments.indices)
        real.indices.push_back(at::randint(indices.below, indices.sizes, at::kLong));
      std::vector<Event> measured;
      {
        MemoryMeter meter;
        meter.StartRecording();
        {
          const at::Tensor y = Run(RealOps{}, real, program);
          const at::Tensor dy = at::empty(y.sizes(), dtype).fill_(1);
          torch::autograd::backward({y}, {dy});
        }
        for (at::Tensor& leaf : real.leaves) {
          EXPECT_TRUE(leaf.grad().defined());
          leaf.mutable_grad() = at::Tensor();
        }
        measured = Sorted(meter.StopRecording(), &MemoryMeter::Event::site);
      }
      at::set_num_threads(1);

      cost::Ledger ledger;
      cost::Tape tape(&ledger, static_cast<int64_t>(c10::elementSize(dtype)), /*with_grad=*/true,
                      threads);
      Operands<cost::Tensor> traced;
      for (const Sizes& sizes : arguments.leaves) traced.leaves.push_back(tape.Leaf("leaf", sizes));
      for (const Sizes& sizes : arguments.constants)
        traced.constants.push_back(tape.Empty("constant", sizes));
      for (const Indices& indices : arguments.indices)
        traced.indices.push_back(tape.Empty("indices", indices.sizes, 8));
      const size_t before = ledger.events().size();
      {
        const cost::Tensor y = Run(TracedOps{&tape}, traced, program);
        const cost::Tensor dy = tape.Empty("dy", y.sizes());
        tape.RunBackward(y, dy);
      }
      tape.ClearGradients();
      const std::vector<Event> model = Sorted(
          std::vector<cost::Ledger::Event>(
              ledger.events().begin() + static_cast<std::ptrdiff_t>(before), ledger.events().end()),
          &cost::Ledger::Event::name);

      bool same = measured.size() == model.size();
      for (size_t i = 0; same && i < model.size(); ++i) same = measured[i].bytes == model[i].bytes;
      std::string beside;
      for (size_t i = 0; !same && i < std::max(measured.size(), model.size()); ++i) {
        auto show = [&](const std::vector<Event>& events) {
          return i < events.size() ? std::to_string(events[i].bytes) + " (" + events[i].name + ")"
                                   : std::string("none");
        };
        beside += "measured " + show(measured) + ", model " + show(model) + "\n";
      }
      EXPECT_TRUE(same) << beside;
      if (!same) return;
    }
  }
}

TEST(OpsTest, SumsWithFewerDimensionsAndWithConstants) {
  for (const int64_t rows : {1, 7}) {
    ExpectSameBytes({{{rows, 3, 5}, {3, 5}}, {}, {}}, [](const auto& ops, const auto& in) {
      return ops.Add(in.leaves[0], in.leaves[1], "y");
    });
    ExpectSameBytes({{{rows, 3, 5}}, {{3, 5}}, {}}, [](const auto& ops, const auto& in) {
      return ops.Add(in.leaves[0], in.constants[0], "y");
    });
  }
}

TEST(OpsTest, InPlace) {
  ExpectSameBytes(
      {{{4, 3, 5}, {4, 5, 6}, {4, 3, 6}}, {{3, 6}}, {}}, [](const auto& ops, const auto& in) {
        return ops.AddInPlace(
            ops.ScaleInPlace(ops.AddInPlace(ops.Bmm(in.leaves[0], in.leaves[1], "a"), in.leaves[2]),
                             0.5),
            in.constants[0]);
      });
}

TEST(OpsTest, ProductsWithConstants) {
  ExpectSameBytes({{{5, 4}}, {{3, 4}}, {}}, [](const auto& ops, const auto& in) {
    return ops.Mm(in.constants[0], ops.Permute(in.leaves[0], {1, 0}), "y");
  });
  ExpectSameBytes({{{3, 4}}, {{4, 5}}, {}}, [](const auto& ops, const auto& in) {
    return ops.Mm(ops.Relu(in.leaves[0], "relu"), in.constants[0], "y");
  });
  ExpectSameBytes({{{5, 4}, {5}}, {{3, 4}}, {}}, [](const auto& ops, const auto& in) {
    return ops.Linear(in.constants[0], in.leaves[0], in.leaves[1], "y");
  });
}

TEST(OpsTest, OfOneOperand) {
  const Arguments arguments{{{6, 5}}, {}, {}};
  ExpectSameBytes(arguments, [](const auto& ops, const auto& in) {
    return ops.Relu(ops.Negate(in.leaves[0], "a"), "y");
  });
  ExpectSameBytes(arguments, [](const auto& ops, const auto& in) {
    return ops.LogSoftmax(ops.Negate(in.leaves[0], "a"), "y");
  });
  ExpectSameBytes(arguments, [](const auto& ops, const auto& in) {
    return ops.Negate(ops.Permute(in.leaves[0], {1, 0}), "y");
  });
  // Adds to what has no history of its own.
  ExpectSameBytes(arguments, [](const auto& ops, const auto& in) {
    return ops.Add(in.leaves[0], ops.Detach(in.leaves[0]), "y");
  });
}

TEST(OpsTest, LayerNorm) {
  for (const int64_t rows : {1, 9, 400}) {
    ExpectSameBytes({{{rows, 12}, {12}, {12}}, {}, {}}, [](const auto& ops, const auto& in) {
      return ops.LayerNorm(ops.Relu(in.leaves[0], "a"), in.leaves[1], in.leaves[2], "y");
    });
  }
}

TEST(OpsTest, JoinsAndPartsOfRows) {
  ExpectSameBytes({{{4, 5}, {3, 5}}, {}, {}}, [](const auto& ops, const auto& in) {
    return ops.CatRows(ops.Relu(in.leaves[0], "a"), in.leaves[1], "y");
  });
  ExpectSameBytes({{{4, 5}}, {{3, 5}}, {}}, [](const auto& ops, const auto& in) {
    return ops.CatRows(in.constants[0], in.leaves[0], "y");
  });
  // The second part is not used.
  ExpectSameBytes({{{9, 5}}, {}, {}}, [](const auto& ops, const auto& in) {
    const auto parts = ops.SplitRows(in.leaves[0], {2, 4, 3});
    return ops.CatRows(ops.Relu(parts[0], "a"), ops.Relu(parts[2], "b"), "y");
  });
  ExpectSameBytes({{{4, 6, 5}}, {}, {}}, [](const auto& ops, const auto& in) {
    return ops.Relu(ops.From(in.leaves[0], 1, 2), "y");
  });
}

// The shift of relative scores: permuted, padded, read as shorter rows.
TEST(OpsTest, PaddedShift) {
  for (const Sizes& sizes : std::vector<Sizes>{{2, 3, 4, 5}, {1, 3, 1, 5}, {2, 1, 3, 4}}) {
    const int64_t batch = sizes[0] * sizes[2], length = sizes[1], keys = sizes[3];
    ExpectSameBytes({{sizes}, {}, {}}, [&](const auto& ops, const auto& in) {
      auto scores = ops.PadFront(ops.Permute(in.leaves[0], {2, 0, 1, 3}), "padded");
      scores = ops.From(ops.View(scores, {batch, keys + 1, length}), 1, 1);
      return ops.Relu(ops.View(scores, {batch, length, keys}), "y");
    });
  }
}

TEST(OpsTest, RowsByIndex) {
  ExpectSameBytes({{{20, 4}}, {}, {{{7}, 20}}}, [](const auto& ops, const auto& in) {
    return ops.ScaleInPlace(ops.Embedding(in.leaves[0], in.indices[0], "a"), 2);
  });
  ExpectSameBytes({{{20, 4}}, {}, {{{7}, 20}}}, [](const auto& ops, const auto& in) {
    return ops.SelectRows(ops.Relu(in.leaves[0], "a"), in.indices[0], "y");
  });
  ExpectSameBytes({{{9}, {4}}, {}, {{{4}, 9}}}, [](const auto& ops, const auto& in) {
    return ops.AddToRows(ops.Relu(in.leaves[0], "a"), in.indices[0], ops.Relu(in.leaves[1], "b"),
                         "y");
  });
  for (const int64_t columns : {6, 3000}) {
    ExpectSameBytes({{{8, columns}}, {}, {{{8, 1}, columns}}}, [](const auto& ops, const auto& in) {
      return ops.View(ops.Gather(ops.LogSoftmax(in.leaves[0], "a"), in.indices[0], "y"), {8});
    });
  }
}

}  // namespace
}  // namespace ttbench
