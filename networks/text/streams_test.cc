#include "networks/text/streams.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace ttbench {
namespace {

std::vector<int64_t> Counting(int64_t count) {
  std::vector<int64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

// 26 words in 2 streams of segments of 4: 3 segments, since the last word of a stream needs one
// that follows. Stream 0 is 0..11, stream 1 is 12..23.
TEST(StreamsTest, StreamsAreContiguousAndBesideEachOther) {
  const Streams streams(Counting(26), 2, 4);
  ASSERT_EQ(streams.segments(), 3);
  for (int64_t s = 0; s < 3; ++s) {
    const Segment segment = streams.At(s);
    ASSERT_EQ(segment.tokens.sizes(), (at::IntArrayRef{4, 2}));
    ASSERT_EQ(segment.targets.sizes(), (at::IntArrayRef{4, 2}));
    for (int64_t t = 0; t < 4; ++t) {
      for (int64_t b = 0; b < 2; ++b) {
        const int64_t word = 12 * b + 4 * s + t;
        EXPECT_EQ(segment.tokens[t][b].item<int64_t>(), word);
        EXPECT_EQ(segment.targets[t][b].item<int64_t>(), word + 1);
      }
    }
  }
}

TEST(StreamsTest, TheLastWordIsATargetOnly) {
  EXPECT_EQ(Streams(Counting(25), 2, 4).segments(), 3);
  EXPECT_EQ(Streams(Counting(24), 2, 4).segments(), 2);
}

TEST(StreamsTest, ATextThatIsTooShortIsSaid) {
  EXPECT_EQ(Streams(Counting(9), 2, 4).segments(), 1);
  EXPECT_THROW(Streams(Counting(8), 2, 4), std::invalid_argument);
  EXPECT_THROW(Streams({}, 2, 4), std::invalid_argument);
}

}  // namespace
}  // namespace ttbench
