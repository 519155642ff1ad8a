#include "benchmarks/copy_advice.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ttbench {
namespace {

using Dims = std::vector<int64_t>;

Layout Contiguous(Dims sizes) {
  Dims strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i];
  }
  return {std::move(sizes), std::move(strides)};
}

Layout Permute(const Layout& layout, const Dims& order) {
  Layout permuted;
  for (const int64_t dim : order) {
    permuted.sizes.push_back(layout.sizes[dim]);
    permuted.strides.push_back(layout.strides[dim]);
  }
  return permuted;
}

// A reshape of a permuted tensor, [rows, columns] in the end, for a product.
RecordedCopy CopyFor(const Layout& source, int64_t rows, int64_t columns) {
  RecordedCopy copy;
  copy.source = source;
  copy.target = Contiguous(source.sizes);
  copy.consumer = {"mm", Contiguous({rows, columns})};
  return copy;
}

void ExpectProducts(const std::optional<StridedProducts>& got, int64_t count, int64_t rows,
                    int64_t columns) {
  ASSERT_TRUE(got);
  EXPECT_EQ(got->count, count);
  EXPECT_EQ(got->rows, rows);
  EXPECT_EQ(got->columns, columns);
}

TEST(StridedProductTest, SidesAreThoseOfTheMatrixOverTheSameMemory) {
  const std::vector<Side> want = {Side::kRows, Side::kRows, Side::kColumns};
  EXPECT_EQ(SidesOf({2, 3, 4}, Contiguous({6, 4})), want);
  // Read as its transpose, [4, 6].
  const std::vector<Side> transposed = {Side::kColumns, Side::kColumns, Side::kRows};
  EXPECT_EQ(SidesOf({2, 3, 4}, Permute(Contiguous({6, 4}), {1, 0})), transposed);
  const std::vector<Side> batched = {Side::kBatch, Side::kRows, Side::kColumns};
  EXPECT_EQ(SidesOf({2, 3, 4}, Contiguous({2, 3, 4})), batched);
  // The dimension of 3 is half in the rows and half in the columns.
  EXPECT_FALSE(SidesOf({2, 6, 2}, Contiguous({4, 6})));
}

// B x [n2 n3] by n1, of x [B, n1, n2, n3]: one product for each row of x.
TEST(StridedProductTest, LoopsOverWhatDoesNotMerge) {
  const Layout x = Contiguous({5, 2, 3, 4});
  ExpectProducts(AddressInPlace(Permute(x, {0, 2, 3, 1}),
                                {Side::kRows, Side::kRows, Side::kRows, Side::kColumns}),
                 5, 12, 2);
}

TEST(StridedProductTest, WithoutAStrideOfOneEachCallHasOneRowOrColumn) {
  ExpectProducts(AddressInPlace({{3, 4}, {8, 2}}, {Side::kRows, Side::kColumns}), 3, 1, 4);
  // Rows that overlap have no leading dimension.
  ExpectProducts(AddressInPlace({{3, 4}, {2, 1}}, {Side::kRows, Side::kColumns}), 3, 1, 4);
}

TEST(StridedProductTest, ATransposeIsOneCall) {
  ExpectProducts(AddressInPlace({{3, 4}, {1, 3}}, {Side::kRows, Side::kColumns}), 1, 3, 4);
}

TEST(CopyAdviceTest, AProductReadsItsOperandWhereItLies) {
  RecordedCopy copy = CopyFor(Permute(Contiguous({5, 2, 12}), {0, 2, 1}), 60, 2);
  copy.origin = Origin::kInput;
  const Advice advice = AdviseOn(copy, "x");
  EXPECT_EQ(advice.remedy, Remedy::kReadInPlace);
  ExpectProducts(advice.products, 5, 12, 2);
  EXPECT_EQ(advice.sentence, "mm can read x where it lies, in 5 calls with 12x2 of it");
}

// The result [5 12, 2] is wanted as [5, 2, 12]; nothing reads it as a matrix.
TEST(CopyAdviceTest, OrItsProducerWritesIt) {
  RecordedCopy copy;
  copy.source = Permute(Contiguous({5, 12, 2}), {0, 2, 1});
  copy.target = Contiguous({5, 2, 12});
  copy.producer = {"mm", Contiguous({60, 2})};
  const Advice advice = AdviseOn(copy, "T1");
  EXPECT_EQ(advice.remedy, Remedy::kWriteInPlace);
  ExpectProducts(advice.products, 5, 12, 2);
}

TEST(CopyAdviceTest, TheFewerCallsWin) {
  RecordedCopy copy = CopyFor(Permute(Contiguous({5, 3, 4}), {1, 0, 2}), 3, 20);
  copy.producer = {"mm", Contiguous({15, 4})};
  // Read as [3, 5 4], it is 5 matrices of [3, 4] apart; written as [5 3, 4], 5 of them or 3.
  EXPECT_EQ(AdviseOn(copy, "T2").remedy, Remedy::kWriteInPlace);
  ExpectProducts(AdviseOn(copy, "T2").products, 3, 5, 4);
}

TEST(CopyAdviceTest, AParameterIsKeptInTheOrderWanted) {
  // G2 [8, 16, 10, 4] read as [16 4, 8 10].
  RecordedCopy copy = CopyFor(Permute(Contiguous({8, 16, 10, 4}), {1, 3, 0, 2}), 64, 80);
  copy.origin = Origin::kParameter;
  const Advice advice = AdviseOn(copy, "G2");
  EXPECT_EQ(advice.remedy, Remedy::kKeepOrder);
  EXPECT_EQ(advice.sentence,
            "keep G2, in memory 8x16x10x4, with its dimensions in the order 1 3 0 2: 16x4x8x10");
}

TEST(CopyAdviceTest, SaysWhereNothingWasRearranged) {
  EXPECT_EQ(AdviseOn(CopyFor(Contiguous({6, 4}), 6, 4), "d(x)").remedy, Remedy::kTakeOver);
  // The stride of a single row says nothing.
  EXPECT_EQ(AdviseOn(CopyFor({{1, 4}, {9, 1}}, 1, 4), "d(x)").remedy, Remedy::kTakeOver);
}

TEST(CopyAdviceTest, SeesRepeatedElements) {
  const Advice advice = AdviseOn(CopyFor({{7, 3, 4}, {0, 4, 1}}, 21, 4), "G1");
  EXPECT_EQ(advice.remedy, Remedy::kBroadcast);
  EXPECT_NE(advice.sentence.find("7 times"), std::string::npos);
}

TEST(CopyAdviceTest, SeesConversionsAndCopiesOfCopies) {
  RecordedCopy copy = CopyFor(Permute(Contiguous({6, 4}), {1, 0}), 4, 6);
  copy.consumer.op = "copy_";
  EXPECT_EQ(AdviseOn(copy, "T1").remedy, Remedy::kCopyOnce);
  copy.converts = true;
  EXPECT_EQ(AdviseOn(copy, "T1").remedy, Remedy::kOneType);
}

TEST(CopyAdviceTest, ElementwiseOperatorsTakeAnyOrder) {
  RecordedCopy copy = CopyFor(Permute(Contiguous({6, 4}), {1, 0}), 4, 6);
  copy.consumer = {};
  copy.producer = {"sum", Contiguous({6, 4})};
  EXPECT_EQ(AdviseOn(copy, "d(G1)").remedy, Remedy::kWriteInPlace);
  copy.producer = {};
  EXPECT_EQ(AdviseOn(copy, "d(G1)").remedy, Remedy::kOtherOrder);
  copy.consumer = {"tanh", Contiguous({4, 6})};
  EXPECT_EQ(AdviseOn(copy, "d(G1)").remedy, Remedy::kReadInPlace);
}

}  // namespace
}  // namespace ttbench
