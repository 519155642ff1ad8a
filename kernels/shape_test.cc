#include "kernels/shape.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>

namespace ttbench {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// RapidCheck reads its parameters once, at the first property; a caller's own are kept.
[[maybe_unused]] const int kFixedSeed = setenv("RC_PARAMS", "seed=20151", /*overwrite=*/0);

std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "no ShapeError";
}

int64_t Power(int64_t base, int64_t exponent) {
  return exponent == 0 ? 1 : base * Power(base, exponent - 1);
}

int64_t Sum(const Modes& modes) { return std::accumulate(modes.begin(), modes.end(), int64_t{0}); }

// Over every split of `size` into `count` factors.
int64_t LeastSumByBruteForce(int64_t size, int64_t count) {
  if (count == 1) return size;
  int64_t least = kMax;
  for (int64_t factor = 1; factor <= size; ++factor) {
    if (size % factor != 0) continue;
    least = std::min(least, factor + LeastSumByBruteForce(size / factor, count - 1));
  }
  return least;
}

Modes GenModes(int64_t count, int64_t below) {
  return *rc::gen::container<Modes>(count, rc::gen::inRange<int64_t>(1, below));
}

TtShape GenShape() {
  const auto cores = *rc::gen::inRange<int64_t>(2, 7);
  return TtShape(GenModes(cores, 10), GenModes(cores, 10), GenModes(cores - 1, 40));
}

TEST(CheckedArithmetic, GivesExactResultsUpTo64Bits) {
  EXPECT_EQ(CheckedMul(kMax / 7, 7), kMax);  // 2^63 - 1 = 7^2 * 73 * 127 * 337 * 92737 * 649657
  EXPECT_EQ(CheckedMul(0, kMax), 0);
  EXPECT_EQ(CheckedAdd(kMax - 1, 1), kMax);
  EXPECT_EQ(Product({}), 1);
  EXPECT_EQ(Product({2, 5, 41}), 410);
}

TEST(CheckedArithmetic, ThrowsPast64Bits) {
  EXPECT_EQ(ErrorOf([] { CheckedMul(int64_t{1} << 32, int64_t{1} << 31); }),
            "4294967296 * 2147483648 is more than 64 bits hold; use smaller modes or ranks");
  EXPECT_EQ(ErrorOf([] { CheckedAdd(kMax, 1); }),
            "9223372036854775807 + 1 is more than 64 bits hold; use smaller modes or ranks");
  EXPECT_THROW(Product({kMax, 1, 2}), ShapeError);
}

TEST(ModesText, FormatsAndParses) {
  EXPECT_EQ(FormatModes({16, 16, 16}), "16x16x16");
  EXPECT_EQ(FormatModes({7}), "7");
  EXPECT_EQ(ParseModes("2x5x41"), (Modes{2, 5, 41}));
  EXPECT_EQ(ParseModes("9223372036854775807"), (Modes{kMax}));
}

TEST(ModesText, ThrowsOnAnythingButPositiveIntegers) {
  EXPECT_EQ(ErrorOf([] { ParseModes("2x5a"); }),
            "modes '2x5a': '5a' is not a positive integer; write modes as in 2x5x41");
  EXPECT_EQ(ErrorOf([] { ParseModes("9223372036854775808x2"); }),
            "modes '9223372036854775808x2': '9223372036854775808' is more than 64 bits hold; use a "
            "smaller mode");
  for (const char* text : {"", "x", "x2", "2x", "2xx3", "0", "2x0", "-2", "+2", "2 x3", " 2", "2.5",
                           "2X3", "0x10", "1e3", "-9223372036854775809", "2x3:4x5"}) {
    EXPECT_NE(
        ErrorOf([text] { ParseModes(text); }).find("is not a positive integer; write modes as in"),
        std::string::npos)
        << text;
  }
}

RC_GTEST_PROP(ModesText, RoundTrips, ()) {
  const Modes modes = GenModes(*rc::gen::inRange<int64_t>(1, 9), kMax);
  RC_ASSERT(ParseModes(FormatModes(modes)) == modes);
}

// The layer 410 -> 2100 of t3nsor, modes as its auto_shape gives them.
TEST(TtShape, CountsOfUnequalModesFollowTheFormula) {
  for (int64_t r = 1; r <= 20; ++r) {
    const TtShape shape = TtShape::Parse("2x5x41:10x14x15", r);
    EXPECT_EQ(shape.parameters(), 20 * r + 70 * r * r + 615 * r);
  }
  const TtShape shape = TtShape::Parse("2x5x41:10x14x15", 8);
  EXPECT_EQ(shape.parameters(), 9560);
  EXPECT_EQ(shape.cores(), 3);
  EXPECT_EQ(shape.in_features(), 410);
  EXPECT_EQ(shape.out_features(), 2100);
  EXPECT_EQ(shape.dense_parameters(), 861000);
  EXPECT_DOUBLE_EQ(shape.compression(), 861000.0 / 9560.0);
  EXPECT_EQ(shape.CoreSizes(0), (Modes{1, 2, 10, 8}));
  EXPECT_EQ(shape.CoreSizes(1), (Modes{8, 5, 14, 8}));
  EXPECT_EQ(shape.CoreSizes(2), (Modes{8, 41, 15, 1}));
  EXPECT_EQ(shape.clipping_note(), "");
  EXPECT_FALSE(shape.is_cube());
}

// Novikov et al. 2015, table 2: the first fully connected layer of VGG-16 at rank 4 is compressed
// 50,972 times.
TEST(TtShape, ReproducesTheCompressionOfVgg) {
  const TtShape shape = TtShape::Parse("2x7x8x8x7x4:4x4x4x4x4x4", 4);
  EXPECT_EQ(shape.in_features(), 25088);
  EXPECT_EQ(shape.out_features(), 4096);
  EXPECT_EQ(shape.parameters(), 2 * 4 * 4 + 4 * (7 + 8 + 8 + 7) * 4 * 4 + 4 * 4 * 4);
  EXPECT_EQ(std::llround(shape.compression()), 50972);
}

TEST(TtShape, CountsOfUnequalModesAndRanksByHand) {
  const TtShape shape({2, 3, 5}, {7, 4, 6}, {3, 2});
  EXPECT_EQ(shape.parameters(), 2 * 7 * 3 + 3 * 3 * 4 * 2 + 2 * 5 * 6);
  // Core 3: x is 6 x 5, core 5 x (2*6). Core 2: (2*6) rows of 3*2 to 3*4. Core 1: 24 rows of 2*3
  // to 7.
  EXPECT_EQ(shape.sequential_macs_per_row(), 6 * 5 * 12 + 12 * 6 * 12 + 24 * 6 * 7);
  // Core 1 is (2*7) x 3 against 3 x (3*4*2); the two joined are 168 x 2 against 2 x (5*6).
  EXPECT_EQ(shape.rebuild_macs(), 14 * 3 * 24 + 168 * 2 * 30);
}

// Two end cores hold d^2 r parameters each, the K-2 between them d^2 r^2.
TEST(TtShape, CountsOfCubesFollowTheFormulas) {
  for (int64_t cores = 2; cores <= 6; ++cores) {
    for (const int64_t d : {2, 3, 8, 16}) {
      for (int64_t r = 1; r <= std::min<int64_t>(d * d, 64); r *= 2) {
        const TtShape shape = TtShape::Cube(cores, d, r);
        const int64_t rank_terms = 2 * r + (cores - 2) * r * r;
        EXPECT_EQ(shape.cores(), cores);
        EXPECT_EQ(shape.in_features(), Power(d, cores));
        EXPECT_EQ(shape.out_features(), Power(d, cores));
        EXPECT_EQ(shape.dense_parameters(), Power(d, 2 * cores));
        EXPECT_EQ(shape.parameters(), d * d * rank_terms);
        EXPECT_EQ(shape.sequential_macs_per_row(), Power(d, cores + 1) * rank_terms);
        int64_t rebuild = Power(d, 2 * cores) * r;
        for (int64_t k = 2; k < cores; ++k) rebuild += Power(d, 2 * k) * r * r;
        EXPECT_EQ(shape.rebuild_macs(), rebuild);
        EXPECT_EQ(shape.uniform_rank(), r);
        EXPECT_TRUE(shape.is_cube());
        EXPECT_EQ(shape.clipping_note(), "");
      }
    }
  }
}

TEST(TtShape, CountsOfThreeCubicCoresAreTheThreads) {
  const int64_t d = 16, r = 8;
  const TtShape shape = TtShape::Cube(3, d, r);
  EXPECT_EQ(shape.parameters(), d * d * (r * r + 2 * r));
  EXPECT_EQ(shape.sequential_macs_per_row(), d * d * d * d * (r * r + 2 * r));
  EXPECT_EQ(shape.rebuild_macs(), Power(d, 4) * r * r + Power(d, 6) * r);
}

// Contracts the tensor of one row of x core by core and counts products at each step.
RC_GTEST_PROP(TtShape, SequentialMacsAreThoseOfTheContraction, ()) {
  const TtShape shape = GenShape();
  int64_t macs = 0;
  int64_t elements = shape.in_features();
  for (int64_t k = shape.cores() - 1; k >= 0; --k) {
    macs += elements * shape.m(k) * shape.left_rank(k);
    elements = elements / (shape.n(k) * shape.right_rank(k)) * (shape.m(k) * shape.left_rank(k));
  }
  RC_ASSERT(elements == shape.out_features());
  RC_ASSERT(shape.sequential_macs_per_row() == macs);
}

RC_GTEST_PROP(TtShape, RebuildMacsAreThoseOfTheJoins, ()) {
  const TtShape shape = GenShape();
  int64_t macs = 0;
  int64_t elements = Product(shape.CoreSizes(0));
  for (int64_t k = 1; k < shape.cores(); ++k) {
    macs += elements * shape.n(k) * shape.m(k) * shape.right_rank(k);
    elements = elements / shape.left_rank(k) * shape.n(k) * shape.m(k) * shape.right_rank(k);
  }
  RC_ASSERT(elements == shape.dense_parameters());
  RC_ASSERT(shape.rebuild_macs() == macs);
}

RC_GTEST_PROP(TtShape, ParametersAreThoseOfTheCores, ()) {
  const TtShape shape = GenShape();
  int64_t parameters = 0;
  for (int64_t k = 0; k < shape.cores(); ++k) {
    RC_ASSERT(shape.CoreSizes(k) == Modes({shape.ranks()[k], shape.in_modes()[k],
                                           shape.out_modes()[k], shape.ranks()[k + 1]}));
    parameters += Product(shape.CoreSizes(k));
  }
  RC_ASSERT(shape.parameters() == parameters);
}

TEST(TtShape, TakesInnerRanksOrAllRanks) {
  const TtShape inner({4, 4, 4}, {4, 4, 4}, {8, 4});
  EXPECT_EQ(inner.ranks(), (Modes{1, 8, 4, 1}));
  EXPECT_EQ(inner, TtShape({4, 4, 4}, {4, 4, 4}, {1, 8, 4, 1}));
  EXPECT_EQ(TtShape::Uniform({4, 4, 4}, {4, 4, 4}, 8), TtShape::Cube(3, 4, 8));
  EXPECT_FALSE(inner == TtShape::Cube(3, 4, 8));
  EXPECT_FALSE(TtShape({2, 3}, {5, 5}, {2}) == TtShape({3, 2}, {5, 5}, {2}));
  EXPECT_FALSE(TtShape({5, 5}, {2, 3}, {2}) == TtShape({5, 5}, {3, 2}, {2}));
}

TEST(TtShape, NamesModesAndRanks) {
  const TtShape uniform = TtShape::Parse("2x5x41:10x14x15", 8);
  EXPECT_EQ(uniform.modes_name(), "2x5x41:10x14x15");
  EXPECT_EQ(uniform.ranks_name(), "1x8x8x1");
  EXPECT_EQ(uniform.rank_label(), "r8");
  EXPECT_EQ(uniform.uniform_rank(), 8);
  const TtShape unequal({4, 4, 4}, {4, 4, 4}, {8, 4});
  EXPECT_EQ(unequal.ranks_name(), "1x8x4x1");
  EXPECT_EQ(unequal.rank_label(), "r8x4");
  EXPECT_EQ(unequal.uniform_rank(), 0);
  EXPECT_EQ(TtShape::Cube(2, 4, 3).rank_label(), "r3");
}

TEST(TtShape, IsACubeOnlyWhereInAndOutModesAreAllEqual) {
  EXPECT_TRUE(TtShape::Parse("4x4:4x4", 2).is_cube());
  EXPECT_FALSE(TtShape::Parse("4x4:4x5", 2).is_cube());
  EXPECT_FALSE(TtShape::Parse("4x3:4x4", 2).is_cube());
  EXPECT_FALSE(TtShape::Parse("4x4:5x5", 2).is_cube());
}

RC_GTEST_PROP(TtShape, ParseTakesBackModesName, ()) {
  const TtShape shape = GenShape();
  RC_ASSERT(TtShape::Parse(shape.modes_name(), 3) ==
            TtShape::Uniform(shape.in_modes(), shape.out_modes(), 3));
}

TEST(TtShape, ClipsRanksThatTheModesDoNotAdmitAndSaysSo) {
  // Products of n*m: 20 | 70 * 615, and 20 * 70 | 615.
  const TtShape both({2, 5, 41}, {10, 14, 15}, {1000, 3000});
  EXPECT_EQ(both.ranks(), (Modes{1, 20, 615, 1}));
  EXPECT_EQ(both.clipping_note(),
            "shape '2x5x41:10x14x15': ranks clipped to the most that its modes admit: r_1 from "
            "1000 to 20, r_2 from 3000 to 615");
  const TtShape first = TtShape::Parse("2x5x41:10x14x15", 21);
  EXPECT_EQ(first.ranks(), (Modes{1, 20, 21, 1}));
  EXPECT_EQ(first.clipping_note(),
            "shape '2x5x41:10x14x15': ranks clipped to the most that its modes admit: r_1 from 21 "
            "to 20");
  EXPECT_EQ(TtShape::Cube(2, 16, kMax).ranks(), (Modes{1, 256, 1}));
}

RC_GTEST_PROP(TtShape, RanksNeverExceedWhatTheModesAdmit, ()) {
  const auto cores = *rc::gen::inRange<int64_t>(2, 7);
  const Modes in_modes = GenModes(cores, 5), out_modes = GenModes(cores, 5);
  const Modes asked = GenModes(cores - 1, 200);
  const TtShape shape(in_modes, out_modes, asked);
  bool any_clipped = false;
  for (int64_t k = 1; k < cores; ++k) {
    int64_t left = 1, right = 1;
    for (int64_t i = 0; i < cores; ++i) (i < k ? left : right) *= in_modes[i] * out_modes[i];
    RC_ASSERT(shape.ranks()[k] == std::min({asked[k - 1], left, right}));
    const bool clipped = shape.ranks()[k] < asked[k - 1];
    const std::string named = "r_" + std::to_string(k) + " from " + std::to_string(asked[k - 1]) +
                              " to " + std::to_string(shape.ranks()[k]);
    RC_ASSERT((shape.clipping_note().find(named) != std::string::npos) == clipped);
    any_clipped |= clipped;
  }
  RC_ASSERT(shape.clipping_note().empty() == !any_clipped);
}

TEST(TtShape, ThrowsOnUnequalNumbersOfModes) {
  EXPECT_EQ(ErrorOf([] { TtShape::Parse("2x5x41:10x14", 8); }),
            "shape '2x5x41:10x14': 3 input modes but 2 output modes; give as many of each");
  EXPECT_EQ(ErrorOf([] { TtShape::Parse("410:10x14", 8); }),
            "shape '410:10x14': 1 input mode but 2 output modes; give as many of each");
}

TEST(TtShape, ThrowsOnTooFewOrTooManyCores) {
  EXPECT_EQ(ErrorOf([] { TtShape::Parse("4:4", 8); }), "shape '4:4': 1 core; give 2 to 62");
  EXPECT_EQ(ErrorOf([] { TtShape({}, {}, {}); }), "shape ':': 0 cores; give 2 to 62");
  EXPECT_EQ(ErrorOf([] { TtShape::Uniform({}, {}, 8); }), "shape ':': 0 cores; give 2 to 62");
  EXPECT_EQ(ErrorOf([] { TtShape::Cube(1, 16, 8); }), "cube of d = 16: 1 core; give 2 to 62");
  EXPECT_EQ(ErrorOf([] { TtShape::Cube(-1, 16, 8); }), "cube of d = 16: -1 cores; give 2 to 62");
  EXPECT_EQ(ErrorOf([] { TtShape::Cube(kMax, 1, 8); }),
            "cube of d = 1: 9223372036854775807 cores; give 2 to 62");
  EXPECT_EQ(TtShape::Cube(62, 1, 8).parameters(), 62);
  EXPECT_THROW(TtShape::Uniform(Modes(63, 1), Modes(63, 1), 1), ShapeError);
}

TEST(TtShape, ThrowsOnModesAndRanksThatAreNotPositive) {
  EXPECT_EQ(ErrorOf([] {
              TtShape({4, 0}, {4, 4}, {2});
            }),
            "shape '4x0:4x4': input mode 2 is 0; give 1 or more");
  EXPECT_EQ(ErrorOf([] {
              TtShape({4, 4}, {-4, 4}, {2});
            }),
            "shape '4x4:-4x4': output mode 1 is -4; give 1 or more");
  EXPECT_EQ(ErrorOf([] {
              TtShape({4, 4, 4}, {4, 4, 4}, {2, 0});
            }),
            "shape '4x4x4:4x4x4': inner rank 2 is 0; give 1 or more");
  EXPECT_THROW(TtShape::Cube(3, 4, -1), ShapeError);
  EXPECT_THROW(TtShape::Cube(3, 0, 1), ShapeError);
}

TEST(TtShape, ThrowsOnAWrongNumberOfRanks) {
  EXPECT_EQ(ErrorOf([] {
              TtShape({4, 4, 4}, {4, 4, 4}, {2, 2, 2});
            }),
            "shape '4x4x4:4x4x4': 3 ranks for 3 cores; give the 2 inner ranks, or all 4 with ones "
            "at the ends");
  EXPECT_EQ(ErrorOf([] {
              TtShape({4, 4}, {4, 4}, {});
            }),
            "shape '4x4:4x4': 0 ranks for 2 cores; give the 1 inner rank, or all 3 with ones at "
            "the ends");
  EXPECT_EQ(ErrorOf([] {
              TtShape({4, 4, 4}, {4, 4, 4}, {1, 2, 2, 2});
            }),
            "shape '4x4x4:4x4x4': ranks 1x2x2x2 do not begin and end with 1; give ones at the "
            "ends, or only the 2 inner ranks");
  EXPECT_THROW(TtShape({4, 4}, {4, 4}, {2, 2, 1}), ShapeError);
}

TEST(TtShape, ThrowsOnTextThatIsNoShape) {
  EXPECT_EQ(ErrorOf([] { TtShape::Parse("2x5x41", 8); }),
            "shape '2x5x41': no ':'; write input modes, a colon and output modes as in "
            "2x5x41:10x14x15");
  EXPECT_EQ(ErrorOf([] { TtShape::Parse("2x5:4x4:3x3", 8); }),
            "shape '2x5:4x4:3x3': more than one ':'; write input modes, a colon and output modes "
            "as in 2x5x41:10x14x15");
  EXPECT_EQ(ErrorOf([] { TtShape::Parse("2x5:4xb", 8); }),
            "shape '2x5:4xb': 'b' is not a positive integer; write modes as in 2x5x41");
  EXPECT_EQ(ErrorOf([] { TtShape::Parse(":", 8); }),
            "shape ':': '' is not a positive integer; write modes as in 2x5x41");
}

TEST(TtShape, ThrowsWhereTheDenseLayerPasses64Bits) {
  EXPECT_EQ(TtShape({int64_t{1} << 31, 1}, {int64_t{1} << 31, 1}, {1}).dense_parameters(),
            int64_t{1} << 62);
  EXPECT_EQ(ErrorOf([] { TtShape::Parse("4294967296x1:2147483648x1", 1); }),
            "shape '4294967296x1:2147483648x1': 4294967296 * 2147483648 is more than 64 bits hold; "
            "use smaller modes or ranks");
  EXPECT_THROW(TtShape::Cube(8, 16, 2), ShapeError);
  EXPECT_NO_THROW(TtShape::Cube(7, 16, 2));
}

// M*N = 2^62 fits, and each of the three cores holds as much: 3 * 2^62 does not.
TEST(TtShape, ThrowsWhereACountPasses64Bits) {
  const int64_t half = int64_t{1} << 16;
  const TtShape shape({half, 1, half}, {half / 2, 1, half / 2}, {int64_t{1} << 31, 1LL << 31});
  EXPECT_EQ(shape.clipping_note(), "");
  EXPECT_EQ(ErrorOf([&] { shape.parameters(); }),
            "parameters of shape '65536x1x65536:32768x1x32768': 4611686018427387904 + "
            "4611686018427387904 is more than 64 bits hold; use smaller modes or ranks");
  EXPECT_EQ(ErrorOf([&] {
              shape.sequential_macs_per_row();
            }).find("multiply-adds per row of shape '65536x1x65536:32768x1x32768': "),
            0);
  EXPECT_EQ(ErrorOf([&] {
              shape.rebuild_macs();
            }).find("multiply-adds to rebuild shape '65536x1x65536:32768x1x32768': "),
            0);
  EXPECT_THROW(shape.compression(), ShapeError);
}

TEST(Factorize, GivesTheSplitsOfAutoShape) {
  EXPECT_EQ(Factorize(410, 3, FactorOrder::kAscending), (Modes{2, 5, 41}));
  EXPECT_EQ(Factorize(2100, 3, FactorOrder::kAscending), (Modes{10, 14, 15}));
}

TEST(Factorize, GivesEqualFactorsOfAPower) {
  for (int64_t count = 2; count <= 6; ++count) {
    EXPECT_EQ(Factorize(Power(16, count), count, FactorOrder::kAscending), Modes(count, 16));
  }
  EXPECT_EQ(Factorize(int64_t{1} << 62, 62, FactorOrder::kAscending), Modes(62, 2));
}

TEST(Factorize, FillsUpWithOnesWherePrimesAreFew) {
  EXPECT_EQ(Factorize(1, 3, FactorOrder::kAscending), (Modes{1, 1, 1}));
  EXPECT_EQ(Factorize(1009, 3, FactorOrder::kAscending), (Modes{1, 1, 1009}));
  EXPECT_EQ(Factorize(1009, 1, FactorOrder::kAscending), (Modes{1009}));
  EXPECT_EQ(Factorize(6, 4, FactorOrder::kAscending), (Modes{1, 1, 2, 3}));
}

TEST(Factorize, SortsAsAsked) {
  EXPECT_EQ(Factorize(410, 3, FactorOrder::kDescending), (Modes{41, 5, 2}));
  EXPECT_EQ(Factorize(410, 3, FactorOrder::kBalanced), (Modes{2, 41, 5}));
  EXPECT_EQ(Factorize(2 * 3 * 5 * 7, 4, FactorOrder::kBalanced), (Modes{2, 5, 7, 3}));
  EXPECT_EQ(Factorize(3 * 7, 2, FactorOrder::kBalanced), (Modes{3, 7}));
}

// 5 + 8 + 9 = 6 + 6 + 10, and 11 + 16 + 21 = 12 + 14 + 22.
TEST(Factorize, PrefersTheLargestLeastFactorAmongEqualSums) {
  EXPECT_EQ(Factorize(360, 3, FactorOrder::kAscending), (Modes{6, 6, 10}));
  EXPECT_EQ(Factorize(3696, 3, FactorOrder::kAscending), (Modes{12, 14, 22}));
}

TEST(Factorize, ThrowsWhereThereIsNoSplit) {
  EXPECT_EQ(ErrorOf([] { Factorize(0, 3, FactorOrder::kAscending); }),
            "splitting 0 into 3 modes: give a size of 1 or more");
  EXPECT_EQ(ErrorOf([] { Factorize(410, 0, FactorOrder::kAscending); }),
            "splitting 410 into 0 modes: give 1 to 62 modes");
  EXPECT_THROW(Factorize(-410, 3, FactorOrder::kAscending), ShapeError);
  EXPECT_THROW(Factorize(410, -1, FactorOrder::kAscending), ShapeError);
  EXPECT_THROW(Factorize(410, 63, FactorOrder::kAscending), ShapeError);
}

RC_GTEST_PROP(Factorize, MakesTheSizeInTheOrderAsked, ()) {
  const auto size = *rc::gen::inRange<int64_t>(1, 1000000);
  const auto count = *rc::gen::inRange<int64_t>(1, 8);
  const Modes ascending = Factorize(size, count, FactorOrder::kAscending);
  RC_ASSERT(static_cast<int64_t>(ascending.size()) == count);
  RC_ASSERT(Product(ascending) == size);
  RC_ASSERT(std::is_sorted(ascending.begin(), ascending.end()));

  const Modes descending = Factorize(size, count, FactorOrder::kDescending);
  RC_ASSERT(Modes(descending.rbegin(), descending.rend()) == ascending);

  Modes balanced = Factorize(size, count, FactorOrder::kBalanced);
  const auto largest = std::max_element(balanced.begin(), balanced.end());
  RC_ASSERT(std::is_sorted(balanced.begin(), largest));
  RC_ASSERT(std::is_sorted(largest, balanced.end(), std::greater<>()));
  RC_ASSERT(balanced[count / 2] == ascending.back() ||
            balanced[(count - 1) / 2] == ascending.back());
  std::sort(balanced.begin(), balanced.end());
  RC_ASSERT(balanced == ascending);
}

TEST(Factorize, HasTheLeastSumOfFactors) {
  for (int64_t size = 1; size <= 400; ++size) {
    for (int64_t count = 1; count <= 4; ++count) {
      EXPECT_EQ(Sum(Factorize(size, count, FactorOrder::kAscending)),
                LeastSumByBruteForce(size, count))
          << size << " into " << count;
    }
  }
}

RC_GTEST_PROP(Factorize, HasTheLeastSumOfFactorsOfSmoothSizes, ()) {
  const int64_t size = Product(GenModes(4, 9));
  const auto count = *rc::gen::inRange<int64_t>(2, 6);
  RC_ASSERT(Sum(Factorize(size, count, FactorOrder::kAscending)) ==
            LeastSumByBruteForce(size, count));
}

}  // namespace
}  // namespace ttbench
