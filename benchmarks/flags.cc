#include "benchmarks/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <iomanip>
#include <map>
#include <sstream>
#include <utility>

#include "benchmarks/axis.h"
#include "benchmarks/transformer_xl_workload.h"
#include "benchmarks/usage_error.h"
#include "kernels/attention/variant.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

struct FlagSpec {
  const char* name;
  const char* default_value;  // nullptr: a switch, off.
  const char* group;
  const char* help;
};

constexpr const char* kAxes =
    "What to run (lists a,b,c; ranges 2:32:x2, 1:9:+2; variants take globs)";
constexpr const char* kAttention = "What to run: a decoder's attention, or a network, instead";
constexpr const char* kNetwork = "";  // Told in a word each by --network.
constexpr const char* kChoosing = "Which of these cells";
constexpr const char* kMeasuring = "How to measure";
constexpr const char* kResults = "Where results go";

constexpr std::array kGroups = {kAxes, kAttention, kChoosing, kMeasuring, kResults};

// --threads defaults to all cores.
constexpr std::array kFlags = {
    FlagSpec{"variant", "*", kAxes, "ways to compute it; they decide on the family"},
    FlagSpec{"d", "", kAxes, "cubes: all modes d"},
    FlagSpec{"shape", "", kAxes, "layers: 2x5x41:10x14x15, or 410:2100 to be factorised"},
    FlagSpec{"cores", "3", kAxes, "TT cores, for --d and for plain sizes in --shape"},
    FlagSpec{"factor-order", "ascending", kAxes, "of plain sizes: ascending, descending, balanced"},
    FlagSpec{"rank", "8", kAxes, "all inner ranks"},
    FlagSpec{"batch", "1,64,512", kAxes, "rows of x (tokens); attention: sequences"},
    FlagSpec{"phase", "inference,train", kAxes, "inference, train, step-sgd, step-adam"},
    FlagSpec{"dtype", "float32", kAxes, "float32, float64, bfloat16"},
    FlagSpec{"threads", "", kAxes, "threads (default: all cores)"},
    FlagSpec{"device", "cpu", kAxes, "cpu or cuda"},
    FlagSpec{"source-len", "52", kAttention, "states of the source"},
    FlagSpec{"target-len", "52", kAttention, "decoder steps"},
    FlagSpec{"hidden", "600", kAttention, "hidden size"},
    FlagSpec{"layers", "0", kAttention, "LSTM layers of the whole decoder; 0: the attention alone"},
    FlagSpec{"network", "", kAttention,
             "transformer-xl; also --heads, --inner, --vocabulary (docs)"},
    FlagSpec{"inner", "2100", kNetwork, ""},
    FlagSpec{"heads", "10", kNetwork, ""},
    FlagSpec{"vocabulary", "267735", kNetwork, ""},
    FlagSpec{"preset", "", kChoosing, "a file of flags, overridden by the command line"},
    FlagSpec{"filter", "", kChoosing, "only cells whose name matches this glob"},
    FlagSpec{"shard", "1/1", kChoosing, "part i of n: i/n"},
    FlagSpec{"list", nullptr, kChoosing, "print the plan with predictions; run nothing"},
    FlagSpec{"measure", "memory,time", kMeasuring, "memory, time or both"},
    FlagSpec{"min-time", "20ms", kMeasuring, "least time of one repetition"},
    FlagSpec{"repetitions", "5", kMeasuring, "fewest repetitions; three times as many if noisy"},
    FlagSpec{"seed", "1", kMeasuring, "seed of inputs and weights"},
    FlagSpec{"cell-timeout", "60s", kMeasuring,
             "deadline of a cell; skipped if predicted past half"},
    FlagSpec{"memory-budget", "", kMeasuring, "most a cell may allocate; beyond it: oom"},
    FlagSpec{"memory-limit", "", kMeasuring, "skip cells predicted past it (default: 3/4 of free)"},
    FlagSpec{"crossovers", "", kMeasuring, "phases in which to find the exact crossovers too"},
    FlagSpec{"max-crossover-batch", "65536", kMeasuring, "largest batch of that search"},
    FlagSpec{"out", "", kResults, "directory, made if missing (default: one in results/runs)"},
    FlagSpec{"resume", "", kResults, "go on with the run in this directory"},
    FlagSpec{"experiment", "sweep", kResults, "name written into the rows"},
    FlagSpec{"quiet", nullptr, kResults, "no progress on the screen"},
};

// One line for each flag, so that it fits a screen.
std::string Help() {
  std::ostringstream text;
  text << "bazel run //benchmarks:sweep -- --shape=768:3072 --rank=8,16 --batch=1:4096:x4\n";
  for (const char* group : kGroups) {
    text << group << "\n";
    for (const FlagSpec& flag : kFlags) {
      if (flag.group != group) continue;
      text << "  --" << std::left << std::setw(20) << flag.name << " " << flag.help;
      if (flag.default_value && *flag.default_value) text << " [" << flag.default_value << "]";
      text << "\n";
    }
  }
  text << "Statuses, exit codes and files: docs/measuring.md\n";
  return text.str();
}

// Flags by name without dashes; switches have the value "true".
using FlagMap = std::map<std::string, std::string>;

// What --resume may be given beside it: nothing that changes the cells.
bool IsOfThisCallAlone(const std::string& name) {
  return name == "out" || name == "resume" || name == "list" || name == "quiet" || name == "preset";
}

// CLI11 would take the next flag for the value of one that has none.
void RequireValues(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    for (const FlagSpec& flag : kFlags) {
      const std::string dashed = std::string("--") + flag.name;
      if (!flag.default_value || arguments[i].substr(0, arguments[i].find('=')) != dashed) continue;
      const bool value_follows = i + 1 < arguments.size() && arguments[i + 1].rfind("--", 0) != 0;
      if (arguments[i] == dashed + "=" || (arguments[i] == dashed && !value_follows)) {
        throw UsageError(dashed + ": there is no value; write it as in " + dashed + "=value");
      }
    }
  }
}

// What a preset's grid may have for itself: the axes, what to measure, how long and within which
// budget, and where to look for crossovers.
bool IsOfAGrid(const std::string& name) {
  return name == "crossovers" || name == "measure" || name == "min-time" || name == "repetitions" ||
         name == "memory-budget" ||
         std::any_of(kFlags.begin(), kFlags.end(), [&](const FlagSpec& flag) {
           return flag.name == name &&
                  (flag.group == kAxes || flag.group == kAttention || flag.group == kNetwork);
         });
}

FlagMap ParseFlagMap(const std::vector<std::string>& arguments, const std::string& origin,
                     std::string* help) {
  RequireValues(arguments);
  CLI::App app;
  std::map<std::string, std::string> values;
  std::map<std::string, bool> switches;
  for (const FlagSpec& flag : kFlags) {
    const std::string dashed = std::string("--") + flag.name;
    CLI::Option* option = flag.default_value ? app.add_option(dashed, values[flag.name])
                                             : app.add_flag(dashed, switches[flag.name]);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    *help = Help();
    return {};
  } catch (const CLI::ParseError& error) {
    for (const std::string& argument : arguments) {
      const std::string name = argument.substr(0, argument.find('='));
      std::vector<std::string> known;
      for (const FlagSpec& flag : kFlags) known.push_back(std::string("--") + flag.name);
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      if (name.rfind("--", 0) != 0) {
        throw UsageError(origin + ": '" + argument + "' is not a flag; flags are --name=value");
      }
      throw UsageError(origin + ": no flag is named " + name + "; did you mean " +
                       NearNames(name, known, 1).front() + "?");
    }
    throw UsageError(origin + ": " + error.what());
  }
  FlagMap given;
  for (const FlagSpec& flag : kFlags) {
    if (app.count(std::string("--") + flag.name) == 0) continue;
    if (!flag.default_value && !switches[flag.name]) continue;  // --quiet=false
    given[flag.name] = flag.default_value ? values[flag.name] : "true";
  }
  return given;
}

struct PresetSection {
  std::string name;  // "" for the flags before the first grid.
  FlagMap flags;
};

using Preset = std::vector<PresetSection>;  // The first holds for all.

Preset ParsePreset(std::istream& text, const std::string& origin) {
  std::vector<std::pair<std::string, std::vector<std::string>>> sections{{"", {}}};
  std::string line;
  while (std::getline(text, line)) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string word; words >> word;) {
      if (word.front() == '[' && word.back() == ']') {
        sections.emplace_back(word, std::vector<std::string>());
      } else {
        sections.back().second.push_back(word);
      }
    }
  }
  Preset preset;
  for (const auto& [name, arguments] : sections) {
    std::string help;
    preset.push_back({name, ParseFlagMap(arguments, origin, &help)});
    if (!help.empty()) throw UsageError(origin + ": --help belongs on the command line");
  }
  return preset;
}

Preset ReadPreset(const std::string& path) {
  std::ifstream file(path);
  file.peek();  // A directory opens, and fails here.
  if (!file.is_open() || file.bad()) throw UsageError("--preset: no file " + path);
  Preset preset = ParsePreset(file, path);
  for (size_t i = 0; i < preset.size(); ++i) {
    for (const auto& [name, value] : preset[i].flags) {
      if (IsOfThisCallAlone(name)) {
        throw UsageError(path + ": --" + name + " belongs on the command line, not in a preset");
      }
      if (i > 0 && !IsOfAGrid(name)) {
        throw UsageError(path + ": --" + name + " in " + preset[i].name +
                         " would hold for all grids; put it before the first");
      }
    }
  }
  return preset;
}

FlagMap Merge(FlagMap base, const FlagMap& over) {
  for (const auto& [name, value] : over) base[name] = value;
  return base;
}

template <typename Enum, size_t kCount>
std::vector<Enum> ParseEnumAxis(const std::string& flag, const std::string& text,
                                const std::array<Enum, kCount>& all) {
  std::vector<std::string> names;
  for (Enum value : all) names.push_back(Name(value));
  std::vector<Enum> values;
  for (const std::string& name : ParseNameAxis(flag, text, names)) {
    values.push_back(all[std::find(names.begin(), names.end(), name) - names.begin()]);
  }
  return values;
}

std::string ParseOne(const std::string& flag, const std::string& text,
                     const std::vector<std::string>& known) {
  const std::vector<std::string> names = ParseNameAxis(flag, text, known);
  if (names.size() != 1) throw UsageError(flag + ": give one of its values, not '" + text + "'");
  return names.front();
}

class FlagReader {
 public:
  explicit FlagReader(FlagMap flags) : flags_(std::move(flags)) {}

  bool Given(const std::string& name) const { return flags_.count(name) > 0; }
  std::string Text(const std::string& name) const {
    const auto found = flags_.find(name);
    if (found != flags_.end()) return found->second;
    for (const FlagSpec& flag : kFlags) {
      if (flag.name == name) return flag.default_value ? flag.default_value : "";
    }
    return "";
  }
  bool Switch(const std::string& name) const { return Text(name) == "true"; }
  std::vector<int64_t> Ints(const std::string& name, int64_t minimum = 1) const {
    return ParseIntAxis("--" + name, Text(name), minimum);
  }
  int64_t Int(const std::string& name, int64_t minimum = 1) const {
    const std::vector<int64_t> values = Ints(name, minimum);
    if (values.size() != 1) throw UsageError("--" + name + ": give one number");
    return values.front();
  }
  // The same flags, with other defaults for those that are not given. These count as given.
  FlagReader WithDefaults(const FlagMap& defaults) const {
    return FlagReader(Merge(defaults, flags_));
  }

 private:
  FlagMap flags_;
};

void AtMost(const std::string& flag, int64_t value, int64_t most) {
  if (value > most) {
    throw UsageError(flag + ": " + std::to_string(value) + " is more than " + std::to_string(most));
  }
}

// The variants asked for, sorted into families. Globs stand for variants of the families whose
// sizes are given; a name stands for itself.
void ReadVariants(const FlagReader& flags, Grid* grid) {
  const bool linear_sizes = flags.Given("d") || flags.Given("shape");
  const bool attention_sizes = flags.Given("source-len") || flags.Given("target-len") ||
                               flags.Given("hidden") || flags.Given("layers");
  const std::string text = flags.Text("variant");
  const std::string items = "," + text + ",";
  std::vector<std::string> known;
  auto add = [&](const std::string& name, bool has_sizes) {
    if (has_sizes || items.find("," + name + ",") != std::string::npos) known.push_back(name);
  };
  for (const auto& variant : LinearVariants())
    add(variant->name(), linear_sizes || !attention_sizes);
  for (const auto& variant : AttentionVariants()) add(variant->name(), attention_sizes);
  for (const std::string& name : ParseNameAxis("--variant", text, known)) {
    (FindLinearVariant(name) ? grid->variants : grid->attention_variants).push_back(name);
  }
  auto refuse = [](const std::string& name, const std::string& sizes) {
    throw UsageError("--variant: '" + name + "' has no size; give " + sizes);
  };
  if (attention_sizes && grid->attention_variants.empty())
    refuse(grid->variants.front(), "--d or --shape instead of the attention's sizes");
  if (linear_sizes && grid->variants.empty())
    refuse(grid->attention_variants.front(), "--source-len and such instead of --d or --shape");
  if (attention_sizes && !linear_sizes && !grid->variants.empty())
    refuse(grid->variants.front(), "--d or --shape too");
}

// The Transformer-XL's sizes; those of the published base configuration where not given.
FlagReader WithNetworkDefaults(const FlagReader& flags) {
  return flags.WithDefaults({{"layers", "16"},
                             {"hidden", "410"},
                             {"target-len", "150"},
                             {"source-len", "150"},
                             {"shape", "2x5x41:10x14x15"},
                             {"batch", "1,4"}});
}

Grid ReadGrid(const FlagReader& given, int64_t default_threads) {
  const bool is_network = given.Given("network");
  if (is_network) ParseOne("--network", given.Text("network"), {kTransformerXlFamily});
  const FlagReader flags = is_network ? WithNetworkDefaults(given) : given;
  Grid grid;
  if (is_network) {
    if (flags.Given("d")) throw UsageError("--d: a Transformer-XL's layers are given by --shape");
    grid.network_variants =
        ParseNameAxis("--variant", flags.Text("variant"), TransformerXlVariants());
    grid.heads = flags.Ints("heads");
    grid.inners = flags.Ints("inner");
    grid.vocabularies = flags.Ints("vocabulary", 2);
  } else {
    for (const char* name : {"heads", "inner", "vocabulary"}) {
      if (flags.Given(name)) {
        throw UsageError(std::string("--") + name +
                         ": only a network has it; give --network=transformer-xl too");
      }
    }
    ReadVariants(flags, &grid);
  }
  grid.cores = flags.Ints("cores", 2);
  grid.source_lens = flags.Ints("source-len", is_network ? 0 : 1);
  grid.target_lens = flags.Ints("target-len");
  grid.hiddens = flags.Ints("hidden");
  grid.layers = flags.Ints("layers", is_network ? 1 : 0);
  if (flags.Given("d")) grid.d = flags.Ints("d");
  if (flags.Given("shape")) {
    std::istringstream items(flags.Text("shape"));
    for (std::string item; std::getline(items, item, ',');) grid.shapes.push_back(item);
    const bool empty_item = std::count(grid.shapes.begin(), grid.shapes.end(), "") > 0;
    if (grid.shapes.empty() || empty_item || flags.Text("shape").back() == ',') {
      throw UsageError("--shape: an item of the list is empty; give layers, e.g. 768:3072");
    }
  }
  if (!grid.variants.empty() && !flags.Given("d") && !flags.Given("shape")) {
    throw UsageError(
        "no layer to measure: give --d=16 for cubes, --shape=768:3072, --target-len=52 for "
        "attention, or --preset");
  }
  grid.factor_order =
      std::map<std::string, FactorOrder>{{"ascending", FactorOrder::kAscending},
                                         {"descending", FactorOrder::kDescending},
                                         {"balanced", FactorOrder::kBalanced}}[ParseOne(
          "--factor-order", flags.Text("factor-order"), {"ascending", "descending", "balanced"})];
  grid.ranks = flags.Ints("rank");
  grid.batches = flags.Ints("batch");
  grid.phases = ParseEnumAxis("--phase", flags.Text("phase"), kPhases);
  grid.dtypes = ParseEnumAxis("--dtype", flags.Text("dtype"), kDTypes);
  grid.threads =
      flags.Given("threads") ? flags.Ints("threads") : std::vector<int64_t>{default_threads};
  for (int64_t threads : grid.threads) AtMost("--threads", threads, 1024);
  const auto measure = ParseNameAxis("--measure", flags.Text("measure"), {"memory", "time"});
  grid.measure_memory = std::count(measure.begin(), measure.end(), "memory") > 0;
  grid.measure_time = std::count(measure.begin(), measure.end(), "time") > 0;
  grid.timing.min_time_ns = ParseSeconds("--min-time", flags.Text("min-time"));
  AtMost("--min-time (in ns)", grid.timing.min_time_ns, 3'600'000'000'000);
  grid.timing.repetitions = flags.Int("repetitions");
  AtMost("--repetitions", grid.timing.repetitions, 10000);
  if (flags.Given("memory-budget")) {
    grid.memory_budget_bytes = ParseBytes("--memory-budget", flags.Text("memory-budget"));
  }
  if (flags.Given("crossovers")) {
    grid.crossover_phases = ParseEnumAxis("--crossovers", flags.Text("crossovers"), kPhases);
    if (!grid.attention_variants.empty()) {
      throw UsageError("--crossovers: '" + grid.attention_variants.front() +
                       "' is of the attention family, which has no dense layer to pass");
    }
    if (is_network) throw UsageError("--crossovers are those of single layers");
  }
  grid.device = ParseOne("--device", flags.Text("device"), {"cpu", "cuda"});
  // Every shape at every rank must make a layer before anything runs.
  auto require_layers = [&](const std::string& flag, const Grid& part) {
    try {
      for (int64_t rank : part.ranks)
        for (const TtShape& shape : ShapesOf(part, rank)) shape.sequential_macs_per_row();
    } catch (const ShapeError& error) {
      throw UsageError(flag + ": " + error.what());
    }
  };
  if (is_network) {
    try {
      NetworksOf(grid);
    } catch (const ShapeError& error) {
      throw UsageError(std::string("--shape and the flags of size: ") + error.what());
    }
    return grid;
  }
  Grid cubes = grid, layers = grid;
  cubes.shapes.clear();
  layers.d.clear();
  require_layers("--d", cubes);
  require_layers("--shape", layers);
  return grid;
}

std::string Join(const FlagMap& flags) {
  std::string line;
  for (const auto& [name, value] : flags) {
    if (IsOfThisCallAlone(name)) continue;
    if (value.find_first_of(" \t\r\n#") != std::string::npos) {
      throw UsageError("--" + name + ": '" + value +
                       "' has a space or a '#', which run.json and "
                       "presets cannot hold; leave them out");
    }
    line += (line.empty() ? "--" : " --") + name + (value == "true" ? "" : "=" + value);
  }
  return line;
}

SweepFlags MakeSweepFlags(const Preset& preset, const FlagMap& command_line,
                          int64_t default_threads) {
  const FlagMap& common = preset.front().flags;
  std::vector<FlagMap> merged;
  for (size_t i = 1; i < preset.size(); ++i) merged.push_back(Merge(common, preset[i].flags));
  if (merged.empty()) merged.push_back(common);
  if (command_line.count("d") || command_line.count("shape")) {
    merged.resize(1);
    for (const char* name : {"d", "shape", "cores"}) merged.front().erase(name);
  }

  SweepFlags result;
  for (const FlagMap& flags : merged) {
    const FlagMap all = Merge(flags, command_line);
    result.grids.push_back(ReadGrid(FlagReader(all), default_threads));
    result.grid_flags.push_back(Join(all));
  }

  const FlagReader flags(Merge(merged.front(), command_line));
  CellOptions& cell = result.cell;
  cell.timeout_ns = ParseSeconds("--cell-timeout", flags.Text("cell-timeout"));
  if (flags.Given("memory-limit")) {
    result.memory_limit_bytes = ParseBytes("--memory-limit", flags.Text("memory-limit"));
  }
  cell.seed = static_cast<uint64_t>(flags.Int("seed", 0));
  result.filter = flags.Text("filter");
  result.max_crossover_batch = flags.Int("max-crossover-batch");
  result.experiment = flags.Text("experiment");
  if (result.experiment.empty() ||
      !std::all_of(result.experiment.begin(), result.experiment.end(),
                   [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; })) {
    throw UsageError("--experiment: '" + result.experiment +
                     "' is not a name of letters, digits, hyphens and underscores");
  }
  result.out = flags.Text("out");
  result.list = flags.Switch("list");
  result.quiet = flags.Switch("quiet");

  auto one_of = [](const std::string& part) {
    const std::vector<int64_t> numbers = ParseIntAxis("--shard", part);
    if (numbers.size() != 1) throw UsageError("--shard: '" + part + "' is not one number");
    return numbers.front();
  };
  const std::string shard = flags.Text("shard");
  const size_t slash = shard.find('/');
  if (slash == std::string::npos) {
    throw UsageError("--shard: '" + shard + "' is not i/n, e.g. --shard=1/4");
  }
  result.shard_index = one_of(shard.substr(0, slash)) - 1;
  result.shard_count = one_of(shard.substr(slash + 1));
  if (result.shard_index >= result.shard_count) {
    throw UsageError("--shard: there is no part " + shard.substr(0, slash) + " of " +
                     shard.substr(slash + 1));
  }
  return result;
}

}  // namespace

std::optional<SweepFlags> ParseSweepFlags(const std::vector<std::string>& arguments,
                                          int64_t default_threads, std::string* help) {
  const FlagMap command_line = ParseFlagMap(arguments, "command line", help);
  if (!help->empty()) return std::nullopt;
  if (command_line.count("resume")) {
    for (const auto& [name, value] : command_line) {
      if (IsOfThisCallAlone(name) && name != "preset" && name != "out") continue;
      throw UsageError("--resume goes on with the run's own flags; leave out --" + name);
    }
    SweepFlags flags;
    flags.resume = command_line.at("resume");
    flags.list = command_line.count("list") > 0;
    flags.quiet = command_line.count("quiet") > 0;
    return flags;
  }
  const auto preset = command_line.find("preset");
  return MakeSweepFlags(
      preset == command_line.end() ? Preset{{"", {}}} : ReadPreset(preset->second), command_line,
      default_threads);
}

SweepFlags ResumedFlags(const std::vector<std::string>& grid_flags, int64_t default_threads,
                        const SweepFlags& now) {
  std::string text;
  for (const std::string& line : grid_flags) text += "[grid]\n" + line + "\n";
  std::istringstream stream(text);
  SweepFlags flags = MakeSweepFlags(ParsePreset(stream, "run.json"), {}, default_threads);
  flags.resume = now.resume;
  flags.list = now.list;
  flags.quiet = now.quiet;
  return flags;
}

}  // namespace ttbench
