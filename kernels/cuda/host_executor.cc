#include "kernels/cuda/host_executor.h"

#include <algorithm>
#include <stdexcept>

namespace ttbench {
namespace {

template <typename Element>
class Host {
 public:
  Host(const GemmPlan& plan, const PlanPointers& pointers) : plan_(plan), pointers_(pointers) {}

  void operator()(const GemmStep& step) const {
    const Element* a = At(step.a);
    const Element* b = At(step.b);
    Element* c = At(step.c);
    for (int64_t i = 0; i < step.batch; ++i) {
      Multiply(step, a, b, c);
      a += step.a.batch_stride;
      b += step.b.batch_stride;
      c += step.c.batch_stride;
    }
  }
  void operator()(const SwapStep& step) const {
    const Element* from = At(step.from);
    Element* to = At(step.to);
    for (int64_t o = 0; o < step.outer; ++o)
      for (int64_t b = 0; b < step.b; ++b)
        for (int64_t a = 0; a < step.a; ++a, to += step.inner)
          std::copy_n(from + ((o * step.a + a) * step.b + b) * step.inner, step.inner, to);
  }
  void operator()(const SumStep& step) const {
    const Element* from = At(step.from);
    Element* to = At(step.to);
    std::fill_n(to, step.elements, Element{0});
    for (int64_t s = 0; s < step.slices; ++s)
      for (int64_t i = 0; i < step.elements; ++i) to[i] += from[s * step.elements + i];
  }

 private:
  Element* At(BufferId id) const {
    return reinterpret_cast<Element*>(pointers_.Of(plan_.buffers[static_cast<size_t>(id)]));
  }
  Element* At(const Operand& operand) const {
    return At(operand.buffer) + operand.offset_bytes / static_cast<int64_t>(sizeof(Element));
  }

  static void Multiply(const GemmStep& step, const Element* a, const Element* b, Element* c) {
    const int64_t a_row = step.transpose_a ? 1 : step.a.ld, a_k = step.transpose_a ? step.a.ld : 1;
    const int64_t b_k = step.transpose_b ? 1 : step.b.ld,
                  b_column = step.transpose_b ? step.b.ld : 1;
    for (int64_t i = 0; i < step.m; ++i) {
      for (int64_t j = 0; j < step.n; ++j) {
        Element sum = 0;
        for (int64_t p = 0; p < step.k; ++p)
          sum += a[i * a_row + p * a_k] * b[p * b_k + j * b_column];
        Element& result = c[i * step.c.ld + j];
        result = step.accumulate ? result + sum : sum;
      }
    }
  }

  const GemmPlan& plan_;
  const PlanPointers& pointers_;
};

template <typename Element>
void Run(const GemmPlan& plan, const PlanPass& pass, const PlanPointers& pointers) {
  const Host<Element> host(plan, pointers);
  for (const Step& step : pass.steps) std::visit(host, step);
}

}  // namespace

void RunOnHost(const GemmPlan& plan, const PlanPass& pass, const PlanPointers& pointers) {
  switch (plan.dtype) {
    case DType::kFloat32:
      return Run<float>(plan, pass, pointers);
    case DType::kFloat64:
      return Run<double>(plan, pass, pointers);
    case DType::kBFloat16:
      throw std::invalid_argument("the host executes plans of float32 and float64");
  }
}

}  // namespace ttbench
