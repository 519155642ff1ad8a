#include "benchmarks/advice.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "benchmarks/axis.h"
#include "benchmarks/calibration.h"
#include "benchmarks/cell.h"
#include "benchmarks/crossover.h"
#include "benchmarks/linear_workload.h"
#include "kernels/cost/linear_cost.h"
#include "kernels/cost/speed.h"
#include "kernels/linear/auto.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

// Up to here answers by batch are looked for.
constexpr int64_t kMostBatch = 65'536;

std::string Printf(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string FormatSeconds(double seconds) {
  if (seconds < 1e-3) return Printf("%.3g us", seconds * 1e6);
  if (seconds < 1) return Printf("%.3g ms", seconds * 1e3);
  return Printf("%.3g s", seconds);
}

struct Line {
  const LinearVariant* variant = nullptr;
  std::optional<int64_t> peak_bytes;  // None: not modelled exactly.
  std::optional<double> seconds;      // None: not timed.
};

std::optional<double> TimedSeconds(const LinearVariant& variant, const LinearProblem& problem) {
  const auto gflops = MeasuredSpeeds().Gflops(variant.name(), problem);
  if (!gflops) return std::nullopt;
  return static_cast<double>(PredictLinearCost(variant, problem).flops) / (*gflops * 1e9);
}

Line LineOf(const LinearVariant& variant, const LinearProblem& problem) {
  Line line{&variant, std::nullopt, TimedSeconds(variant, problem)};
  if (variant.WhySkipped(problem).empty() && variant.WhyPeaksUnmodelled(problem).empty()) {
    line.peak_bytes = PredictLinearCost(variant, problem).bytes.peak;
  }
  return line;
}

std::string Table(const LinearProblem& problem, const std::vector<const LinearVariant*>& variants) {
  const Line dense = LineOf(*FindLinearVariant(kBaselineVariant), problem);
  const LinearVariant& pick = PickLinearVariant(problem);
  std::vector<Line> lines;
  for (const LinearVariant* variant : variants) lines.push_back(LineOf(*variant, problem));
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    if (a.seconds.has_value() != b.seconds.has_value()) return a.seconds.has_value();
    return a.seconds && *a.seconds < *b.seconds;
  });
  char row[160];
  std::snprintf(row, sizeof row, "  %-20s %12s %9s %12s %9s\n", "variant", "peak memory",
                "of dense", "time", "of dense");
  std::string text = row;
  for (const Line& line : lines) {
    std::string bytes = "-", byte_ratio = "-", time = "-", time_ratio = "-";
    if (line.peak_bytes) {
      bytes = FormatBytes(*line.peak_bytes);
      byte_ratio = Printf(
          "%.2fx", static_cast<double>(*line.peak_bytes) / static_cast<double>(*dense.peak_bytes));
    }
    if (line.seconds) time = FormatSeconds(*line.seconds);
    if (line.seconds && dense.seconds) {
      time_ratio = Printf("%.2fx", *line.seconds / *dense.seconds);
    }
    std::snprintf(row, sizeof row, "  %-20s %12s %9s %12s %9s%s\n", line.variant->name().c_str(),
                  bytes.c_str(), byte_ratio.c_str(), time.c_str(), time_ratio.c_str(),
                  line.variant == &pick ? "  <- auto" : "");
    text += row;
  }
  return text;
}

// By model: from which batch each variant needs more memory than the dense layer.
std::string MemoryCrossovers(const LinearProblem& problem,
                             const std::vector<const LinearVariant*>& variants) {
  std::string never, sometimes;
  for (const LinearVariant* variant : variants) {
    if (variant->is_dense() || !variant->WhyPeaksUnmodelled(problem).empty()) continue;
    const auto batch =
        ModelCrossover(LinearCell(variant->name(), problem, 0), CrossoverMetric::kPeak);
    std::string& list = batch ? sometimes : never;
    list += (list.empty() ? "" : ", ") + variant->name();
    if (batch) list += *batch == 1 ? " always" : " from B = " + std::to_string(*batch);
  }
  std::string text = "  more memory than dense: " + (sometimes.empty() ? "none" : sometimes) + "\n";
  if (!never.empty()) text += "  never more:             " + never + "\n";
  return text;
}

}  // namespace

std::vector<Answer> AnswersByBatch(const std::function<std::string(int64_t)>& ask, int64_t most) {
  std::vector<Answer> answers = {{1, ask(1)}};
  for (int64_t batch = 1; batch < most;) {
    const int64_t next = std::min(2 * batch, most);
    const std::string answer = ask(next);
    if (answer != answers.back().text) {
      int64_t before = batch, after = next;
      while (after - before > 1) {
        const int64_t middle = before + (after - before) / 2;
        (ask(middle) == answers.back().text ? before : after) = middle;
      }
      // What holds at the change need not be what holds at `next`.
      answers.push_back({after, ask(after)});
      batch = after;
    } else {
      batch = next;
    }
  }
  return answers;
}

std::string Format(const std::vector<Answer>& answers) {
  std::string text;
  for (size_t i = 0; i < answers.size(); ++i) {
    text += (i > 0 ? ", " : "") + answers[i].text;
    if (answers.size() == 1) return text + " at every batch";
    text += i + 1 < answers.size() ? " up to B = " + std::to_string(answers[i + 1].first - 1)
                                   : " from B = " + std::to_string(answers[i].first);
  }
  return text;
}

std::string Advise(const LinearProblem& layer, const std::vector<Phase>& phases,
                   const std::vector<int64_t>& batches, const std::vector<std::string>& names) {
  const TtShape& shape = layer.shape;
  std::string text = shape.modes_name() + ", ranks " + shape.ranks_name() + ": " +
                     std::to_string(shape.parameters()) + " parameters instead of " +
                     std::to_string(shape.dense_parameters()) + " (" +
                     Printf("%.3g", shape.compression()) + " times fewer); " + Name(layer.dtype) +
                     ", " + std::to_string(layer.threads) + " threads\n";
  for (const Phase phase : phases) {
    LinearProblem problem = layer;
    problem.phase = phase;
    std::vector<const LinearVariant*> variants;
    std::string unsupported;
    for (const std::string& name : names) {
      if (name == kAutoVariant) continue;
      const LinearVariant& variant = *FindLinearVariant(name);
      const std::string why = variant.WhySkipped(problem);
      if (why.empty()) {
        variants.push_back(&variant);
      } else {
        unsupported += "  " + name + ": " + why + "\n";
      }
    }
    for (const int64_t batch : batches) {
      problem.batch = batch;
      text += "\n" + std::string(Name(phase)) + ", B = " + std::to_string(batch) + "\n" +
              Table(problem, variants);
    }
    text += "\n" + std::string(Name(phase)) + ", by batch (1 to " + std::to_string(kMostBatch) +
            ")\n" + unsupported;
    auto fastest = [&](int64_t batch) {
      problem.batch = batch;
      const LinearVariant* best = nullptr;
      double least = 0;
      for (const LinearVariant* variant : variants) {
        const auto seconds = TimedSeconds(*variant, problem);
        if (!seconds || (best && *seconds >= least)) continue;
        best = variant;
        least = *seconds;
      }
      return best ? best->name() : "none timed";
    };
    auto pick = [&](int64_t batch) {
      problem.batch = batch;
      return PickLinearVariant(problem).name();
    };
    text += "  fastest:                " + Format(AnswersByBatch(fastest, kMostBatch)) + "\n";
    text += "  auto picks:             " + Format(AnswersByBatch(pick, kMostBatch)) + "\n";
    problem.batch = 1;
    text += MemoryCrossovers(problem, variants);
  }
  return text;
}

}  // namespace ttbench
