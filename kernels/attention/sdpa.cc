// LibTorch's scaled_dot_product_attention with scale 1: one head of size H, the context as keys and
// values.
//
//   sdpa          step by step, one query each
//   sdpa-batched  all steps at once, T queries
//
// On the CPU its flash kernel runs: never the whole [T, L] scores, statistics of the softmax kept.
// The model follows aten/src/ATen/native/cpu/FlashAttentionKernel.cpp of LibTorch 2.11.
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/autograd_variant.h"

namespace ttbench {
namespace {

// sdp::SDPBackend of LibTorch.
constexpr int64_t kFlashBackend = 1;

// q [B, 1, queries, H]; kv [B, 1, L, H].
at::Tensor Attend(const RealOps&, const at::Tensor& q, const at::Tensor& kv) {
  return at::scaled_dot_product_attention(q, kv, kv, /*attn_mask=*/std::nullopt,
                                          /*dropout_p=*/0.0, /*is_causal=*/false, /*scale=*/1.0);
}

// How many threads get some of `items` from at::parallel_for with a grain of 1.
int64_t BusyThreads(int64_t items, int64_t threads) {
  const int64_t each = at::divup(items, std::min(items, threads));
  return at::divup(items, each);
}

// What LibTorch's flash kernel allocates: the output, a statistic of each query, and for each
// thread the scratch of a block of queries and keys; in the backward, besides, the sums of a block
// of queries by each thread that has work.
cost::Tensor Attend(const TracedOps& ops, const cost::Tensor& q, const cost::Tensor& kv) {
  cost::Tape& tape = *ops.tape;
  const int64_t batch = q.size(0), queries = q.size(2), hidden = q.size(3), keys = kv.size(2);
  const int64_t query_block = std::min<int64_t>(queries, queries >= 768   ? 256
                                                         : queries >= 192 ? 64
                                                                          : 32);
  const int64_t key_block = std::min<int64_t>(keys, 512);
  const cost::Tensor out = tape.Empty("c", {batch, queries, 1, hidden});
  const cost::Tensor statistics = tape.Empty("softmax statistics", {batch, queries, 1});
  return tape.Custom(
      {q, kv, kv}, {q, kv, out, statistics},
      [&] {
        tape.Empty("flash scratch", {tape.threads(), query_block * (key_block + 2 + hidden)});
        tape.AddFlops(4 * batch * queries * keys * hidden);
        return tape.Permute(out, {0, 2, 1, 3});
      },
      [&tape, query_block, key_block](const cost::Tensor& grad,
                                      const std::vector<cost::Tensor>& saved) {
        const cost::Tensor dq = tape.Empty("d(q)", saved[0].sizes());
        const cost::Tensor dk = tape.Empty("d(context as keys)", saved[1].sizes());
        const cost::Tensor dv = tape.Empty("d(context as values)", saved[1].sizes());
        const cost::Tensor dc = tape.Contiguous(grad, "d(c), contiguous");
        const cost::Tensor scratch =
            tape.Empty("flash scratch", {tape.threads(), 2 * query_block * key_block});
        const cost::Tensor sums =
            tape.Empty("flash sums", {BusyThreads(saved[0].size(0), tape.threads()), query_block});
        tape.AddFlops(10 * saved[0].numel() * saved[1].size(2));
        return std::vector<cost::Tensor>{dq, dk, dv};
      });
}

struct Sdpa {
  bool batched;

  static constexpr bool kIsAdditive = false;
  std::string name() const { return batched ? "sdpa-batched" : "sdpa"; }
  std::string Algorithm(const AttentionProblem& problem) const {
    const std::string form = batched ? "all steps at once" : "step by step";
    // Asking would set up the device.
    if (problem.device == Device::kCuda) return form + ", backend of LibTorch's choice";
    const std::string backend = Backend(problem) == kFlashBackend ? "flash" : "math";
    return form + ", " + backend + " backend";
  }
  bool takes_all_steps() const { return batched; }

  // Which backend LibTorch chooses for the problem on the CPU.
  int64_t Backend(const AttentionProblem& p) const {
    const at::ScalarType dtype = p.dtype == DType::kFloat64 ? at::kDouble : at::kFloat;
    const at::Tensor q = at::empty({p.batch, 1, batched ? p.target_len : 1, p.hidden}, dtype);
    const at::Tensor kv = at::empty({p.batch, 1, p.source_len, p.hidden}, dtype);
    return at::_fused_sdp_choice(q, kv, kv, {}, 0.0, false, 1.0);
  }

  template <typename Ops>
  std::vector<typename Ops::Tensor> Forward(
      const Ops& ops, const AttentionProblem& p,
      const AttentionInputs<typename Ops::Tensor>& inputs) const {
    const auto kv = ops.View(inputs.context, {p.batch, 1, p.source_len, p.hidden});
    const int64_t queries = batched ? p.target_len : 1;
    std::vector<typename Ops::Tensor> y;
    for (const auto& h : inputs.steps) {
      const auto q = Project(ops, h, inputs.parameters[0], "q");
      auto c = Attend(ops, ops.View(q, {p.batch, 1, queries, p.hidden}), kv);
      c = ops.View(c, Dims(h));
      y.push_back(AttentionalState(ops, c, h, inputs.parameters[1]));
    }
    return y;
  }

 private:
  template <typename Tensor>
  static cost::Sizes Dims(const Tensor& t) {
    cost::Sizes sizes;
    for (int64_t d = 0; d < t.dim(); ++d) sizes.push_back(t.size(d));
    return sizes;
  }
};

class SdpaVariant : public AutogradVariant<Sdpa> {
 public:
  explicit SdpaVariant(bool batched) : AutogradVariant(Sdpa{batched}), sdpa_{batched} {}
  std::string WhyUnsupported(const AttentionProblem& problem) const override {
    const std::string why = AutogradVariant::WhyUnsupported(problem);
    if (!why.empty() || problem.device == Device::kCuda ||
        sdpa_.Backend(problem) == kFlashBackend) {
      return why;
    }
    return "LibTorch chooses its math backend here, which has no cost model";
  }

 private:
  Sdpa sdpa_;
};

const RegisterAttentionVariant kSdpa(std::make_unique<SdpaVariant>(false));
const RegisterAttentionVariant kSdpaBatched(std::make_unique<SdpaVariant>(true));

}  // namespace
}  // namespace ttbench
