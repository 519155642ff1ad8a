#include "benchmarks/flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/usage_error.h"
#include "kernels/attention/variant.h"
#include "kernels/variant.h"

namespace ttbench {
namespace {

using Ints = std::vector<int64_t>;
using Names = std::vector<std::string>;

constexpr int64_t kCores = 6;

SweepFlags Parse(const std::vector<std::string>& arguments) {
  std::string help;
  std::optional<SweepFlags> flags = ParseSweepFlags(arguments, kCores, &help);
  EXPECT_EQ(help, "");
  return flags.value();
}

void ExpectRefused(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& words) {
  try {
    Parse(arguments);
    FAIL() << "not refused: " << arguments.back();
  } catch (const UsageError& error) {
    const std::string what = error.what();
    for (const std::string& word : words) {
      EXPECT_NE(what.find(word), std::string::npos) << "no " << word << " in: " << what;
    }
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

// A preset file for the time of a test.
class Preset {
 public:
  explicit Preset(const std::string& text)
      : path_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".flags") {
    std::ofstream(path_) << text;
  }
  ~Preset() { std::remove(path_.c_str()); }
  std::string Flag() const { return "--preset=" + path_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(ParseSweepFlagsTest, Defaults) {
  const SweepFlags flags = Parse({"--d=4"});
  ASSERT_EQ(flags.grids.size(), 1u);
  const Grid& grid = flags.grids[0];
  Names all;
  for (const auto& variant : LinearVariants()) all.push_back(variant->name());
  EXPECT_EQ(grid.variants, all);
  EXPECT_EQ(grid.d, Ints{4});
  EXPECT_EQ(grid.shapes, Names{});
  EXPECT_EQ(grid.cores, Ints{3});
  EXPECT_EQ(grid.factor_order, FactorOrder::kAscending);
  EXPECT_EQ(grid.dtypes, std::vector{DType::kFloat32});
  EXPECT_EQ(grid.threads, Ints{kCores});
  EXPECT_EQ(grid.device, "cpu");
  EXPECT_TRUE(grid.measure_memory);
  EXPECT_TRUE(grid.measure_time);
  EXPECT_EQ(grid.memory_budget_bytes, 0);
  EXPECT_EQ(flags.filter, "");
  EXPECT_EQ(flags.shard_index, 0);
  EXPECT_EQ(flags.shard_count, 1);
  EXPECT_TRUE(grid.crossover_phases.empty());
  EXPECT_FALSE(flags.list);
  EXPECT_FALSE(flags.quiet);
}

TEST(ParseSweepFlagsTest, ReadsEveryFlag) {
  const SweepFlags flags = Parse({"--variant=sequential,d*e",
                                  "--d=2:8:x2",
                                  "--cores=2,4",
                                  "--shape=2x3:4x5,6:35",
                                  "--rank",
                                  "1,3",
                                  "--batch=5",
                                  "--phase=step-*",
                                  "--dtype=bfloat16,float64",
                                  "--threads=1:3",
                                  "--factor-order=balanced",
                                  "--device=cpu",
                                  "--seed=0",
                                  "--measure=memory",
                                  "--min-time=7ms",
                                  "--repetitions=9",
                                  "--cell-timeout=1.5m",
                                  "--memory-budget=12GiB",
                                  "--memory-limit=3MB",
                                  "--filter=*/b5/*",
                                  "--shard=2/3",
                                  "--crossovers=inference,train",
                                  "--max-crossover-batch=77",
                                  "--experiment=mine",
                                  "--out=there",
                                  "--list",
                                  "--quiet"});
  const Grid& grid = flags.grids.at(0);
  EXPECT_EQ(grid.variants, (Names{"sequential", "dense"}));
  EXPECT_EQ(grid.d, (Ints{2, 4, 8}));
  EXPECT_EQ(grid.cores, (Ints{2, 4}));
  EXPECT_EQ(grid.shapes, (Names{"2x3:4x5", "6:35"}));
  EXPECT_EQ(grid.ranks, (Ints{1, 3}));
  EXPECT_EQ(grid.batches, Ints{5});
  EXPECT_EQ(grid.phases, (std::vector{Phase::kStepSgd, Phase::kStepAdam}));
  EXPECT_EQ(grid.dtypes, (std::vector{DType::kBFloat16, DType::kFloat64}));
  EXPECT_EQ(grid.threads, (Ints{1, 2, 3}));
  EXPECT_EQ(grid.factor_order, FactorOrder::kBalanced);
  EXPECT_EQ(flags.cell.seed, 0u);
  EXPECT_TRUE(grid.measure_memory);
  EXPECT_FALSE(grid.measure_time);
  EXPECT_EQ(flags.grids[0].timing.min_time_ns, 7'000'000);
  EXPECT_EQ(flags.grids[0].timing.repetitions, 9);
  EXPECT_EQ(flags.cell.timeout_ns, 90'000'000'000);
  EXPECT_EQ(flags.grids[0].memory_budget_bytes, int64_t{12} << 30);
  EXPECT_EQ(flags.memory_limit_bytes, 3'000'000);
  EXPECT_EQ(flags.filter, "*/b5/*");
  EXPECT_EQ(flags.shard_index, 1);
  EXPECT_EQ(flags.shard_count, 3);
  EXPECT_EQ(grid.crossover_phases, (std::vector{Phase::kInference, Phase::kTrain}));
  EXPECT_EQ(flags.max_crossover_batch, 77);
  EXPECT_EQ(flags.experiment, "mine");
  EXPECT_EQ(flags.out, "there");
  EXPECT_TRUE(flags.list);
  EXPECT_TRUE(flags.quiet);
}

// The sizes that are given decide on the family that a glob stands for; a name stands for itself.
TEST(ParseSweepFlagsTest, VariantsDecideOnTheFamily) {
  const Grid attention = Parse({"--target-len=1,4", "--hidden=8"}).grids[0];
  EXPECT_EQ(attention.variants, Names());
  EXPECT_EQ(attention.attention_variants.size(), AttentionVariants().size());
  EXPECT_EQ(attention.attention_variants.front(), kAttentionBaseline);
  EXPECT_EQ(attention.source_lens, Ints{52});
  EXPECT_EQ(attention.target_lens, (Ints{1, 4}));
  EXPECT_EQ(attention.hiddens, Ints{8});
  EXPECT_EQ(attention.layers, Ints{0});

  EXPECT_EQ(Parse({"--d=4"}).grids[0].attention_variants, Names());
  const Grid named = Parse({"--variant=clones,sdpa"}).grids[0];
  EXPECT_EQ(named.attention_variants, (Names{"clones", "sdpa"}));
  EXPECT_EQ(named.hiddens, Ints{600});
  EXPECT_EQ(Parse({"--variant=prealloc-*", "--source-len=50"}).grids[0].attention_variants,
            (Names{"prealloc-mm", "prealloc-all", "prealloc-proven"}));
  const Grid both = Parse({"--variant=dense,clones", "--d=4", "--layers=2"}).grids[0];
  EXPECT_EQ(both.variants, Names{"dense"});
  EXPECT_EQ(both.attention_variants, Names{"clones"});
}

TEST(ParseSweepFlagsTest, RefusesSizesOfAnotherFamily) {
  ExpectRefused({"--variant=dense", "--hidden=8"}, {"--variant", "dense", "--d"});
  ExpectRefused({"--variant=clones", "--d=8"}, {"--variant", "clones", "--source-len"});
  ExpectRefused({"--variant=dense,clones", "--hidden=8"}, {"--variant", "dense", "--d"});
  ExpectRefused({"--variant=clones,dense"}, {"--d", "--shape"});
  ExpectRefused({"--variant=prealloc-*"}, {"prealloc"});
  ExpectRefused({"--variant=clones", "--crossovers=train"}, {"--crossovers", "attention"});
  ExpectRefused({"--variant=clones", "--target-len=0"}, {"--target-len"});
}

TEST(ParseSweepFlagsTest, TheLastOfAFlagCounts) {
  EXPECT_EQ(Parse({"--d=4", "--rank=2", "--d=8", "--rank", "3"}).grids[0].d, Ints{8});
  EXPECT_EQ(Parse({"--d=4", "--rank=2", "--d=8", "--rank", "3"}).grids[0].ranks, Ints{3});
}

TEST(ParseSweepFlagsTest, ANetworkHasThePublishedSizesUnlessGiven) {
  const Grid grid = Parse({"--network=transformer-xl", "--variant=dense,fused", "--rank=4",
                           "--shape=41x5x2:10x14x15+15x14x10:2x5x41"})
                        .grids[0];
  EXPECT_EQ(grid.network_variants, (Names{"dense", "fused"}));
  EXPECT_TRUE(grid.variants.empty());
  const std::vector<RankedNetwork> networks = NetworksOf(grid);
  ASSERT_EQ(networks.size(), 1u);
  const TransformerXlOptions& network = networks[0].network;
  EXPECT_EQ(network.layers, 16);
  EXPECT_EQ(network.d_head, 41);
  EXPECT_EQ(network.memory_len, 150);
  EXPECT_EQ(network.cutoffs, (Ints{20000, 40000, 200000}));
  EXPECT_EQ(network.up->modes_name(), "41x5x2:10x14x15");
  EXPECT_EQ(network.down->modes_name(), "15x14x10:2x5x41");
  EXPECT_EQ(network.down->uniform_rank(), 4);
  // Cutoffs past the vocabulary fall away, and the layer back mirrors the layer there.
  const RankedNetwork small =
      NetworksOf(Parse({"--network=transformer-xl", "--vocabulary=30000"}).grids[0]).front();
  EXPECT_EQ(small.network.cutoffs, Ints{20000});
  EXPECT_EQ(small.network.down->modes_name(), "10x14x15:2x5x41");
}

TEST(ParseSweepFlagsTest, RefusesNetworksThatDoNotFit) {
  EXPECT_THROW(Parse({"--network=transformer"}), UsageError);
  EXPECT_THROW(Parse({"--network=transformer-xl", "--hidden=400"}), UsageError);
  EXPECT_THROW(Parse({"--network=transformer-xl", "--heads=7"}), UsageError);
  EXPECT_THROW(Parse({"--network=transformer-xl", "--variant=dense-onednn"}), UsageError);
  EXPECT_THROW(Parse({"--network=transformer-xl", "--d=4"}), UsageError);
  EXPECT_THROW(Parse({"--network=transformer-xl", "--crossovers=train"}), UsageError);
  EXPECT_THROW(Parse({"--d=4", "--heads=2"}), UsageError);
}

TEST(ParseSweepFlagsTest, HelpNamesEveryFlag) {
  std::string help;
  EXPECT_FALSE(ParseSweepFlags({"--help"}, kCores, &help).has_value());
  for (const char* name :
       {"variant",  "d",           "cores",        "rank",          "batch",  "shape",
        "phase",    "dtype",       "threads",      "device",        "seed",   "measure",
        "min-time", "repetitions", "cell-timeout", "memory-budget", "filter", "preset",
        "out",      "resume",      "shard",        "list",          "quiet"}) {
    EXPECT_NE(help.find(std::string("--") + name + " "), std::string::npos) << name;
  }
}

TEST(ParseSweepFlagsTest, HelpFitsAScreenAndGroupsFlags) {
  std::string help;
  ParseSweepFlags({"--help"}, kCores, &help);
  EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 40);
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  size_t last = 0;
  for (const char* words :
       {"What to run", "--batch ", "--hidden ", "Which of these cells", "--filter ",
        "How to measure", "--min-time ", "Where results go", "--out "}) {
    const size_t at = help.find(words);
    ASSERT_NE(at, std::string::npos) << words;
    EXPECT_GT(at, last) << words;
    last = at;
  }
}

TEST(ParseSweepFlagsTest, AFlagIsNoValue) {
  ExpectRefused({"--d=4", "--out", "--list"}, {"--out"});
  ExpectRefused({"--d=4", "--out=", "--list"}, {"--out"});
  ExpectRefused({"--d=4", "--batch=", "--list"}, {"--batch"});
  ExpectRefused({"--d=4", "--filter"}, {"--filter"});
}

// run.json keeps flags as a preset does, parted by spaces.
TEST(ParseSweepFlagsTest, RefusesWhatCannotBeKept) {
  ExpectRefused({"--d=4", "--experiment=my run"}, {"--experiment", "my run"});
  ExpectRefused({"--d=4", "--filter=a#b"}, {"--filter", "a#b"});
}

constexpr const char* kTwoGrids =
    "# What holds for all.\n"
    "--phase=train --rank=2 # the rest of a line\n"
    "--min-time=3ms\n"
    "\n"
    "[cubes]\n"
    "--d=4,8 --batch=1\n"
    "[layers]\n"
    "--shape=2x3:3x2 --rank=4 --crossovers=train\n";

TEST(PresetTest, SectionsAreGrids) {
  const SweepFlags flags = Parse({Preset(kTwoGrids).Flag()});
  ASSERT_EQ(flags.grids.size(), 2u);
  const Grid &cubes = flags.grids[0], &layers = flags.grids[1];
  EXPECT_EQ(cubes.d, (Ints{4, 8}));
  EXPECT_EQ(cubes.shapes, Names{});
  EXPECT_EQ(cubes.ranks, Ints{2});
  EXPECT_EQ(cubes.batches, Ints{1});
  EXPECT_EQ(layers.d, Ints{});
  EXPECT_EQ(layers.shapes, Names{"2x3:3x2"});
  EXPECT_EQ(layers.ranks, Ints{4});
  EXPECT_TRUE(cubes.crossover_phases.empty());
  EXPECT_EQ(layers.crossover_phases, std::vector{Phase::kTrain});
  EXPECT_EQ(layers.batches, Parse({"--d=4"}).grids[0].batches);
  for (const Grid& grid : flags.grids) EXPECT_EQ(grid.phases, std::vector{Phase::kTrain});
  EXPECT_EQ(flags.grids[0].timing.min_time_ns, 3'000'000);
}

TEST(PresetTest, WithoutSectionsIsOneGrid) {
  const SweepFlags flags = Parse({Preset("--d=4\n--batch=3").Flag()});
  ASSERT_EQ(flags.grids.size(), 1u);
  EXPECT_EQ(flags.grids[0].batches, Ints{3});
}

TEST(PresetTest, CommandLineOverridesEveryGrid) {
  const SweepFlags flags = Parse({"--rank=16", "--min-time=5ms", Preset(kTwoGrids).Flag()});
  ASSERT_EQ(flags.grids.size(), 2u);
  for (const Grid& grid : flags.grids) EXPECT_EQ(grid.ranks, Ints{16});
  EXPECT_EQ(flags.grids[0].d, (Ints{4, 8}));
  EXPECT_EQ(flags.grids[1].shapes, Names{"2x3:3x2"});
  EXPECT_EQ(flags.grids[0].timing.min_time_ns, 5'000'000);
}

TEST(PresetTest, ShapesOnTheCommandLineReplaceTheGrids) {
  const Preset preset(kTwoGrids);
  SweepFlags flags = Parse({preset.Flag(), "--d=16"});
  ASSERT_EQ(flags.grids.size(), 1u);
  EXPECT_EQ(flags.grids[0].d, Ints{16});
  EXPECT_EQ(flags.grids[0].shapes, Names{});
  EXPECT_EQ(flags.grids[0].ranks, Ints{2});
  EXPECT_EQ(flags.grids[0].batches, Ints{1});

  flags = Parse({preset.Flag(), "--shape=2x2:2x2"});
  ASSERT_EQ(flags.grids.size(), 1u);
  EXPECT_EQ(flags.grids[0].d, Ints{});
  EXPECT_EQ(flags.grids[0].shapes, Names{"2x2:2x2"});
}

TEST(PresetTest, ErrorsNameTheFile) {
  const Preset unknown("--d=4\n[grid]\n--rang=2\n");
  ExpectRefused({unknown.Flag()}, {unknown.path(), "--rang", "--rank"});
  const Preset word("--d=4 sequential\n");
  ExpectRefused({word.Flag()}, {word.path(), "'sequential'"});
  ExpectRefused({"--preset=/nowhere.flags"}, {"--preset", "/nowhere.flags"});
  ExpectRefused({"--preset=" + testing::TempDir()}, {"--preset", testing::TempDir()});
}

// Everything that decides what runs, as text.
std::string Describe(const SweepFlags& flags) {
  std::string text;
  auto add = [&](const std::string& value) { text += value + ";"; };
  auto add_all = [&](const auto& values) {
    for (const auto& value : values) text += std::to_string(static_cast<int64_t>(value)) + ",";
    text += ";";
  };
  for (const Grid& grid : flags.grids) {
    for (const std::string& name : grid.variants) add(name);
    for (const std::string& name : grid.shapes) add(name);
    add_all(grid.d);
    add_all(grid.cores);
    add_all(Ints{static_cast<int64_t>(grid.factor_order)});
    add_all(grid.ranks);
    add_all(grid.batches);
    add_all(grid.phases);
    add_all(grid.crossover_phases);
    add_all(grid.dtypes);
    add_all(grid.threads);
    add(grid.device);
    add_all(Ints{grid.measure_memory, grid.measure_time, grid.timing.min_time_ns,
                 grid.timing.repetitions, grid.memory_budget_bytes});
    text += "\n";
  }
  const CellOptions& cell = flags.cell;
  add_all(Ints{static_cast<int64_t>(cell.seed), cell.timeout_ns, flags.memory_limit_bytes,
               flags.max_crossover_batch, flags.shard_index, flags.shard_count});
  add(flags.filter);
  add(flags.experiment);
  return text;
}

TEST(ResumedFlagsTest, MakeTheSameRun) {
  const Preset preset(kTwoGrids);
  const std::vector<std::vector<std::string>> calls = {
      {"--d=4"},
      {preset.Flag()},
      {preset.Flag(), "--rank=16", "--out=there", "--quiet"},
      {preset.Flag(), "--d=16", "--list"},
      {"--shape=410:2100",
       "--factor-order=descending",
       "--variant=s*",
       "--rank=2:8:x2",
       "--batch=1:9:+4",
       "--phase=train,step-adam",
       "--dtype=*",
       "--threads=1",
       "--seed=12",
       "--measure=memory",
       "--min-time=3ms",
       "--repetitions=2",
       "--cell-timeout=9s",
       "--memory-budget=2GiB",
       "--memory-limit=3GiB",
       "--crossovers=train",
       "--max-crossover-batch=99",
       "--filter=*/b5/*",
       "--shard=2/4",
       "--experiment=mine"},
  };
  for (const std::vector<std::string>& call : calls) {
    const SweepFlags flags = Parse(call);
    SweepFlags now;
    now.resume = "some/where";
    now.quiet = true;
    const SweepFlags resumed = ResumedFlags(flags.grid_flags, kCores, now);
    EXPECT_EQ(Describe(resumed), Describe(flags));
    // A resumed run can be resumed again.
    EXPECT_EQ(resumed.grid_flags, flags.grid_flags);
    EXPECT_EQ(resumed.resume, "some/where");
    EXPECT_TRUE(resumed.quiet);
    EXPECT_FALSE(resumed.list);
    EXPECT_EQ(resumed.out, "");
  }
}

TEST(ResumedFlagsTest, KeepNothingOfTheFirstCallAlone) {
  const SweepFlags flags =
      Parse({"--list", "--quiet", "--out=there", Preset(kTwoGrids).Flag(), "--rank=3"});
  EXPECT_EQ(flags.grid_flags,
            (Names{"--batch=1 --d=4,8 --min-time=3ms --phase=train --rank=3",
                   "--crossovers=train --min-time=3ms --phase=train --rank=3 --shape=2x3:3x2"}));
}

TEST(ParseSweepFlagsTest, ResumeTakesNoFlagsOfTheCells) {
  const SweepFlags flags = Parse({"--resume=there", "--quiet", "--list"});
  EXPECT_EQ(flags.resume, "there");
  EXPECT_TRUE(flags.quiet);
  EXPECT_TRUE(flags.list);
  for (const char* flag : {"--d=4", "--seed=2", "--out=here", "--preset=some", "--filter=*"}) {
    ExpectRefused({"--resume=there", flag},
                  {"--resume", std::string(flag).substr(0, std::string(flag).find('='))});
  }
}

}  // namespace
}  // namespace ttbench
