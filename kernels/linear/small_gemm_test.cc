#include "kernels/linear/small_gemm.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace ttbench {
namespace {

// Small integers: sums are exact in every order, and a wrong access shows as a wrong value or, at
// the buffer's end, to AddressSanitizer.
template <typename Real>
std::vector<Real> Integers(int64_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<Real> values(count);
  for (Real& value : values) value = static_cast<Real>(static_cast<int64_t>(engine() % 17) - 8);
  return values;
}

template <typename Real>
class SmallGemmTest : public testing::Test {};
using Reals = testing::Types<float, double>;
TYPED_TEST_SUITE(SmallGemmTest, Reals);

TYPED_TEST(SmallGemmTest, MultipliesEverySizeAndLayout) {
  using Real = TypeParam;
  for (int64_t rows : {1, 2, 5, 6, 13}) {
    for (int64_t lanes : {1, 3, 15, 16, 17, 64, 100}) {
      for (int64_t depth : {1, 2, 7, 32}) {
        for (int layout = 0; layout < 8; ++layout) {
          const bool transposed = layout & 1, accumulate = layout & 2, portable = layout & 4;
          GemmShape shape{rows,      lanes,     depth,      (transposed ? rows : depth) + 3,
                          lanes + 2, lanes + 1, transposed, accumulate};
          const int64_t a_rows = transposed ? depth : rows;
          const auto a = Integers<Real>((a_rows - 1) * shape.lda + (transposed ? rows : depth), 1);
          const auto t = Integers<Real>((depth - 1) * shape.ldt + lanes, 2);
          auto c = Integers<Real>((rows - 1) * shape.ldc + lanes, 3);
          auto expected = c;
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t l = 0; l < lanes; ++l) {
              Real sum = accumulate ? c[i * shape.ldc + l] : 0;
              for (int64_t k = 0; k < depth; ++k) {
                sum += a[transposed ? k * shape.lda + i : i * shape.lda + k] * t[k * shape.ldt + l];
              }
              expected[i * shape.ldc + l] = sum;
            }
          }
          SmallGemm<Real>(shape, portable)(a.data(), t.data(), c.data());
          EXPECT_EQ(c, expected) << rows << "x" << lanes << "x" << depth << " layout " << layout;
        }
      }
    }
  }
}

TYPED_TEST(SmallGemmTest, SumsProductsOverLanes) {
  using Real = TypeParam;
  for (int64_t p_rows : {1, 3, 4, 9}) {
    for (int64_t q_rows : {1, 2, 4, 7}) {
      for (int64_t lanes : {1, 7, 8, 16, 33}) {
        const int64_t ld = lanes + 1, outer = 2;
        const DotShape shape{p_rows, q_rows,     lanes,           outer,          ld,
                             ld,     q_rows + 1, p_rows * ld + 2, q_rows * ld + 1};
        const auto p = Integers<Real>(shape.p_outer_stride + (p_rows - 1) * ld + lanes, 4);
        const auto q = Integers<Real>(shape.q_outer_stride + (q_rows - 1) * ld + lanes, 5);
        auto c = Integers<Real>((p_rows - 1) * shape.ldc + q_rows, 6);
        auto expected = c;
        for (int64_t i = 0; i < p_rows; ++i) {
          for (int64_t j = 0; j < q_rows; ++j) {
            for (int64_t o = 0; o < outer; ++o) {
              for (int64_t l = 0; l < lanes; ++l) {
                expected[i * shape.ldc + j] += p[o * shape.p_outer_stride + i * ld + l] *
                                               q[o * shape.q_outer_stride + j * ld + l];
              }
            }
          }
        }
        DotGemm(shape, p.data(), q.data(), c.data());
        EXPECT_EQ(c, expected) << p_rows << "x" << q_rows << "x" << lanes;
      }
    }
  }
}

TYPED_TEST(SmallGemmTest, PacksAndUnpacksTiles) {
  using Real = TypeParam;
  for (int64_t columns : {1, 5, 16, 35}) {
    for (int64_t width : {1, 3, 16, 32}) {
      for (int64_t count : {int64_t{1}, (width + 1) / 2, width}) {
        const int64_t ld = columns + 4;
        const auto rows = Integers<Real>((count - 1) * ld + columns, 7);
        std::vector<Real> tile(columns * width, Real(99));
        PackTile(rows.data(), ld, count, columns, width, tile.data());
        for (int64_t j = 0; j < columns; ++j) {
          for (int64_t i = 0; i < width; ++i) {
            ASSERT_EQ(tile[j * width + i], i < count ? rows[i * ld + j] : 0);
          }
        }
        // The same with the tile's rows in another order: every seventh, 7 being coprime to columns
        // but for 35, which is turned round.
        std::vector<int32_t> places(columns);
        for (int64_t j = 0; j < columns; ++j) {
          places[j] = static_cast<int32_t>(columns == 35 ? columns - 1 - j : 7 * j % columns);
        }
        std::vector<Real> placed(columns * width, Real(99));
        PackTile(rows.data(), ld, count, columns, width, places.data(), placed.data());
        for (int64_t j = 0; j < columns; ++j) {
          for (int64_t i = 0; i < width; ++i) {
            ASSERT_EQ(placed[places[j] * width + i], tile[j * width + i]);
          }
        }
        for (bool in_order : {true, false}) {
          std::vector<Real> back(rows.size(), Real(99));
          if (in_order) {
            UnpackTile(tile.data(), width, columns, count, back.data(), ld);
          } else {
            UnpackTile(placed.data(), width, places.data(), columns, count, back.data(), ld);
          }
          for (int64_t i = 0; i < count; ++i) {
            for (int64_t j = 0; j < ld && i * ld + j < static_cast<int64_t>(back.size()); ++j) {
              ASSERT_EQ(back[i * ld + j], j < columns ? rows[i * ld + j] : 99);
            }
          }
        }
      }
    }
  }
}

TEST(BFloat16Test, RoundsToNearestEven) {
  // 1 + 2^-8 lies halfway between 1 and 1 + 2^-7: to the even one; 1 + 3 * 2^-8 likewise goes up.
  const std::vector<float> values = {1.0f, 1.00390625f, 1.01171875f, -2.5f};
  const std::vector<float> expected = {1.0f, 1.0f, 1.015625f, -2.5f};
  std::vector<BFloat16> stored(values.size());
  UnpackTile(values.data(), 1, 4, 1, stored.data(), 4);
  std::vector<float> read(values.size());
  PackTile(stored.data(), 4, 1, 4, 1, read.data());
  EXPECT_EQ(read, expected);
}

}  // namespace
}  // namespace ttbench
