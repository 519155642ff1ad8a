// A TT layer as a list of matrix products: every product that the layer's forward and backward
// take, with sizes, strides and places, worked out once from a shape and then only executed. The
// plan is data: it is checked without a device (CheckPlan), executed by loops in tests
// (host_executor.h) and by cuBLAS on a GPU (cublas_executor.h).
//
// Contracting from the last core to the first, the running tensor before core k is
// [left, n_k, r_k, right] and after it [left, r_{k-1}, m_k, right], with left = B n_1..n_{k-1} and
// right = m_{k+1}..m_K. With core k stored as the matrix H_k [(r_{k-1} m_k), (n_k r_k)] that is,
// for each of `left`,
//   after [(r_{k-1} m_k), right] = H_k before [(n_k r_k), right]:
// `after` is the next core's `before` as it lies, so no intermediate is ever copied; for the last
// core, right = 1, it is one product with `left` rows. Only cores are: core k is stored as
// [r_{k-1}, n_k, m_k, r_k], and H_k swaps its two middle dimensions.
//
// The backward goes from the first core to the last:
//   d_before = H_k^T d_after, for each of `left`;   dH_k = sum over left of d_after before^T.
// The sum runs over two dimensions of each operand that are not next to each other. It is made in
// one of two ways, whichever moves fewer elements:
//   slices  a product for each of `left`, added up over slices of the gradient in scratch (float32
//           at least), and the slices then summed;
//   copies  both operands copied to [.., left, right], which leaves one product.
//
// Memory: x, y, parameters and gradients are the caller's. Everything else lies in two blocks, each
// of one allocation: `held`, from the forward to the backward, and `scratch`, of one pass. Buffers
// of a block that are never alive together share its bytes.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "kernels/problem.h"
#include "kernels/shape.h"

namespace ttbench {

// The largest batch count of one cuBLAS call: a dimension of a CUDA grid ends there.
inline constexpr int64_t kMaxBatchCount = 65535;
// Buffers begin at multiples of this: what tensor cores ask for (16 bytes), with room to spare.
inline constexpr int64_t kPlanAlignment = 256;

enum class Place {
  kX,                  // [B, N]
  kY,                  // [B, M]
  kDy,                 // [B, M]
  kDx,                 // [B, N]
  kParameter,          // Core `index`, or the dense weight [M, N].
  kParameterGradient,  // Likewise.
  kHeld,
  kScratch,  // Of the forward or of the backward.
};

// Indices into GemmPlan::buffers.
using BufferId = int;

struct PlanBuffer {
  std::string name;
  Place place = Place::kScratch;
  int64_t index = 0;  // Of the parameter.
  DType dtype = DType::kFloat32;
  int64_t elements = 0;
  int64_t offset_bytes = 0;  // In its block.

  int64_t bytes() const { return elements * ElementBytes(dtype); }
};

// A stack of matrices in a buffer: element (i, j) of matrix b lies at b * batch_stride + i * ld + j
// elements beyond offset_bytes.
struct Operand {
  BufferId buffer = 0;
  int64_t offset_bytes = 0;
  int64_t ld = 0;
  int64_t batch_stride = 0;
};

// C = op(A) op(B), or C += with `accumulate`, for each of `batch` matrices: row-major, op(A) [m,
// k], op(B) [k, n], C [m, n].
struct GemmStep {
  std::string name;
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  Operand a, b, c;
  bool accumulate = false;

  int64_t flops() const { return 2 * m * n * k * batch; }
};

// to [outer, b, a, inner] = from [outer, a, b, inner].
struct SwapStep {
  std::string name;
  BufferId from = 0, to = 0;
  int64_t outer = 1, a = 1, b = 1, inner = 1;

  int64_t elements() const { return outer * a * b * inner; }
};

// to [elements] = the sum over slices of from [slices, elements].
struct SumStep {
  std::string name;
  BufferId from = 0, to = 0;
  int64_t slices = 1, elements = 1;
};

using Step = std::variant<GemmStep, SwapStep, SumStep>;

struct PlanPass {
  std::vector<Step> steps;
  int64_t scratch_bytes = 0;
};

struct GemmPlan {
  std::string layer;  // What it computes, for messages.
  DType dtype = DType::kFloat32;
  int64_t batch = 0;
  std::vector<PlanBuffer> buffers;
  PlanPass forward, backward;  // No steps in a backward that was not asked for.
  int64_t held_bytes = 0;

  // Floating-point operations of all products; a multiply-add is two. Sums of slices are additions
  // beside these, and not counted.
  int64_t flops() const;
  // Bytes that swaps write, and read as often.
  int64_t copied_bytes() const;
};

// A plan that is not sound: what() names the step and what is wrong with it.
class PlanError : public std::logic_error {
  using std::logic_error::logic_error;
};

enum class PlanFor { kInference, kTraining };  // The latter holds what the backward needs.

// `batch` is at least 1. Every product of sizes is checked: ShapeError past 64 bits.
GemmPlan PlanDense(int64_t out_features, int64_t in_features, int64_t batch, DType dtype,
                   PlanFor purpose);
GemmPlan PlanSequential(const TtShape& shape, int64_t batch, DType dtype, PlanFor purpose);
// Joins the cores on either side of CheapestCut() (kernels/linear/core_groups.h), then contracts
// with the two that are left.
GemmPlan PlanMerged(const TtShape& shape, int64_t batch, DType dtype, PlanFor purpose);

// Throws PlanError unless every step reads and writes within its buffers, and only what may be: no
// batch past kMaxBatchCount; no result that overlaps itself, is gappy, or is an operand of its own
// step; nothing read that was not written whole before; nothing of the caller's overwritten; every
// result written whole; buffers of a block within it, aligned, and apart while both are alive.
void CheckPlan(const GemmPlan& plan);

// Where the caller's tensors and the two blocks are.
struct PlanPointers {
  const void* x = nullptr;
  void* y = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;
  std::vector<const void*> parameters;
  std::vector<void*> parameter_gradients;
  void* held = nullptr;
  void* scratch = nullptr;

  // The first byte of a buffer. Those of the caller's inputs must not be written through.
  char* Of(const PlanBuffer& buffer) const;
};

}  // namespace ttbench
