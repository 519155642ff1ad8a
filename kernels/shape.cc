#include "kernels/shape.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

namespace ttbench {
namespace {

std::string Counted(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

int64_t ParseMode(const std::string& where, const std::string& text) {
  int64_t mode = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, mode);
  if (stop == end && error == std::errc::result_out_of_range && text[0] != '-') {
    throw ShapeError(where + ": '" + text + "' is more than 64 bits hold; use a smaller mode");
  }
  if (stop != end || error != std::errc() || mode < 1) {
    throw ShapeError(where + ": '" + text +
                     "' is not a positive integer; write modes as in 2x5x41");
  }
  return mode;
}

Modes ParseModesOf(const std::string& where, const std::string& text) {
  Modes modes;
  size_t start = 0;
  while (true) {
    const size_t separator = text.find('x', start);
    modes.push_back(ParseMode(where, text.substr(start, separator - start)));
    if (separator == std::string::npos) return modes;
    start = separator + 1;
  }
}

void RequireCoreCount(const std::string& where, int64_t cores) {
  if (cores < 2 || cores > kMaxCores) {
    throw ShapeError(where + ": " + Counted(cores, "core") + "; give 2 to " +
                     std::to_string(kMaxCores));
  }
}

void RequirePositive(const std::string& where, const char* noun, const Modes& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 1) {
      throw ShapeError(where + ": " + noun + " " + std::to_string(i + 1) + " is " +
                       std::to_string(values[i]) + "; give 1 or more");
    }
  }
}

// Runs `count` and puts `where` in front of what it throws.
template <typename Count>
int64_t CountFor(const std::string& where, Count count) {
  try {
    return count();
  } catch (const ShapeError& error) {
    throw ShapeError(where + ": " + error.what());
  }
}

bool PowerIsAtMost(int64_t base, int64_t exponent, int64_t limit) {
  for (; exponent > 0; --exponent) limit /= base;
  return limit > 0;
}

// Branch and bound over the ascending splits of a size. The smallest factor is tried from the root
// downwards, so the first split found is close to the best one, and the bound only grows.
class LeastSumSplit {
 public:
  LeastSumSplit(int64_t size, int64_t count) : best_sum_(static_cast<uint64_t>(size) + count) {
    Search(size, count, 1, 0);
  }

  const Modes& best() const { return best_; }

 private:
  void Search(int64_t size, int64_t count, int64_t least, uint64_t sum) {
    if (count == 1) {
      if (sum + size < best_sum_) {
        best_sum_ = sum + size;
        best_ = factors_;
        best_.push_back(size);
      }
      return;
    }
    auto factor = static_cast<int64_t>(std::pow(static_cast<long double>(size), 1.0L / count)) + 1;
    while (!PowerIsAtMost(factor, count, size)) --factor;
    for (; factor >= least; --factor) {
      if (size % factor != 0) continue;
      // The rest sums to no less than equal factors would; the margin covers rounding.
      const long double rest =
          (count - 1) * std::pow(static_cast<long double>(size / factor), 1.0L / (count - 1));
      if ((sum + factor + rest) * (1 - 1e-12L) >= best_sum_) return;
      factors_.push_back(factor);
      Search(size / factor, count - 1, factor, sum + factor);
      factors_.pop_back();
    }
  }

  uint64_t best_sum_;  // At first one more than the sum of 1, 1, ..., size.
  Modes best_, factors_;
};

}  // namespace

int64_t CheckedMul(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) {
    throw ShapeError(std::to_string(a) + " * " + std::to_string(b) +
                     " is more than 64 bits hold; use smaller modes or ranks");
  }
  return product;
}

int64_t CheckedAdd(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) {
    throw ShapeError(std::to_string(a) + " + " + std::to_string(b) +
                     " is more than 64 bits hold; use smaller modes or ranks");
  }
  return sum;
}

int64_t Product(const Modes& modes) {
  int64_t product = 1;
  for (const int64_t mode : modes) product = CheckedMul(product, mode);
  return product;
}

std::string FormatModes(const Modes& modes) {
  std::string text;
  for (const int64_t mode : modes) {
    if (!text.empty()) text += 'x';
    text += std::to_string(mode);
  }
  return text;
}

Modes ParseModes(const std::string& text) { return ParseModesOf("modes '" + text + "'", text); }

TtShape::TtShape(Modes in_modes, Modes out_modes, Modes ranks)
    : in_modes_(std::move(in_modes)), out_modes_(std::move(out_modes)), ranks_(std::move(ranks)) {
  const std::string where = "shape '" + modes_name() + "'";
  if (in_modes_.size() != out_modes_.size()) {
    throw ShapeError(where + ": " + Counted(cores(), "input mode") + " but " +
                     Counted(static_cast<int64_t>(out_modes_.size()), "output mode") +
                     "; give as many of each");
  }
  RequireCoreCount(where, cores());
  RequirePositive(where, "input mode", in_modes_);
  RequirePositive(where, "output mode", out_modes_);
  CountFor(where, [this] { return dense_parameters(); });

  const auto rank_count = static_cast<int64_t>(ranks_.size());
  if (rank_count == cores() - 1) {
    ranks_.insert(ranks_.begin(), 1);
    ranks_.push_back(1);
  } else if (rank_count != cores() + 1) {
    throw ShapeError(where + ": " + Counted(rank_count, "rank") + " for " +
                     Counted(cores(), "core") + "; give the " + Counted(cores() - 1, "inner rank") +
                     ", or all " + std::to_string(cores() + 1) + " with ones at the ends");
  } else if (ranks_.front() != 1 || ranks_.back() != 1) {
    throw ShapeError(where + ": ranks " + ranks_name() +
                     " do not begin and end with 1; give ones at the ends, or only the " +
                     Counted(cores() - 1, "inner rank"));
  }
  RequirePositive(where, "inner rank", Modes(ranks_.begin() + 1, ranks_.end() - 1));

  int64_t left = 1;
  int64_t right = dense_parameters();
  for (int64_t k = 1; k < cores(); ++k) {
    const int64_t core_modes = n(k - 1) * m(k - 1);
    left *= core_modes;
    right /= core_modes;
    const int64_t most = std::min(left, right);
    if (ranks_[k] <= most) continue;
    clipping_note_ += clipping_note_.empty()
                          ? where + ": ranks clipped to the most that its modes admit: "
                          : ", ";
    clipping_note_ += "r_" + std::to_string(k) + " from " + std::to_string(ranks_[k]) + " to " +
                      std::to_string(most);
    ranks_[k] = most;
  }
}

TtShape TtShape::Uniform(Modes in_modes, Modes out_modes, int64_t rank) {
  Modes ranks(in_modes.empty() ? 0 : in_modes.size() - 1, rank);
  return TtShape(std::move(in_modes), std::move(out_modes), std::move(ranks));
}

TtShape TtShape::Cube(int64_t cores, int64_t d, int64_t rank) {
  RequireCoreCount("cube of d = " + std::to_string(d), cores);
  return Uniform(Modes(cores, d), Modes(cores, d), rank);
}

TtShape TtShape::Parse(const std::string& text, int64_t rank) {
  const std::string where = "shape '" + text + "'";
  const size_t colon = text.find(':');
  if (colon == std::string::npos || text.find(':', colon + 1) != std::string::npos) {
    throw ShapeError(where + ": " + (colon == std::string::npos ? "no ':'" : "more than one ':'") +
                     "; write input modes, a colon and output modes as in 2x5x41:10x14x15");
  }
  return Uniform(ParseModesOf(where, text.substr(0, colon)),
                 ParseModesOf(where, text.substr(colon + 1)), rank);
}

Modes TtShape::CoreSizes(int64_t k) const { return {left_rank(k), n(k), m(k), right_rank(k)}; }

int64_t TtShape::in_features() const { return Product(in_modes_); }

int64_t TtShape::out_features() const { return Product(out_modes_); }

int64_t TtShape::dense_parameters() const { return CheckedMul(in_features(), out_features()); }

double TtShape::compression() const {
  return static_cast<double>(dense_parameters()) / static_cast<double>(parameters());
}

int64_t TtShape::parameters() const {
  return CountFor("parameters of shape '" + modes_name() + "'", [this] {
    int64_t sum = 0;
    for (int64_t k = 0; k < cores(); ++k) sum = CheckedAdd(sum, Product(CoreSizes(k)));
    return sum;
  });
}

int64_t TtShape::sequential_macs_per_row() const {
  return CountFor("multiply-adds per row of shape '" + modes_name() + "'", [this] {
    int64_t sum = 0;
    int64_t in_product = in_features();  // n_1..n_k
    int64_t out_product = 1;             // m_k..m_K
    for (int64_t k = cores() - 1; k >= 0; --k) {
      out_product *= m(k);
      sum = CheckedAdd(sum, Product({in_product, out_product, left_rank(k), right_rank(k)}));
      in_product /= n(k);
    }
    return sum;
  });
}

int64_t TtShape::rebuild_macs() const {
  return CountFor("multiply-adds to rebuild shape '" + modes_name() + "'", [this] {
    int64_t sum = 0;
    int64_t joined = n(0) * m(0);  // Modes of the cores joined so far.
    for (int64_t k = 1; k < cores(); ++k) {
      joined *= n(k) * m(k);
      sum = CheckedAdd(sum, Product({joined, left_rank(k), right_rank(k)}));
    }
    return sum;
  });
}

bool TtShape::is_cube() const {
  const auto is_d = [d = n(0)](int64_t mode) { return mode == d; };
  return std::all_of(in_modes_.begin(), in_modes_.end(), is_d) &&
         std::all_of(out_modes_.begin(), out_modes_.end(), is_d);
}

int64_t TtShape::uniform_rank() const {
  const int64_t rank = ranks_[1];
  const bool uniform = std::all_of(ranks_.begin() + 1, ranks_.end() - 1,
                                   [rank](int64_t other) { return other == rank; });
  return uniform ? rank : 0;
}

std::string TtShape::modes_name() const {
  return FormatModes(in_modes_) + ":" + FormatModes(out_modes_);
}

std::string TtShape::ranks_name() const { return FormatModes(ranks_); }

std::string TtShape::rank_label() const {
  if (uniform_rank() != 0) return "r" + std::to_string(uniform_rank());
  return "r" + FormatModes(Modes(ranks_.begin() + 1, ranks_.end() - 1));
}

bool TtShape::operator==(const TtShape& other) const {
  return in_modes_ == other.in_modes_ && out_modes_ == other.out_modes_ && ranks_ == other.ranks_;
}

Modes Factorize(int64_t size, int64_t count, FactorOrder order) {
  const std::string where = "splitting " + std::to_string(size) + " into " + Counted(count, "mode");
  if (size < 1) throw ShapeError(where + ": give a size of 1 or more");
  if (count < 1 || count > kMaxCores) {
    throw ShapeError(where + ": give 1 to " + std::to_string(kMaxCores) + " modes");
  }
  const Modes ascending = LeastSumSplit(size, count).best();
  switch (order) {
    case FactorOrder::kAscending:
      return ascending;
    case FactorOrder::kDescending:
      return Modes(ascending.rbegin(), ascending.rend());
    case FactorOrder::kBalanced:
      break;
  }
  Modes balanced(ascending.size());
  size_t front = 0;
  size_t back = ascending.size();
  for (size_t i = 0; i < ascending.size(); ++i) {
    balanced[i % 2 == 0 ? front++ : --back] = ascending[i];
  }
  return balanced;
}

}  // namespace ttbench
