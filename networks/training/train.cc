// Trains the same language model once for each way to compute its position-wise layers, on the same
// text, seeds and steps, and writes a row for each step: //experiments:training calls it.
//
// All networks take a step before any takes the next, in an order that turns, so that what else the
// machine does hits all alike. Beside them train controls: the reference variant again, from cores
// that are off by as much as the suite's tolerance lets a correct variant's results be off. How far
// the controls' losses move away from the reference's is how far rounding may take a correct one's.
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/axis.h"
#include "benchmarks/exit_code.h"
#include "benchmarks/fingerprint.h"
#include "benchmarks/machine.h"
#include "benchmarks/memory_meter.h"
#include "benchmarks/progress.h"
#include "benchmarks/result_table.h"
#include "benchmarks/run_directory.h"
#include "benchmarks/timing_pass.h"
#include "benchmarks/usage_error.h"
#include "kernels/problem.h"
#include "kernels/scalar_type.h"
#include "kernels/variant.h"
#include "networks/text/corpus.h"
#include "networks/text/streams.h"
#include "networks/training/trainer.h"
#include "networks/transformer_xl/transformer_xl.h"

namespace ttbench {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;

volatile std::sig_atomic_t g_signal = 0;
void NoteSignal(int signal) { g_signal = signal; }

struct Flags {
  std::string variants = "dense,naive,sequential,fused";
  std::string reference = "fused";
  int64_t controls = 3;
  std::string shape = "2x5x41:10x14x15";
  int64_t rank = 8, layers = 2, heads = 10, d_head = 41;
  int64_t target_len = 32, memory_len = 32, batch = 16;
  std::string cutoffs = "2000,4000";
  int64_t steps = 100, warm_up = 10;
  double learning_rate = 1e-3;
  int64_t evaluate_every = 20, evaluation_segments = 8;
  std::string dtype = "float32";
  int64_t threads = 0, seed = 1;
  bool quiet = false;
  std::string text, out, experiment = "training", command;
};

// Throws UsageError; false on --help.
bool ParseFlags(int argc, char** argv, Flags* flags) {
  CLI::App app("bazel run //experiments:training -- [--preset=quick|default] [--out=DIR] ..");
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  const CLI::Range positive(int64_t{1}, std::numeric_limits<int64_t>::max());
  const CLI::Range natural(int64_t{0}, std::numeric_limits<int64_t>::max());
  app.add_option("--variant", flags->variants, "ways to compute the position-wise layers");
  app.add_option("--reference", flags->reference, "the one the others are compared with");
  app.add_option("--controls", flags->controls, "trainings of it that start a tolerance off")
      ->check(natural);
  app.add_option("--shape", flags->shape, "of the layer that widens; the other is its transpose");
  app.add_option("--rank", flags->rank, "all inner ranks")->check(positive);
  app.add_option("--layers", flags->layers, "layers")->check(positive);
  app.add_option("--heads", flags->heads, "attention heads")->check(positive);
  app.add_option("--d-head", flags->d_head, "their width")->check(positive);
  app.add_option("--target-len", flags->target_len, "words of a segment")->check(positive);
  app.add_option("--memory-len", flags->memory_len, "words remembered")->check(natural);
  app.add_option("--batch", flags->batch, "streams beside each other")->check(positive);
  app.add_option("--cutoffs", flags->cutoffs, "of the adaptive softmax; empty: a plain one");
  app.add_option("--steps", flags->steps, "updates")->check(positive);
  app.add_option("--warm-up", flags->warm_up, "of them with a rising rate")->check(natural);
  app.add_option("--learning-rate", flags->learning_rate, "the highest")
      ->check(CLI::PositiveNumber);
  app.add_option("--evaluate-every", flags->evaluate_every, "steps")->check(positive);
  app.add_option("--evaluation-segments", flags->evaluation_segments, "of the text held out")
      ->check(positive);
  app.add_option("--dtype", flags->dtype, "float32 or float64")
      ->check(CLI::IsMember({"float32", "float64"}));
  app.add_option("--threads", flags->threads, "0: all cores")->check(natural);
  app.add_option("--seed", flags->seed, "of the parameters")->check(natural);
  app.add_flag("--quiet", flags->quiet, "no progress on the screen");
  // For the experiment alone.
  app.add_option("--text", flags->text)->required()->group("");
  app.add_option("--out", flags->out)->required()->group("");
  app.add_option("--command", flags->command)->group("");
  app.add_option("--experiment", flags->experiment)->group("");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  return true;
}

// One network of the run.
struct Contender {
  std::string name, variant, role;  // As in the rows.
  int64_t control = 0;              // Its number, if it is one.
};

std::vector<Contender> ContendersOf(const Flags& flags) {
  std::vector<std::string> known{kBaselineVariant};
  for (const auto& variant : LinearVariants()) {
    if (!variant->is_dense() && variant->RunsOn(Device::kCpu)) known.push_back(variant->name());
  }
  std::vector<Contender> contenders;
  bool has_cores = false, has_reference = false;
  for (const std::string& name : ParseNameAxis("--variant", flags.variants, known)) {
    const bool dense = name == kBaselineVariant, reference = name == flags.reference;
    has_cores = has_cores || !dense;
    has_reference = has_reference || (reference && !dense);
    contenders.push_back({name, name,
                          dense       ? "baseline"
                          : reference ? "reference"
                                      : "compared",
                          0});
  }
  if (has_cores && !has_reference) {
    throw UsageError("--reference: " + flags.reference +
                     " is not among the TT variants of --variant; name one of them");
  }
  for (int64_t i = 1; has_reference && i <= flags.controls; ++i) {
    contenders.push_back(
        {flags.reference + "-off" + std::to_string(i), flags.reference, "control", i});
  }
  return contenders;
}

std::string Number(double value) {
  if (!std::isfinite(value)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", value);
  return text;
}

class Run {
 public:
  explicit Run(Flags flags);
  int Execute();

 private:
  TransformerXlOptions OptionsOf(const Contender& contender) const;
  TransformerXl MakeNetwork(const Contender& contender) const;
  void WriteText() const;
  // Measures the peaks of each network by itself and writes a row about it.
  void WriteNetworks() const;
  void TrainAll();
  std::string Path(const char* file) const { return flags_.out + "/" + file; }
  // So many segments fill the memory.
  int64_t FillingSegments() const {
    return (flags_.memory_len + flags_.target_len - 1) / flags_.target_len;
  }

  Flags flags_;
  Machine machine_ = ReadMachine();
  std::vector<Contender> contenders_;
  DType dtype_;
  TtShape up_, down_;
  double tolerance_;  // Relative: of a correct layer's results.
  Corpus corpus_;
  Streams training_, held_out_;
  Schedule schedule_;
};

TtShape Transposed(const TtShape& shape) {
  return {shape.out_modes(), shape.in_modes(), shape.ranks()};
}

Run::Run(Flags flags)
    : flags_(std::move(flags)),
      contenders_(ContendersOf(flags_)),
      dtype_(flags_.dtype == Name(DType::kFloat64) ? DType::kFloat64 : DType::kFloat32),
      up_(TtShape::Parse(flags_.shape, flags_.rank)),
      down_(Transposed(up_)),
      tolerance_(std::max(Tolerance(up_, dtype_), Tolerance(down_, dtype_))),
      corpus_(ReadCorpus(flags_.text)),
      training_(corpus_.training, flags_.batch, flags_.target_len),
      held_out_(corpus_.held_out, flags_.batch, flags_.target_len),
      schedule_{flags_.learning_rate, flags_.warm_up, flags_.steps} {
  if (flags_.threads == 0) flags_.threads = machine_.cores;
  if (flags_.evaluation_segments > held_out_.segments()) {
    throw UsageError("--evaluation-segments: the text held out has " +
                     std::to_string(held_out_.segments()) + " of this size");
  }
  if (flags_.warm_up >= flags_.steps) throw UsageError("--warm-up: give fewer than --steps");
  for (const Contender& contender : contenders_) {
    CheckOptions(OptionsOf(contender));
    if (contender.role == "baseline") continue;
    const LinearVariant& variant = *FindLinearVariant(contender.variant);
    for (const TtShape& shape : {up_, down_}) {
      const std::string reason = variant.WhySkipped(
          {shape, flags_.batch * flags_.target_len, Phase::kTrain, dtype_, flags_.threads});
      if (!reason.empty()) {
        throw UsageError("--variant: " + variant.name() + " cannot run " + shape.modes_name() +
                         ": " + reason);
      }
    }
  }
}

TransformerXlOptions Run::OptionsOf(const Contender& contender) const {
  TransformerXlOptions options;
  options.layers = flags_.layers;
  options.d_model = up_.in_features();
  options.heads = flags_.heads;
  options.d_head = flags_.d_head;
  options.d_inner = up_.out_features();
  options.target_len = flags_.target_len;
  options.memory_len = flags_.memory_len;
  options.vocabulary = corpus_.vocabulary.size();
  if (!flags_.cutoffs.empty()) options.cutoffs = ParseIntAxis("--cutoffs", flags_.cutoffs);
  options.feed_forward_variant = contender.variant;
  if (!options.is_dense()) {
    options.up = up_;
    options.down = down_;
  }
  return options;
}

TransformerXl Run::MakeNetwork(const Contender& contender) const {
  torch::manual_seed(static_cast<uint64_t>(flags_.seed));
  TransformerXl network(OptionsOf(contender), ScalarTypeOf(dtype_));
  for (const Contender& other : contenders_) {
    if (contender.role == "baseline" && other.role == "reference") {
      StartAlike(network, MakeNetwork(other));
    }
  }
  if (contender.control > 0) {
    MoveFeedForward(network, tolerance_, static_cast<uint64_t>(contender.control));
  }
  return network;
}

void Run::WriteText() const {
  std::vector<int64_t> evaluated;
  for (int64_t i = 0; i < flags_.evaluation_segments; ++i) {
    const at::Tensor targets = held_out_.At(i).targets;
    const int64_t* const first = targets.const_data_ptr<int64_t>();
    evaluated.insert(evaluated.end(), first, first + targets.numel());
  }
  const Vocabulary& words = corpus_.vocabulary;
  CsvAppender table(Path("text.csv"),
                    {"schema", "training_words", "held_out_words", "evaluated_words", "vocabulary",
                     "unigram_training_nats", "unigram_evaluated_nats"});
  table.Append({std::to_string(kSchemaVersion), std::to_string(corpus_.training.size()),
                std::to_string(corpus_.held_out.size()), std::to_string(evaluated.size()),
                std::to_string(words.size()), Number(words.UnigramNats(corpus_.training)),
                Number(words.UnigramNats(evaluated))});
}

void Run::WriteNetworks() const {
  CsvAppender table(Path("networks.csv"), {"schema",
                                           "experiment",
                                           "network",
                                           "variant",
                                           "role",
                                           "dtype",
                                           "threads",
                                           "seed",
                                           "layers",
                                           "d_model",
                                           "heads",
                                           "d_head",
                                           "d_inner",
                                           "target_len",
                                           "memory_len",
                                           "batch",
                                           "in_modes",
                                           "out_modes",
                                           "ranks",
                                           "parameters",
                                           "feed_forward_parameters",
                                           "step_peak_bytes",
                                           "evaluation_peak_bytes",
                                           "start_off_relative"});
  for (const Contender& contender : contenders_) {
    const TransformerXlOptions options = OptionsOf(contender);
    const bool dense = options.is_dense();
    MemoryMeter meter;
    Trainer trainer(MakeNetwork(contender), schedule_);
    meter.ResetPeak();
    trainer.Evaluate(held_out_, std::min(FillingSegments() + 1, held_out_.segments()));
    const int64_t evaluation_peak_bytes = meter.peak_bytes();
    // The first step makes the optimizer's state, and the first ones fill the memory.
    for (int64_t i = 0; i <= FillingSegments(); ++i) {
      meter.ResetPeak();
      trainer.Train(training_.At(i % training_.segments()));
    }
    meter.ResetPeak();
    trainer.Train(training_.At((FillingSegments() + 1) % training_.segments()));
    const ParameterCounts counts(options);
    auto text = [](int64_t value) { return std::to_string(value); };
    table.Append({text(kSchemaVersion),
                  flags_.experiment,
                  contender.name,
                  contender.variant,
                  contender.role,
                  Name(dtype_),
                  text(flags_.threads),
                  text(flags_.seed),
                  text(options.layers),
                  text(options.d_model),
                  text(options.heads),
                  text(options.d_head),
                  text(options.d_inner),
                  text(options.target_len),
                  text(options.memory_len),
                  text(flags_.batch),
                  dense ? "" : FormatModes(up_.in_modes()),
                  dense ? "" : FormatModes(up_.out_modes()),
                  dense ? "" : up_.ranks_name(),
                  text(counts.total()),
                  text(counts.feed_forward),
                  text(meter.peak_bytes()),
                  text(evaluation_peak_bytes),
                  contender.control > 0 ? Number(tolerance_) : ""});
  }
}

void Run::TrainAll() {
  CsvAppender table(
      Path("steps.csv"),
      {"schema", "experiment", "network", "step", "words", "learning_rate", "loss_nats",
       "gradient_norm", "feed_forward_gradient_norm", "step_s", "held_out_loss_nats"});
  KeepFreedPages();
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (const Contender& contender : contenders_) {
    trainers.push_back(std::make_unique<Trainer>(MakeNetwork(contender), schedule_));
  }
  const int64_t reports = (flags_.steps + flags_.evaluate_every - 1) / flags_.evaluate_every;
  Progress progress(std::vector<double>(reports, 1.0), flags_.quiet);
  const int64_t words = flags_.batch * flags_.target_len;
  const size_t count = contenders_.size();
  for (int64_t step = 1; step <= flags_.steps; ++step) {
    const int64_t segment_number = (step - 1) % training_.segments();
    const Segment segment = training_.At(segment_number);
    const bool evaluates = step % flags_.evaluate_every == 0 || step == flags_.steps;
    const std::string title = "steps to " + std::to_string(step);
    if (step % flags_.evaluate_every == 1 || flags_.evaluate_every == 1) progress.Begin(title);
    std::string losses;
    for (size_t i = 0; i < count; ++i) {
      if (g_signal != 0) return;
      const size_t turn = (i + static_cast<size_t>(step)) % count;
      Trainer& trainer = *trainers[turn];
      if (segment_number == 0) trainer.Forget();
      const auto begun = Clock::now();
      const Trainer::Step done = trainer.Train(segment);
      const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
      std::string held_out;
      if (evaluates) held_out = Number(trainer.Evaluate(held_out_, flags_.evaluation_segments));
      table.Append({std::to_string(kSchemaVersion), flags_.experiment, contenders_[turn].name,
                    std::to_string(step), std::to_string(step * words), Number(done.learning_rate),
                    Number(done.loss_nats), Number(done.gradient_norm),
                    Number(done.feed_forward_gradient_norm), Number(seconds), held_out});
      if (evaluates && contenders_[turn].role != "control") {
        losses +=
            (losses.empty() ? "" : ", ") + contenders_[turn].name + " " + held_out.substr(0, 5);
      }
    }
    if (evaluates) progress.Done(title, losses);
  }
}

int Run::Execute() {
  const auto begun = Clock::now();
  ordered_json info = DescribeRun(machine_, MeasurePeaks(machine_, {flags_.threads}));
  info["experiment"] = flags_.experiment;
  info["command"] = flags_.command;
  info["started_utc"] = UtcNow("%Y-%m-%dT%H:%M:%SZ");
  for (const auto& warning : info["warnings"]) {
    std::fprintf(stderr, "warning: %s\n", warning.get<std::string>().c_str());
  }
  auto write_info = [&] { WriteFile(Path("run.json"), info.dump(2) + "\n"); };
  write_info();
  at::set_num_threads(static_cast<int>(flags_.threads));
  WriteText();
  WriteNetworks();
  TrainAll();
  info["wall_s"] = std::chrono::duration<double>(Clock::now() - begun).count();
  if (g_signal != 0) {
    write_info();
    std::fputs("training: stopped; all finished rows are kept\n", stderr);
    return 128 + g_signal;
  }
  info["finished_utc"] = UtcNow("%Y-%m-%dT%H:%M:%SZ");
  write_info();
  return kExitOk;
}

int Main(int argc, char** argv) {
  std::signal(SIGINT, NoteSignal);
  std::signal(SIGTERM, NoteSignal);
  std::signal(SIGXFSZ, SIG_IGN);  // A file size limit is a write error like a full disk.
  Flags flags;
  try {
    if (!ParseFlags(argc, argv, &flags)) return kExitOk;
    return Run(std::move(flags)).Execute();
  } catch (const std::invalid_argument& error) {  // UsageError, ShapeError: the flags.
    std::fprintf(stderr, "training: %s\n", error.what());
    return kExitUsage;
  } catch (const WriteError& error) {
    std::fprintf(stderr, "training: %s; any rows written before are whole\n", error.what());
    return kExitWrite;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "training: %s\n", error.what());
    return kExitFailed;
  }
}

}  // namespace
}  // namespace ttbench

int main(int argc, char** argv) { return ttbench::Main(argc, argv); }
