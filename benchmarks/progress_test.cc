#include "benchmarks/progress.h"

#include <gtest/gtest.h>

#include <string>

namespace ttbench {
namespace {

TEST(FormatDurationTest, RoundsToSeconds) {
  EXPECT_EQ(FormatDuration(0), "0 s");
  EXPECT_EQ(FormatDuration(0.4), "0 s");
  EXPECT_EQ(FormatDuration(11.6), "12 s");
  EXPECT_EQ(FormatDuration(59.4), "59 s");
}

TEST(FormatDurationTest, ShowsMinutesAndHours) {
  EXPECT_EQ(FormatDuration(59.6), "1:00");
  EXPECT_EQ(FormatDuration(4 * 60 + 5), "4:05");
  EXPECT_EQ(FormatDuration(3599.4), "59:59");
  EXPECT_EQ(FormatDuration(3599.6), "1:00:00");
  EXPECT_EQ(FormatDuration(3600 + 23 * 60 + 45), "1:23:45");
  EXPECT_EQ(FormatDuration(100 * 3600), "100:00:00");
}

// Standard error is a file here, no terminal.
std::string Printed(bool quiet) {
  testing::internal::CaptureStderr();
  {
    Progress progress({1, 2}, quiet);
    progress.Begin("first");
    progress.Done("first", "ok");
    progress.Begin("second");
    progress.Done("second", "skipped: too large");
  }
  return testing::internal::GetCapturedStderr();
}

TEST(ProgressTest, PrintsALineForEachTask) {
  EXPECT_EQ(Printed(false), "1/2 first ok\n2/2 second skipped: too large\n");
}

TEST(ProgressTest, QuietPrintsNothing) { EXPECT_EQ(Printed(true), ""); }

}  // namespace
}  // namespace ttbench
