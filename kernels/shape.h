// Shapes of tensor-train (TT) layers and the counts that follow from them.
//
// A TT layer stands for a dense weight W of M x N, N = n_1*...*n_K inputs and M = m_1*...*m_K
// outputs. Core k has shape [r_{k-1}, n_k, m_k, r_k] with r_0 = r_K = 1, and
//   W[(j_1..j_K), (i_1..i_K)] = G_1[0, i_1, j_1, :] * G_2[:, i_2, j_2, :] * ...
//                               * G_K[:, i_K, j_K, 0]
// (Novikov et al., "Tensorizing Neural Networks", 2015, eq. 2 and 5).
//
// Counts are in elements and 64 bits; every product is checked, and one that overflows throws.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ttbench {

using Modes = std::vector<int64_t>;

// A shape, rank or count that makes no layer. what() is one sentence for the user.
class ShapeError : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// A layer of more cores has one whose modes are both 1, as M*N < 2^63.
constexpr int64_t kMaxCores = 62;

// The product or sum of non-negative 64-bit counts. Throws ShapeError on overflow.
int64_t CheckedMul(int64_t a, int64_t b);
int64_t CheckedAdd(int64_t a, int64_t b);
int64_t Product(const Modes& modes);

// "16x16x16" <-> {16, 16, 16}. Parsing throws ShapeError on anything but positive decimal integers.
std::string FormatModes(const Modes& modes);
Modes ParseModes(const std::string& text);

class TtShape {
 public:
  // Ranks are the K-1 inner ranks, or all K+1 with ones at the ends. An inner rank larger than the
  // shape admits (the smaller of the products of n*m to its left and to its right) is clipped, and
  // clipping_note() says so. Throws ShapeError: fewer than two cores or more than kMaxCores,
  // unequal numbers of modes, a mode or rank that is not positive, a wrong number of ranks, end
  // ranks other than 1, or M*N past 64 bits.
  TtShape(Modes in_modes, Modes out_modes, Modes ranks);

  // All inner ranks `rank`.
  static TtShape Uniform(Modes in_modes, Modes out_modes, int64_t rank);
  // K cores, all modes d, all inner ranks `rank`.
  static TtShape Cube(int64_t cores, int64_t d, int64_t rank);
  // "2x5x41:10x14x15", inputs first; all inner ranks `rank`.
  static TtShape Parse(const std::string& text, int64_t rank);

  int64_t cores() const { return static_cast<int64_t>(in_modes_.size()); }
  const Modes& in_modes() const { return in_modes_; }
  const Modes& out_modes() const { return out_modes_; }
  const Modes& ranks() const { return ranks_; }  // K+1 entries, ones at both ends.
  // Modes and ranks of core k, 0-based.
  int64_t n(int64_t k) const { return in_modes_[k]; }
  int64_t m(int64_t k) const { return out_modes_[k]; }
  int64_t left_rank(int64_t k) const { return ranks_[k]; }
  int64_t right_rank(int64_t k) const { return ranks_[k + 1]; }
  Modes CoreSizes(int64_t k) const;  // [r_{k-1}, n_k, m_k, r_k]

  int64_t in_features() const;       // N
  int64_t out_features() const;      // M
  int64_t parameters() const;        // sum of r_{k-1} n_k m_k r_k
  int64_t dense_parameters() const;  // M*N
  double compression() const;        // dense_parameters / parameters
  // Multiply-adds per row of x of the contraction from the last core to the first. With cubic modes
  // and K = 3 this is d^4 (r^2 + 2r).
  int64_t sequential_macs_per_row() const;
  // Multiply-adds that build the matrix from the cores, joining them from the left. With cubic
  // modes and K = 3 this is d^4 r^2 + d^6 r.
  int64_t rebuild_macs() const;

  bool is_cube() const;  // All modes, in and out, are equal.
  // The rank if all inner ranks are equal, else 0.
  int64_t uniform_rank() const;
  // "2x5x41:10x14x15"
  std::string modes_name() const;
  // "1x8x8x1"
  std::string ranks_name() const;
  // "r8" where all inner ranks are 8, else "r8x4": the part of a cell's name.
  std::string rank_label() const;
  // A sentence naming each clipped rank, or "".
  const std::string& clipping_note() const { return clipping_note_; }

  bool operator==(const TtShape& other) const;

 private:
  Modes in_modes_, out_modes_, ranks_;
  std::string clipping_note_;
};

enum class FactorOrder { kAscending, kDescending, kBalanced };

// Splits `size` into `count` factors whose product is `size`, as nearly equal as its prime factors
// allow: the least sum of factors; among equals, the split whose smallest factor is largest.
// (t3nsor's auto_shape instead takes the split of largest entropy; for 410 and 2100 both give
// {2, 5, 41} and {10, 14, 15}.) Sorted as `order` asks; balanced puts the largest factor in the
// middle and falls off to both ends. Time grows with sqrt(size). Throws ShapeError if size < 1 or
// count is not in 1..kMaxCores.
Modes Factorize(int64_t size, int64_t count, FactorOrder order);

}  // namespace ttbench
