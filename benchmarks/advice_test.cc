#include "benchmarks/advice.h"

#include <gtest/gtest.h>

#include "kernels/cost/speed.h"

namespace ttbench {
namespace {

TEST(AnswersByBatchTest, FindsEachChangeExactly) {
  const auto answers = AnswersByBatch(
      [](int64_t batch) { return batch < 7      ? "a"
                                 : batch < 1000 ? "b"
                                                : "c"; }, 65'536);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[1].first, 7);
  EXPECT_EQ(answers[2].first, 1000);
  EXPECT_EQ(Format(answers), "a up to B = 6, b up to B = 999, c from B = 1000");
}

TEST(AnswersByBatchTest, TwoChangesBetweenPowersOfTwo) {
  const auto answers =
      AnswersByBatch([](int64_t batch) { return batch < 9    ? "a"
                                                : batch < 14 ? "b"
                                                             : "c"; }, 100);
  EXPECT_EQ(Format(answers), "a up to B = 8, b up to B = 13, c from B = 14");
}

TEST(AnswersByBatchTest, OneAnswerForAll) {
  EXPECT_EQ(Format(AnswersByBatch([](int64_t) { return "fused"; }, 1000)), "fused at every batch");
}

TEST(AdviseTest, GivesMemoryTimePickAndTheBatchesOfChange) {
  const TtShape shape = TtShape::Cube(3, 4, 2);
  auto at = [&](int64_t batch) { return LinearProblem{shape, batch, Phase::kInference}; };
  SpeedTable& speeds = MeasuredSpeeds();
  speeds.Clear();
  // dense: 4 us a row. fused: 1 us a row. naive: 100 us however many rows, to a first measure.
  for (int64_t batch : {1, 1024}) {
    const double rows = static_cast<double>(batch);
    speeds.Add({"dense", at(batch), 4e-6 * rows});
    speeds.Add({"fused", at(batch), 1e-6 * rows});
  }
  const std::string text =
      Advise(at(1), {Phase::kInference}, {8}, {"auto", "dense", "fused", "naive"});
  speeds.Clear();
  EXPECT_NE(text.find("128 parameters instead of 4096 (32 times fewer)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("inference, B = 8"), std::string::npos);
  // Both ratios of fused, and that auto picks it.
  EXPECT_NE(text.find("8 us     0.25x  <- auto"), std::string::npos) << text;
  EXPECT_NE(text.find("32 us     1.00x"), std::string::npos) << text;
  EXPECT_NE(text.find("fastest:                fused at every batch"), std::string::npos) << text;
  // naive holds the matrix and the intermediates it is made of; fused never passes dense.
  EXPECT_NE(text.find("more memory than dense: naive always"), std::string::npos) << text;
  EXPECT_NE(text.find("never more:             fused"), std::string::npos) << text;
}

}  // namespace
}  // namespace ttbench
