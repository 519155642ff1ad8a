#include "networks/transformer_xl/problem.h"

#include <algorithm>
#include <cmath>

namespace ttbench {
namespace {

// Word `place` of the text: the quantiles are the multiples of the golden ratio, less their whole
// parts, which fill the unit interval evenly.
int64_t WordAt(int64_t place, int64_t vocabulary) {
  constexpr double kGoldenRatio = 1.6180339887498949;
  const double turns = (static_cast<double>(place) + 0.5) * kGoldenRatio;
  const double quantile = turns - std::floor(turns);
  const double word = std::exp(quantile * std::log(static_cast<double>(vocabulary) + 1)) - 1;
  return std::min(static_cast<int64_t>(word), vocabulary - 1);
}

std::vector<int64_t> Words(const TransformerXlProblem& problem, int64_t shift) {
  const int64_t length = problem.network.target_len;
  std::vector<int64_t> words;
  words.reserve(problem.rows());
  for (int64_t t = 0; t < length; ++t)
    for (int64_t b = 0; b < problem.batch; ++b)
      words.push_back(WordAt(b * (length + 1) + t + shift, problem.network.vocabulary));
  return words;
}

}  // namespace

TtShape Mirrored(const TtShape& up) {
  const Modes& ranks = up.ranks();
  return TtShape(up.out_modes(), up.in_modes(), Modes(ranks.begin() + 1, ranks.end() - 1));
}

std::string LayersName(const TransformerXlOptions& network) {
  const std::string up = network.up->modes_name(), down = network.down->modes_name();
  return down == Mirrored(*network.up).modes_name() ? up : up + "+" + down;
}

std::string SizeName(const TransformerXlProblem& problem) {
  const TransformerXlOptions& network = problem.network;
  const TransformerXlOptions base = Wt103Base();
  std::string name = "L" + std::to_string(network.layers) + "-D" + std::to_string(network.d_model) +
                     "-I" + std::to_string(network.d_inner) + "-T" +
                     std::to_string(network.target_len) + "-M" + std::to_string(network.memory_len);
  if (network.heads != base.heads) name += "-H" + std::to_string(network.heads);
  if (network.vocabulary != base.vocabulary) name += "-V" + std::to_string(network.vocabulary);
  if (network.is_dense()) return name;
  return name + "/" + LayersName(network) + "/" + network.up->rank_label();
}

std::vector<int64_t> TokensOf(const TransformerXlProblem& problem) { return Words(problem, 0); }
std::vector<int64_t> TargetsOf(const TransformerXlProblem& problem) { return Words(problem, 1); }

double Tolerance(const TransformerXlProblem& problem) {
  const double three_products = Tolerance(TtShape::Cube(3, 1, 1), problem.dtype);
  const double products = static_cast<double>(8 * problem.network.layers + 2);
  return three_products * products / 3;
}

}  // namespace ttbench
