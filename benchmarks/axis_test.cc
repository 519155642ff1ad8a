#include "benchmarks/axis.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <numeric>

#include "benchmarks/usage_error.h"

namespace ttbench {
namespace {

using Ints = std::vector<int64_t>;
using Names = std::vector<std::string>;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;

const Names kVariants = {"dense",          "dense-onednn",   "naive",  "einsum", "sequential",
                         "sequential-l2r", "sequential-bmm", "merged", "fused",  "auto"};

std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

std::string IntError(const std::string& text, int64_t minimum = 1) {
  return ErrorOf([&] { ParseIntAxis("--rank", text, minimum); });
}

TEST(ParseIntAxis, TakesListsAndRanges) {
  EXPECT_EQ(ParseIntAxis("--rank", "8"), (Ints{8}));
  EXPECT_EQ(ParseIntAxis("--rank", "8,2,4"), (Ints{8, 2, 4}));
  EXPECT_EQ(ParseIntAxis("--rank", "3:5"), (Ints{3, 4, 5}));
  EXPECT_EQ(ParseIntAxis("--rank", "3:3"), (Ints{3}));
  EXPECT_EQ(ParseIntAxis("--rank", "2:32:x2"), (Ints{2, 4, 8, 16, 32}));
  EXPECT_EQ(ParseIntAxis("--rank", "1:9:+2"), (Ints{1, 3, 5, 7, 9}));
  EXPECT_EQ(ParseIntAxis("--rank", "64,1:4:x2,7:9"), (Ints{64, 1, 2, 4, 7, 8, 9}));
}

TEST(ParseIntAxis, EndsARangeAtItsEndOnlyWhereAStepLandsOnIt) {
  EXPECT_EQ(ParseIntAxis("--rank", "2:31:x2"), (Ints{2, 4, 8, 16}));
  EXPECT_EQ(ParseIntAxis("--rank", "2:63:x3"), (Ints{2, 6, 18, 54}));
  EXPECT_EQ(ParseIntAxis("--rank", "1:8:+3"), (Ints{1, 4, 7}));
  EXPECT_EQ(ParseIntAxis("--rank", "5:6:+9223372036854775807"), (Ints{5}));
}

TEST(ParseIntAxis, KeepsTheFirstOfEqualValues) {
  EXPECT_EQ(ParseIntAxis("--rank", "8,4,8,2:16:x2"), (Ints{8, 4, 2, 16}));
}

TEST(ParseIntAxis, ReachesTheLast64BitIntegerWithoutOverflow) {
  EXPECT_EQ(ParseIntAxis("--seed", "9223372036854775806:9223372036854775807"),
            (Ints{kMax - 1, kMax}));
  EXPECT_EQ(ParseIntAxis("--seed", "4611686018427387904:9223372036854775807:x2"),
            (Ints{int64_t{1} << 62}));
}

TEST(ParseIntAxis, TakesZeroWhereTheMinimumAllowsIt) {
  EXPECT_EQ(ParseIntAxis("--seed", "0,1", 0), (Ints{0, 1}));
  EXPECT_EQ(ParseIntAxis("--seed", "0:4:+2", 0), (Ints{0, 2, 4}));
  EXPECT_EQ(IntError("0"), "--rank: '0' is too small; give 1 or more");
  EXPECT_EQ(IntError("0:4"), "--rank: '0' in '0:4' is too small; give 1 or more");
  EXPECT_EQ(IntError("2,1", 2), "--rank: '1' is too small; give 2 or more");
  EXPECT_EQ(IntError("0:8:x2", 0), "--rank: '0:8:x2' never ends; start a product at 1 or more");
}

TEST(ParseIntAxis, ThrowsOnEmptyListsAndItems) {
  EXPECT_EQ(IntError(""), "--rank: the list is empty; write it as in 2,4,8 or 2:32:x2");
  for (const char* text : {",", "2,", ",2", "2,,4"}) {
    EXPECT_EQ(IntError(text), std::string("--rank: '") + text +
                                  "' has an empty item; write it as in 2,4,8 or 2:32:x2");
  }
}

TEST(ParseIntAxis, ThrowsOnAnythingButIntegers) {
  EXPECT_EQ(IntError("2,8a"), "--rank: '8a' is not an integer; write digits only");
  EXPECT_EQ(IntError("2:b"), "--rank: 'b' in '2:b' is not an integer; write digits only");
  EXPECT_EQ(IntError("2:8:x"), "--rank: '' in '2:8:x' is not an integer; write digits only");
  for (const char* text : {"x", "+2", " 2", "2 ", "2.5", "1e3", "0x10", ":", ":2", "2:", "-"}) {
    EXPECT_NE(IntError(text).find("is not an integer; write digits only"), std::string::npos)
        << text;
  }
}

TEST(ParseIntAxis, ThrowsOnNegativeIntegers) {
  EXPECT_EQ(IntError("2,-3"), "--rank: '-3' is too small; give 1 or more");
  EXPECT_EQ(IntError("-1", 0), "--rank: '-1' is too small; give 0 or more");
  EXPECT_EQ(IntError("-3:3"), "--rank: '-3' in '-3:3' is too small; give 1 or more");
}

TEST(ParseIntAxis, ThrowsPast64Bits) {
  EXPECT_EQ(IntError("9223372036854775808"),
            "--rank: '9223372036854775808' does not fit in 64 bits; use a number below 2^63");
  EXPECT_EQ(IntError("1:9:+9223372036854775808"),
            "--rank: '9223372036854775808' in '1:9:+9223372036854775808' does not fit in 64 bits; "
            "use a number below 2^63");
}

TEST(ParseIntAxis, ThrowsOnContradictoryRanges) {
  EXPECT_EQ(IntError("8:2:x2"), "--rank: '8:2:x2' ends below its start; swap the two");
  EXPECT_EQ(IntError("8:2"), "--rank: '8:2' ends below its start; swap the two");
  EXPECT_EQ(IntError("2:8:x1"), "--rank: '2:8:x1' never ends; multiply by 2 or more");
  EXPECT_EQ(IntError("2:8:x-2"), "--rank: '2:8:x-2' never ends; multiply by 2 or more");
  EXPECT_EQ(IntError("2:8:+0"), "--rank: '2:8:+0' never ends; add 1 or more");
  EXPECT_EQ(IntError("2:8:+-1"), "--rank: '2:8:+-1' never ends; add 1 or more");
  EXPECT_EQ(IntError("2:8:3"),
            "--rank: '2:8:3' has no step '+3' or 'x3' behind its second ':'; write a range as in "
            "1:9:+2 or 2:32:x2");
  EXPECT_EQ(IntError("2:8:"),
            "--rank: '2:8:' has no step '+' or 'x' behind its second ':'; write a range as in "
            "1:9:+2 or 2:32:x2");
  EXPECT_EQ(IntError("1:2:x2:4"),
            "--rank: '1:2:x2:4' has too many ':'; write a range as in 2:32:x2");
}

TEST(ParseIntAxis, ThrowsOnTooManyValues) {
  Ints all(kMaxAxisValues);
  std::iota(all.begin(), all.end(), 1);
  EXPECT_EQ(ParseIntAxis("--rank", "1:10000"), all);
  EXPECT_EQ(ParseIntAxis("--rank", "1:10000,1:10000"), all);
  EXPECT_EQ(IntError("1:10001"),
            "--rank: '1:10001' makes more than 10000 values; use a larger step or a smaller range");
  EXPECT_EQ(IntError("1:10000,20000"),
            "--rank: '20000' makes more than 10000 values; use a larger step or a smaller range");
  EXPECT_NE(IntError("1:9223372036854775807").find("makes more than 10000 values"),
            std::string::npos);
}

TEST(ParseNameAxis, TakesNamesInTheOrderGiven) {
  EXPECT_EQ(ParseNameAxis("--variant", "fused,dense", kVariants), (Names{"fused", "dense"}));
}

TEST(ParseNameAxis, ExpandsGlobsInTheOrderOfTheKnownNames) {
  EXPECT_EQ(ParseNameAxis("--variant", "*", kVariants), kVariants);
  EXPECT_EQ(ParseNameAxis("--variant", "fused,sequential*", kVariants),
            (Names{"fused", "sequential", "sequential-l2r", "sequential-bmm"}));
  EXPECT_EQ(ParseNameAxis("--variant", "?????", kVariants), (Names{"dense", "naive", "fused"}));
}

TEST(ParseNameAxis, KeepsTheFirstOfEqualNames) {
  EXPECT_EQ(ParseNameAxis("--variant", "dense-onednn,dense,dense*", kVariants),
            (Names{"dense-onednn", "dense"}));
}

TEST(ParseNameAxis, ThrowsWithTheNearestNamesWhereNothingMatches) {
  EXPECT_EQ(ErrorOf([] { ParseNameAxis("--variant", "fused,sequental", kVariants); }),
            "--variant: 'sequental' matches nothing; the nearest are sequential, sequential-l2r, "
            "sequential-bmm");
  EXPECT_EQ(ErrorOf([] { ParseNameAxis("--variant", "sequental*", kVariants); }),
            "--variant: 'sequental*' matches nothing; the nearest are sequential, sequential-l2r, "
            "sequential-bmm");
  EXPECT_EQ(ErrorOf([] {
              ParseNameAxis("--dtype", "Float32", {"float32", "float64"});
            }),
            "--dtype: 'Float32' matches nothing; the nearest are float32, float64");
}

TEST(ParseNameAxis, ThrowsOnEmptyListsAndItems) {
  EXPECT_EQ(ErrorOf([] { ParseNameAxis("--variant", "", kVariants); }),
            "--variant: the list is empty; write it as in dense,sequential*");
  EXPECT_EQ(ErrorOf([] { ParseNameAxis("--variant", "dense,,fused", kVariants); }),
            "--variant: 'dense,,fused' has an empty item; write it as in dense,sequential*");
}

TEST(ParseBytes, TakesBinaryAndDecimalUnits) {
  const std::string flag = "--memory-budget";
  EXPECT_EQ(ParseBytes(flag, "12GiB"), 12 * kGiB);
  EXPECT_EQ(ParseBytes(flag, "3MiB"), 3 * kMiB);
  EXPECT_EQ(ParseBytes(flag, "7KiB"), 7 * kKiB);
  EXPECT_EQ(ParseBytes(flag, "12GB"), 12000000000);
  EXPECT_EQ(ParseBytes(flag, "3MB"), 3000000);
  EXPECT_EQ(ParseBytes(flag, "7KB"), 7000);
  EXPECT_EQ(ParseBytes(flag, "5B"), 5);
  EXPECT_EQ(ParseBytes(flag, "415272960"), 415272960);
  EXPECT_EQ(ParseBytes(flag, "9223372036854775807"), kMax);
}

TEST(ParseBytes, RoundsFractionsToWholeBytes) {
  EXPECT_EQ(ParseBytes("--memory-budget", "1.5GiB"), 1610612736);
  EXPECT_EQ(ParseBytes("--memory-budget", ".5KiB"), 512);
  EXPECT_EQ(ParseBytes("--memory-budget", "0.001KiB"), 1);   // 1.024
  EXPECT_EQ(ParseBytes("--memory-budget", "1.3KiB"), 1331);  // 1331.2
  EXPECT_EQ(ParseBytes("--memory-budget", "0.7KiB"), 717);   // 716.8
}

TEST(ParseBytes, ThrowsOnAnythingElse) {
  for (const char* text :
       {"", "GiB", ".", ".GiB", "1.2.3GiB", "-1GiB", "+1GiB", "12 GiB", " 12GiB", "12gib", "12G",
        "12TiB", "1e3", "1e3KiB", "inf", "nan", "0x10", "12GiB ", "1,5GiB"}) {
    EXPECT_EQ(ErrorOf([text] { ParseBytes("--memory-budget", text); }),
              std::string("--memory-budget: '") + text +
                  "' is not a number of bytes; write it as in 12GiB, with B, KiB, MiB, GiB, KB, MB "
                  "or GB");
  }
  EXPECT_EQ(ErrorOf([] { ParseBytes("--memory-budget", "0GiB"); }),
            "--memory-budget: '0GiB' is too small; give 1B or more");
  EXPECT_EQ(ErrorOf([] { ParseBytes("--memory-budget", "8589934592GiB"); }),  // 2^33 * 2^30
            "--memory-budget: '8589934592GiB' does not fit in 64 bits; use a smaller value");
  EXPECT_EQ(ErrorOf([] { ParseBytes("--memory-budget", "9223372036854775808"); }),
            "--memory-budget: '9223372036854775808' does not fit in 64 bits; use a smaller value");
  EXPECT_NE(ErrorOf([] {
              ParseBytes("--memory-budget", std::string(6000, '9'));
            }).find("does not fit in 64 bits"),
            std::string::npos);
}

TEST(FormatBytes, WritesTheLargestUnitToTwoDecimals) {
  EXPECT_EQ(FormatBytes(0), "0B");
  EXPECT_EQ(FormatBytes(1), "1B");
  EXPECT_EQ(FormatBytes(100), "100B");
  EXPECT_EQ(FormatBytes(1023), "1023B");
  EXPECT_EQ(FormatBytes(kKiB), "1KiB");
  EXPECT_EQ(FormatBytes(kKiB + kKiB / 2), "1.5KiB");
  EXPECT_EQ(FormatBytes(kMiB), "1MiB");
  EXPECT_EQ(FormatBytes(415272960), "396.04MiB");  // 396.0351
  EXPECT_EQ(FormatBytes(12 * kGiB), "12GiB");
  EXPECT_EQ(FormatBytes(2000 * kGiB), "2000GiB");
  EXPECT_EQ(FormatBytes(kMax), "8589934592GiB");
}

TEST(FormatBytes, CarriesWhatRoundsUpToTheNextUnit) {
  EXPECT_EQ(FormatBytes(kMiB - 1), "1MiB");
  EXPECT_EQ(FormatBytes(kGiB - 1), "1GiB");
  EXPECT_EQ(FormatBytes(kMiB - 11), "1023.99KiB");  // 1023.9893
}

TEST(FormatBytes, IsReadBackWithinItsRounding) {
  for (int64_t bytes = 1; bytes < kMax / 3; bytes = bytes * 3 + 1) {
    const auto read = static_cast<double>(ParseBytes("--memory-budget", FormatBytes(bytes)));
    EXPECT_NEAR(read / static_cast<double>(bytes), 1, 0.005) << bytes;
  }
}

TEST(ParseSeconds, TakesUnitsFromNanosecondsToHours) {
  const std::string flag = "--cell-timeout";
  EXPECT_EQ(ParseSeconds(flag, "15ns"), 15);
  EXPECT_EQ(ParseSeconds(flag, "20us"), 20000);
  EXPECT_EQ(ParseSeconds(flag, "100ms"), 100000000);
  EXPECT_EQ(ParseSeconds(flag, "2s"), 2000000000);
  EXPECT_EQ(ParseSeconds(flag, "1.5m"), 90000000000);
  EXPECT_EQ(ParseSeconds(flag, "2h"), 7200000000000);
  EXPECT_EQ(ParseSeconds(flag, "0.5"), 500000000);
}

TEST(ParseSeconds, ThrowsOnAnythingElse) {
  for (const char* text : {"", "s", "2 s", "2min", "2S", "-2s", "1m30s", "inf", "2,5s"}) {
    EXPECT_EQ(ErrorOf([text] { ParseSeconds("--min-time", text); }),
              std::string("--min-time: '") + text +
                  "' is not a time; write it as in 100ms, with ns, us, ms, s, m or h");
  }
  EXPECT_EQ(ErrorOf([] { ParseSeconds("--min-time", "0s"); }),
            "--min-time: '0s' is too small; give 1ns or more");
  EXPECT_EQ(ErrorOf([] { ParseSeconds("--min-time", "9223372037s"); }),
            "--min-time: '9223372037s' does not fit in 64 bits; use a smaller value");
}

TEST(GlobMatches, MatchesCellNames) {
  const std::string cell = "linear/fused/16x16x16:16x16x16/r8/b512/train/float32/cpu/t2";
  EXPECT_TRUE(GlobMatches(cell, cell));
  EXPECT_TRUE(GlobMatches("linear/fused/*", cell));
  EXPECT_TRUE(GlobMatches("*/r?/b5?2/*", cell));
  EXPECT_FALSE(GlobMatches("fused", cell));
  EXPECT_FALSE(GlobMatches("*/r?/b?2/*", cell));
  EXPECT_FALSE(GlobMatches("linear/fused/", cell));
}

// The definition, one character of the pattern at a time.
bool MatchesByDefinition(const std::string& pattern, const std::string& text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*' && MatchesByDefinition(pattern.substr(1), text)) return true;
  if (text.empty()) return false;
  if (pattern[0] == '*') return MatchesByDefinition(pattern, text.substr(1));
  return (pattern[0] == '?' || pattern[0] == text[0]) &&
         MatchesByDefinition(pattern.substr(1), text.substr(1));
}

// Every string over `alphabet` of at most `length` characters.
Names AllStrings(const std::string& alphabet, size_t length) {
  Names all = {""};
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].size() == length) break;
    for (const char c : alphabet) all.push_back(all[i] + c);
  }
  return all;
}

TEST(GlobMatches, AgreesWithItsDefinition) {
  for (const std::string& pattern : AllStrings("ab*?", 5)) {
    for (const std::string& text : AllStrings("ab", 5)) {
      ASSERT_EQ(GlobMatches(pattern, text), MatchesByDefinition(pattern, text))
          << pattern << " on " << text;
    }
  }
}

TEST(NearNames, SortsByEditDistanceAndKeepsTheOrderOfEquals) {
  // kitten: 0 to itself, 3 to sitting, 1 to mitten and bitten, 2 to mitte.
  const Names names = {"sitting", "mitten", "mitte", "kitten", "bitten"};
  EXPECT_EQ(NearNames("kitten", names, 9),
            (Names{"kitten", "mitten", "bitten", "mitte", "sitting"}));
  EXPECT_EQ(NearNames("kitten", names, 2), (Names{"kitten", "mitten"}));
  EXPECT_EQ(NearNames("kitten", names, 0), Names());
  EXPECT_EQ(NearNames("kitten", {}, 3), Names());
  Names equals;
  for (char c = 'a'; c <= 'z'; ++c) equals.push_back(std::string("r") + c);
  EXPECT_EQ(NearNames("r8", equals, 26), equals);
  // Insertions, deletions and the empty name cost one a character.
  EXPECT_EQ(NearNames("", {"abc", "a", "ab"}, 3), (Names{"a", "ab", "abc"}));
  EXPECT_EQ(NearNames("abcd", {"", "abxcd", "acd", "abxyzcd"}, 4),
            (Names{"abxcd", "acd", "abxyzcd", ""}));
}

TEST(NearNames, LetsWildcardsMatchForNothing) {
  const Names cells = {"r8", "linear/naive/16x16x16:16x16x16/r8/b512",
                       "linear/fused/16x16x16:16x16x16/r8/b512"};
  EXPECT_EQ(NearNames("linear/fusd/*", cells, 1), (Names{cells[2]}));
  EXPECT_EQ(NearNames("??", {"abc", "ab"}, 1), (Names{"ab"}));
  // Two letters to replace, against one to drop.
  EXPECT_EQ(NearNames("b*a", {"cc", "a"}, 1), (Names{"a"}));
}

}  // namespace
}  // namespace ttbench
