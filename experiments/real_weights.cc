// Measures what TT-SVD makes of trained weights: the feed-forward matrices of a small transformer
// (networks/minilm) compressed at many ranks, the error of each matrix, of the sentence embeddings,
// and the bytes and time of the whole encoder with each way to compute its layers.
//
//   matrices.csv    each matrix alone: relative error against rank, beside a truncated singular
//                   value decomposition of as many bytes
//   embeddings.csv  the encoder with all matrices compressed, and with one at a time
//   passes.csv      a pass of the encoder over a batch: weights, peak memory, time, per variant
//   checks.csv      the encoder against the model in NumPy, and against published figures
//
// Started by //experiments:real_weights, which gives the preset's flags.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/mm.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/axis.h"
#include "benchmarks/calibration.h"
#include "benchmarks/fingerprint.h"
#include "benchmarks/machine.h"
#include "benchmarks/memory_meter.h"
#include "benchmarks/progress.h"
#include "benchmarks/result_table.h"
#include "benchmarks/timing_pass.h"
#include "benchmarks/usage_error.h"
#include "kernels/cost/linear_cost.h"
#include "kernels/cost/speed.h"
#include "kernels/linear/auto.h"
#include "kernels/problem.h"
#include "kernels/tt_linear.h"
#include "kernels/variant.h"
#include "networks/minilm/compressed.h"
#include "networks/minilm/encoder.h"
#include "networks/minilm/factorization.h"
#include "networks/minilm/quality.h"
#include "networks/minilm/safetensors.h"

namespace ttbench {
namespace {

constexpr const char* kProgram = "real_weights";
constexpr int kSchema = 1;
constexpr const char* kDenseVariants[] = {"dense", "dense-onednn"};
constexpr const char* kTtVariants[] = {"naive", "sequential", "fused", "fused-panel", "auto"};

// Embeddings have length 1. In float32 the encoder's 6 layers leave them off by about 1e-7 each.
constexpr double kAllowedDifference = 5e-6;
// Printed with four decimals.
constexpr double kPublishedPrecision = 5e-5 + 1e-6;
// sentence-transformers, documentation, "Quickstart": of sentences 1 and 2, 1 and 3, 2 and 3.
constexpr double kPublishedSimilarities[] = {0.6660, 0.1046, 0.1411};

// Sentences that are embedded at once where time is not measured.
constexpr int64_t kEmbeddingBatch = 32;
// Rounds of passes end after this long, if the fewest were run.
constexpr double kTimeLimitSeconds = 6;
constexpr double kSlow = 8;
// A variant with more than this many times the dense layers' FLOPs is left out.
constexpr double kMostFlops = 20;
constexpr int64_t kFewestRounds = 3;
constexpr int64_t kElementBytes = 4;  // Of float32, in which all of this is computed.

enum ExitCode { kExitOk = 0, kExitFailed = 1, kExitUsage = 2, kExitWrite = 4 };

volatile std::sig_atomic_t g_signal = 0;
void NoteSignal(int signal) { g_signal = signal; }
bool Interrupted() { return g_signal != 0; }

struct Flags {
  std::string weights, sentences, published, out;
  std::vector<int64_t> cores, ranks, layers;
  std::vector<FactorOrder> orders;
  std::vector<double> shares;
  double alone_share = 0;
  int64_t sentence_count = 0, batch = 0, repetitions = 0, threads = 0;
};

const std::map<std::string, FactorOrder> kOrders = {{"ascending", FactorOrder::kAscending},
                                                    {"descending", FactorOrder::kDescending},
                                                    {"balanced", FactorOrder::kBalanced}};

std::string NameOf(FactorOrder order) {
  for (const auto& [name, value] : kOrders) {
    if (value == order) return name;
  }
  return "";
}

double ParseShare(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double share = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(share > 0 && share <= 2)) {
    throw UsageError(flag + ": '" + text +
                     "' is no share of the dense bytes; give 0.25, at most 2");
  }
  return share;
}

std::vector<double> ParseShares(const std::string& flag, const std::string& text) {
  std::vector<double> shares;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    shares.push_back(ParseShare(flag, text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return shares;
}

Flags ParseFlags(int argc, char** argv, int64_t default_threads) {
  std::map<std::string, std::string> text;
  CLI::App app;
  app.set_help_flag();
  for (const char* name :
       {"weights", "sentences-file", "published", "out", "cores", "orders", "ranks", "layers",
        "sentences", "shares", "alone-share", "batch", "repetitions", "threads"}) {
    app.add_option(std::string("--") + name, text[name])
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  auto one = [&](const char* name, int64_t minimum) {
    const std::string flag = std::string("--") + name;
    const std::vector<int64_t> values = ParseIntAxis(flag, text[name], minimum);
    if (values.size() != 1) throw UsageError(flag + ": '" + text[name] + "' is not one number");
    return values[0];
  };
  Flags flags;
  flags.weights = text["weights"];
  flags.sentences = text["sentences-file"];
  flags.published = text["published"];
  flags.out = text["out"];
  flags.cores = ParseIntAxis("--cores", text["cores"], 2);
  flags.ranks = ParseIntAxis("--ranks", text["ranks"]);
  flags.layers = ParseIntAxis("--layers", text["layers"], 0);
  std::vector<std::string> names;
  for (const auto& [name, order] : kOrders) names.push_back(name);
  for (const std::string& name : ParseNameAxis("--orders", text["orders"], names)) {
    flags.orders.push_back(kOrders.at(name));
  }
  flags.shares = ParseShares("--shares", text["shares"]);
  flags.alone_share = ParseShare("--alone-share", text["alone-share"]);
  flags.sentence_count = one("sentences", 3);
  flags.batch = one("batch", 1);
  flags.repetitions = one("repetitions", 2);
  flags.threads = text["threads"].empty() ? default_threads : one("threads", 1);
  return flags;
}

// A row's values by column.
using Record = std::map<std::string, std::string>;

// A table of this experiment.
class Table {
 public:
  Table(const std::string& path, std::vector<std::string> columns)
      : columns_(std::move(columns)), file_(path, columns_) {}

  // Columns that are left out are empty.
  void Append(const Record& values) {
    std::vector<std::string> fields;
    size_t known = 0;
    for (const std::string& column : columns_) {
      const auto value = values.find(column);
      known += value != values.end();
      fields.push_back(column == "schema"      ? std::to_string(kSchema)
                       : value == values.end() ? ""
                                               : value->second);
    }
    if (known != values.size()) throw std::logic_error("a row has a value that is no column's");
    file_.Append(fields);
  }

 private:
  std::vector<std::string> columns_;
  CsvAppender file_;
};

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return std::isfinite(value) ? text : "";
}
std::string Number(int64_t value) { return std::to_string(value); }

// Columns that say how the feed-forward matrices are compressed.
const std::vector<std::string> kSetting = {"method", "cores",          "order",
                                           "rank",   "factors_hidden", "factors_inner"};

std::vector<std::string> Columns(std::vector<std::string> before,
                                 const std::vector<std::string>& after) {
  before.insert(before.begin(), "schema");
  before.insert(before.end(), kSetting.begin(), kSetting.end());
  before.insert(before.end(), after.begin(), after.end());
  return before;
}

struct Sentences {
  at::Tensor ids, lengths;  // [sentences, tokens], [sentences]
  at::Tensor reference;     // Embeddings of the first ones, by NumPy in float64.

  int64_t size() const { return ids.size(0); }
  // Not more than there are, and no wider than they need.
  Sentences First(int64_t count) const {
    const at::Tensor some = lengths.narrow(0, 0, count);
    const int64_t* values = some.const_data_ptr<int64_t>();
    const int64_t tokens = *std::max_element(values, values + count);
    return {ids.narrow(0, 0, count).narrow(1, 0, tokens).contiguous(), some, reference};
  }
};

Sentences ReadSentences(const std::string& path, int64_t count) {
  const NamedTensors tensors = ReadSafetensors(path);
  const Sentences all{tensors.at("ids"), tensors.at("lengths"), tensors.at("embeddings")};
  if (count > all.size()) {
    throw UsageError("--sentences: there are " + std::to_string(all.size()));
  }
  return all.First(count);
}

// All embeddings, in batches of sentences of like length.
at::Tensor EmbedAll(const MiniLm& model, const Sentences& sentences) {
  const at::Tensor order = sentences.lengths.argsort();
  std::vector<at::Tensor> parts;
  at::Tensor embeddings;
  for (int64_t begin = 0; begin < sentences.size(); begin += kEmbeddingBatch) {
    const int64_t count = std::min(kEmbeddingBatch, sentences.size() - begin);
    const at::Tensor rows = order.narrow(0, begin, count);
    const at::Tensor lengths = sentences.lengths.index_select(0, rows);
    const int64_t tokens = lengths.max().item<int64_t>();
    const at::Tensor part =
        model.Embed(sentences.ids.index_select(0, rows).narrow(1, 0, tokens).contiguous(), lengths);
    if (!embeddings.defined()) {
      embeddings = at::empty({sentences.size(), part.size(1)}, part.options());
    }
    embeddings.index_copy_(0, rows, part);
  }
  return embeddings;
}

double Difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

NamedTensors ReadWeights(const Flags& flags) {
  NamedTensors weights = ReadSafetensors(flags.weights);
  const int64_t layers = LayersOf(weights);
  for (const int64_t layer : flags.layers) {
    if (layer >= layers) {
      throw UsageError("--layers: the model has no layer " + std::to_string(layer) +
                       "; they are 0 to " + std::to_string(layers - 1));
    }
  }
  return weights;
}

struct Setting {
  Factorization factorization;
  std::optional<FactorOrder> order;  // None for the SVD.
};

Record Describe(const Setting& setting, int64_t rank) {
  const Factorization& f = setting.factorization;
  if (f.is_svd()) return {{"method", "svd"}, {"rank", Number(rank)}};
  return {{"method", "tt"},
          {"cores", Number(static_cast<int64_t>(f.hidden().size()))},
          {"order", NameOf(*setting.order)},
          {"rank", Number(rank)},
          {"factors_hidden", FormatModes(f.hidden())},
          {"factors_inner", FormatModes(f.inner())}};
}

double Ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

// One encoder among those timed together: its row so far, and its times, one a round.
struct Side {
  Record row;
  std::shared_ptr<const MiniLm> model;
  std::vector<double> times_ns;
};

double SpreadOf(const std::vector<double>& samples) {
  return (Quantile(samples, 0.75) - Quantile(samples, 0.25)) / Quantile(samples, 0.5);
}

// Rounds of one run of each side, begun with another side from round to round: `repetitions`, up to
// three times as many until all are quiet, unless time runs out. A side that is kSlow times as slow
// as the first runs in the first round alone.
void TimeRounds(const std::vector<Side*>& sides, int64_t repetitions,
                const std::function<void(const Side&)>& run) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::vector<Side*> running = sides;
  for (int64_t round = 0; round < 3 * repetitions && !Interrupted(); ++round) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const bool quiet = std::all_of(running.begin(), running.end(), [&](const Side* side) {
      return round >= repetitions && SpreadOf(side->times_ns) <= kConvergedSpread;
    });
    if (quiet || (round >= kFewestRounds && seconds > kTimeLimitSeconds)) return;
    for (size_t i = 0; i < running.size(); ++i) {
      Side& side = *running[(i + static_cast<size_t>(round)) % running.size()];
      const auto begin = Clock::now();
      run(side);
      side.times_ns.push_back(
          std::chrono::duration<double, std::nano>(Clock::now() - begin).count());
    }
    const auto is_slow = [&](const Side* side) {
      return side->times_ns[0] > kSlow * sides[0]->times_ns[0];
    };
    running.erase(std::remove_if(running.begin(), running.end(), is_slow), running.end());
  }
}

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

class Experiment {
 public:
  // Throws UsageError for flags that do not suit the model or the sentences.
  explicit Experiment(const Flags& flags);

  // Returns whether every check and every variant was right, as far as it came before a signal.
  bool Run(const Peaks& peaks);

 private:
  void Calibrate(const Peaks& peaks);
  void Check();
  void NoteCheck(const std::string& check, int64_t sentences, double difference, double allowed);
  void Measure(const Setting& setting);
  void MeasureMatrices(const TtFeedForward& layers, const Record& setting);
  void MeasureDensePasses();
  void MeasurePasses(const TtFeedForward& layers, const Record& setting);

  // A layer's product in a pass over the batch.
  LinearProblem BatchProblem(const TtShape& shape) const;
  void AppendQuality(const std::string& what, const TtFeedForward& layers, Record row);
  // A pass of the encoder under the meter, which has counted the encoder's weights: adds the bytes.
  at::Tensor MeasureBytes(const MiniLm& model, MemoryMeter* meter, int64_t feed_forward_bytes,
                          Record* row);
  // Adds whether the pass's embeddings are the expected ones; a side is timed only then.
  void CheckPass(const at::Tensor& embeddings, const at::Tensor& expected, Record* row);
  // Times the sides that have a model and are right against the first, which is dense, and appends
  // all rows but the first `context` ones.
  void TimeAndAppend(std::vector<Side> sides, size_t context);

  // Of the whole encoder: the ranks asked for, up to the full one, and those of the shares.
  std::vector<int64_t> RanksOf(const Factorization& factorization) const;
  // Whether passes are measured at this rank: it is a share's.
  bool HasShare(const Factorization& factorization, int64_t rank) const {
    return std::any_of(flags_.shares.begin(), flags_.shares.end(),
                       [&](double share) { return factorization.RankWithin(share) == rank; });
  }
  // Whether more than its matrices' errors are measured.
  bool IsMain(const Setting& setting) const {
    return !setting.order || setting.order == flags_.orders[0];
  }

  const Flags flags_;
  const NamedTensors weights_;
  const std::vector<MatrixId> matrices_;
  const Sentences sentences_, batch_;
  const int64_t hidden_, inner_;
  std::vector<Setting> settings_;
  std::map<MatrixId, at::Tensor> singular_values_;  // Of each matrix, largest first; float64.
  std::unique_ptr<MiniLm> original_;
  at::Tensor embeddings_;  // The original's.
  int64_t dense_peak_bytes_ = 0;
  bool good_ = true;
  Table checks_, matrix_rows_, embedding_rows_, pass_rows_;
};

Experiment::Experiment(const Flags& flags)
    : flags_(flags),
      weights_(ReadWeights(flags)),
      matrices_(FeedForwardMatrices(weights_)),
      sentences_(ReadSentences(flags.sentences, flags.sentence_count)),
      batch_(sentences_.First(std::min(flags.batch, flags.sentence_count))),
      hidden_(FeedForwardOf(weights_, 0, FeedForward::kUp).first.size(1)),
      inner_(FeedForwardOf(weights_, 0, FeedForward::kUp).first.size(0)),
      checks_(flags.out + "/checks.csv",
              {"schema", "check", "sentences", "difference", "allowed", "status"}),
      matrix_rows_(
          flags.out + "/matrices.csv",
          Columns({"layer", "matrix"}, {"ranks", "weight_bytes", "ratio_to_dense", "relative_error",
                                        "svd_rank", "svd_weight_bytes", "svd_relative_error"})),
      embedding_rows_(flags.out + "/embeddings.csv",
                      Columns({"compressed"}, {"feed_forward_bytes", "ratio_to_dense", "sentences",
                                               "mean_cosine", "worst_cosine", "spearman"})),
      pass_rows_(flags.out + "/passes.csv",
                 Columns({"variant", "algorithm"},
                         {"sentences", "tokens", "threads", "status", "reason",
                          "feed_forward_bytes", "ratio_to_dense", "weight_bytes", "peak_bytes",
                          "peak_ratio_to_dense", "time_ns", "time_min_ns", "time_spread", "rounds",
                          "time_ratio_to_dense", "mean_cosine", "max_difference"})) {
  settings_.push_back({Factorization::Svd(hidden_, inner_), std::nullopt});
  for (const int64_t cores : flags_.cores) {
    for (const FactorOrder order : flags_.orders) {
      settings_.push_back({Factorization::TensorTrain(hidden_, inner_, cores, order), order});
    }
  }
}

bool Experiment::Run(const Peaks& peaks) {
  std::vector<double> expected_seconds;
  for (const Setting& setting : settings_) expected_seconds.push_back(IsMain(setting) ? 5 : 1);
  Progress progress(std::move(expected_seconds), /*quiet=*/false);
  Calibrate(peaks);
  if (Interrupted()) return good_;
  at::set_num_threads(static_cast<int>(flags_.threads));
  KeepFreedPages();
  original_ = std::make_unique<MiniLm>(weights_, DenseFeedForward(kBaselineVariant));
  embeddings_ = EmbedAll(*original_, sentences_);
  Check();
  if (!good_) return false;
  MeasureDensePasses();
  for (const Setting& setting : settings_) {
    if (Interrupted()) break;
    const std::string name = setting.factorization.name();
    progress.Begin(name);
    Measure(setting);
    if (!Interrupted()) progress.Done(name, "done");
  }
  return good_;
}

// In child processes, and so before this one computes: a process that has used its threads cannot
// be forked.
void Experiment::Calibrate(const Peaks& peaks) {
  CalibrationOptions options;
  options.variants = AutoCandidates;
  options.peak_gflops = peaks.fma_gflops;
  options.interrupted = Interrupted;
  for (const Setting& setting : settings_) {
    if (!IsMain(setting)) continue;
    for (const double share : flags_.shares) {
      const int64_t rank = setting.factorization.RankWithin(share);
      for (const FeedForward which : kFeedForwards) {
        if (rank == 0 || Interrupted()) continue;
        const LinearProblem layer = BatchProblem(setting.factorization.Shape(which, rank));
        if (MeasuredSpeeds().Knows(layer)) continue;
        for (const SpeedSample& sample : CalibrateLayer(layer, options)) {
          MeasuredSpeeds().Add(sample);
        }
      }
    }
  }
  WriteFile(flags_.out + "/calibration.csv", FormatCalibration(MeasuredSpeeds().samples()));
}

void Experiment::Check() {
  const int64_t known = std::min(sentences_.size(), sentences_.reference.size(0));
  NoteCheck("embeddings beside NumPy in float64", known,
            Difference(embeddings_.narrow(0, 0, known), sentences_.reference.narrow(0, 0, known)),
            kAllowedDifference);
  const Sentences published = ReadSentences(flags_.published, 3);
  const at::Tensor embeddings = EmbedAll(*original_, published);
  const at::Tensor similarities = at::mm(embeddings, embeddings.t());
  const double found[] = {similarities[0][1].item<double>(), similarities[0][2].item<double>(),
                          similarities[1][2].item<double>()};
  double difference = 0;
  for (int i = 0; i < 3; ++i) {
    difference = std::max(difference, std::abs(found[i] - kPublishedSimilarities[i]));
  }
  NoteCheck("similarities beside the published ones", 3, difference, kPublishedPrecision);
}

void Experiment::NoteCheck(const std::string& check, int64_t sentences, double difference,
                           double allowed) {
  const bool right = difference <= allowed;
  checks_.Append({{"check", check},
                  {"sentences", Number(sentences)},
                  {"difference", Number(difference)},
                  {"allowed", Number(allowed)},
                  {"status", right ? "ok" : "wrong"}});
  if (right) return;
  good_ = false;
  std::fprintf(stderr, "%s: %s: off by %.3g, of which %.3g is allowed\n", kProgram, check.c_str(),
               difference, allowed);
}

void Experiment::Measure(const Setting& setting) {
  const Factorization& factorization = setting.factorization;
  FeedForwardSvd svd(weights_, factorization, matrices_);
  for (const int64_t rank : RanksOf(factorization)) {
    if (Interrupted()) return;
    const TtFeedForward layers = svd.Truncate(rank);
    const Record record = Describe(setting, rank);
    MeasureMatrices(layers, record);
    if (!IsMain(setting)) continue;
    AppendQuality("all", layers, record);
    if (HasShare(factorization, rank)) MeasurePasses(layers, record);
    if (rank != factorization.RankWithin(flags_.alone_share)) continue;
    for (const MatrixId& matrix : matrices_) {
      if (Interrupted()) return;
      AppendQuality("layer " + Number(matrix.first) + " " + Name(matrix.second),
                    svd.Truncate(rank, {matrix}), record);
    }
  }
}

void Experiment::MeasureMatrices(const TtFeedForward& layers, const Record& setting) {
  for (const auto& [matrix, tt] : layers.layers()) {
    const auto [layer, which] = matrix;
    if (!std::count(flags_.layers.begin(), flags_.layers.end(), layer)) continue;
    const at::Tensor weight = FeedForwardOf(weights_, layer, which).first.to(at::kDouble);
    if (!singular_values_.count(matrix)) singular_values_[matrix] = at::linalg_svdvals(weight);
    const at::Tensor& values = singular_values_[matrix];
    const double norm = weight.norm().item<double>();
    const int64_t parameters = tt->shape().parameters();
    // The best matrix of as many elements that is a product of two (Eckart and Young).
    const int64_t svd_rank = std::min(parameters / (hidden_ + inner_), values.size(0));
    Record row = setting;
    row["layer"] = Number(layer);
    row["matrix"] = Name(which);
    row["ranks"] = tt->shape().ranks_name();
    row["weight_bytes"] = Number(parameters * kElementBytes);
    row["ratio_to_dense"] = Number(Ratio(parameters, weight.numel()));
    row["relative_error"] =
        Number((tt->to_dense().to(at::kDouble) - weight).norm().item<double>() / norm);
    row["svd_rank"] = Number(svd_rank);
    row["svd_weight_bytes"] = Number(svd_rank * (hidden_ + inner_) * kElementBytes);
    row["svd_relative_error"] = Number(values.slice(0, svd_rank).norm().item<double>() / norm);
    matrix_rows_.Append(row);
  }
}

void Experiment::AppendQuality(const std::string& what, const TtFeedForward& layers, Record row) {
  const MiniLm model(weights_, layers.Rebuilt());
  const EmbeddingQuality quality = CompareEmbeddings(embeddings_, EmbedAll(model, sentences_));
  const int64_t dense = hidden_ * inner_ * static_cast<int64_t>(layers.layers().size());
  row["compressed"] = what;
  row["feed_forward_bytes"] = Number(layers.Parameters() * kElementBytes);
  row["ratio_to_dense"] = Number(Ratio(layers.Parameters(), dense));
  row["sentences"] = Number(sentences_.size());
  row["mean_cosine"] = Number(quality.mean_cosine);
  row["worst_cosine"] = Number(quality.worst_cosine);
  row["spearman"] = Number(quality.spearman);
  embedding_rows_.Append(row);
}

at::Tensor Experiment::MeasureBytes(const MiniLm& model, MemoryMeter* meter,
                                    int64_t feed_forward_bytes, Record* row) {
  const int64_t dense = hidden_ * inner_ * static_cast<int64_t>(matrices_.size()) * kElementBytes;
  meter->ResetPeak();
  (*row)["weight_bytes"] = Number(meter->live_bytes());
  const at::Tensor embeddings = model.Embed(batch_.ids, batch_.lengths);
  const int64_t peak = meter->peak_bytes();
  if ((*row)["variant"] == kBaselineVariant) dense_peak_bytes_ = peak;
  (*row)["peak_bytes"] = Number(peak);
  (*row)["peak_ratio_to_dense"] = Number(Ratio(peak, dense_peak_bytes_));
  (*row)["feed_forward_bytes"] = Number(feed_forward_bytes);
  (*row)["ratio_to_dense"] = Number(Ratio(feed_forward_bytes, dense));
  (*row)["sentences"] = Number(batch_.size());
  (*row)["tokens"] = Number(batch_.ids.numel());
  (*row)["threads"] = Number(flags_.threads);
  return embeddings;
}

void Experiment::CheckPass(const at::Tensor& embeddings, const at::Tensor& expected, Record* row) {
  const double difference = Difference(embeddings, expected);
  (*row)["max_difference"] = Number(difference);
  const at::Tensor original = embeddings_.narrow(0, 0, batch_.size());
  (*row)["mean_cosine"] = Number(CompareEmbeddings(original, embeddings).mean_cosine);
  (*row)["status"] = "ok";
  if (difference <= kAllowedDifference) return;
  (*row)["status"] = "wrong";
  (*row)["reason"] = "the embeddings differ by " + Number(difference) +
                     " from those of the same matrices, multiplied by densely";
  good_ = false;
}

void Experiment::MeasureDensePasses() {
  const at::Tensor expected = embeddings_.narrow(0, 0, batch_.size());
  std::vector<Side> sides;
  for (const char* variant : kDenseVariants) {
    Side side;
    side.row = {{"variant", variant}, {"method", "dense"}};
    side.row["algorithm"] = FindLinearVariant(variant)->Algorithm(
        BatchProblem(settings_[0].factorization.Shape(FeedForward::kUp, 1)));
    MemoryMeter meter;
    side.model = std::make_shared<MiniLm>(weights_, DenseFeedForward(variant));
    const at::Tensor embeddings = MeasureBytes(
        *side.model, &meter,
        hidden_ * inner_ * static_cast<int64_t>(matrices_.size()) * kElementBytes, &side.row);
    CheckPass(embeddings, expected, &side.row);
    sides.push_back(std::move(side));
  }
  TimeAndAppend(std::move(sides), /*context=*/0);
}

void Experiment::MeasurePasses(const TtFeedForward& layers, const Record& setting) {
  const at::Tensor expected = MiniLm(weights_, layers.Rebuilt()).Embed(batch_.ids, batch_.lengths);
  const TtShape& up = layers.layers().at({0, FeedForward::kUp})->shape();
  std::vector<Side> sides(1);
  sides[0].model = std::make_shared<MiniLm>(weights_, DenseFeedForward(kBaselineVariant));
  for (const char* variant : kTtVariants) {
    if (Interrupted()) return;
    Side side;
    side.row = setting;
    side.row["variant"] = variant;
    const LinearProblem problem = BatchProblem(up);
    side.row["algorithm"] = FindLinearVariant(variant)->Algorithm(problem);
    const double flops = Ratio(PredictLinearCost(*FindLinearVariant(variant), problem).flops,
                               2 * problem.batch * hidden_ * inner_);
    if (flops > kMostFlops) {
      side.row["status"] = "skipped";
      side.row["reason"] = "it takes " + Number(std::round(flops)) +
                           " times the dense matrix's FLOPs; at most " + Number(kMostFlops) +
                           " are run";
    } else {
      MemoryMeter meter;
      side.model = std::make_shared<MiniLm>(weights_, layers.Computed(variant));
      const at::Tensor embeddings =
          MeasureBytes(*side.model, &meter, layers.Parameters() * kElementBytes, &side.row);
      CheckPass(embeddings, expected, &side.row);
    }
    sides.push_back(std::move(side));
  }
  TimeAndAppend(std::move(sides), /*context=*/1);
}

LinearProblem Experiment::BatchProblem(const TtShape& shape) const {
  return {shape, batch_.ids.numel(), Phase::kInference, DType::kFloat32, flags_.threads};
}

void Experiment::TimeAndAppend(std::vector<Side> sides, size_t context) {
  std::vector<Side*> timed;
  for (Side& side : sides) {
    if (side.model && side.row["status"] != "wrong") timed.push_back(&side);
  }
  TimeRounds(timed, flags_.repetitions,
             [&](const Side& side) { side.model->Embed(batch_.ids, batch_.lengths); });
  if (Interrupted()) return;
  for (size_t i = context; i < sides.size(); ++i) {
    Side& side = sides[i];
    if (!side.times_ns.empty()) {
      std::vector<double> ratios;
      for (size_t round = 0; round < side.times_ns.size(); ++round) {
        ratios.push_back(side.times_ns[round] / sides[0].times_ns[round]);
      }
      side.row["time_ns"] = Number(Quantile(side.times_ns, 0.5));
      side.row["time_min_ns"] = Number(Quantile(side.times_ns, 0));
      if (side.times_ns.size() > 1) side.row["time_spread"] = Number(SpreadOf(side.times_ns));
      side.row["rounds"] = Number(static_cast<int64_t>(side.times_ns.size()));
      side.row["time_ratio_to_dense"] = Number(Quantile(ratios, 0.5));
    }
    pass_rows_.Append(side.row);
  }
}

std::vector<int64_t> Experiment::RanksOf(const Factorization& factorization) const {
  const int64_t full = factorization.FullRank();
  std::set<int64_t> ranks;
  for (const int64_t rank : flags_.ranks) ranks.insert(std::min(rank, full));
  for (const double share : flags_.shares) ranks.insert(factorization.RankWithin(share));
  ranks.insert(factorization.RankWithin(flags_.alone_share));
  ranks.erase(0);
  return {ranks.begin(), ranks.end()};
}

int Main(int argc, char** argv) {
  const Machine machine = ReadMachine();
  const Flags flags = ParseFlags(argc, argv, machine.cores);
  Experiment experiment(flags);
  const Peaks peaks = MeasurePeaks(machine, {flags.threads});
  nlohmann::ordered_json info = DescribeRun(machine, peaks);
  const char* command = std::getenv("TTBENCH_COMMAND");
  info["experiment"] = kProgram;
  info["command"] = command ? command : kProgram;
  // What was measured, not where its files lie.
  info["flags"] = nlohmann::json::array();
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i], name = flag.substr(0, flag.find('='));
    if (name != "--weights" && name != "--sentences-file" && name != "--published" &&
        name != "--out") {
      info["flags"].push_back(flag);
    }
  }
  info["started_utc"] = UtcNow();
  for (const auto& warning : info["warnings"]) {
    std::fprintf(stderr, "warning: %s\n", warning.get<std::string>().c_str());
  }
  const auto start = std::chrono::steady_clock::now();
  auto write_info = [&] { WriteFile(flags.out + "/run.json", info.dump(2) + "\n"); };
  write_info();
  const bool good = experiment.Run(peaks);
  info["wall_s"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!Interrupted()) info["finished_utc"] = UtcNow();
  write_info();
  if (Interrupted()) {
    std::fprintf(stderr, "%s: stopped; all finished rows are kept in %s\n", kProgram,
                 flags.out.c_str());
    return 128 + g_signal;
  }
  return good ? kExitOk : kExitFailed;
}

}  // namespace
}  // namespace ttbench

int main(int argc, char** argv) {
  using namespace ttbench;
  std::signal(SIGINT, NoteSignal);
  std::signal(SIGTERM, NoteSignal);
  std::signal(SIGXFSZ, SIG_IGN);  // A file size limit is a write error like a full disk.
  try {
    return Main(argc, argv);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s: %s\n", kProgram, error.what());
    return kExitUsage;
  } catch (const ShapeError& error) {
    std::fprintf(stderr, "%s: %s\n", kProgram, error.what());
    return kExitUsage;
  } catch (const WriteError& error) {
    std::fprintf(stderr, "%s: %s; any rows written before are whole\n", kProgram, error.what());
    return kExitWrite;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", kProgram, error.what());
    return kExitFailed;
  }
}
