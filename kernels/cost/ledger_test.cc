#include "kernels/cost/ledger.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/shape.h"

namespace ttbench::cost {
namespace {

using Named = std::vector<std::pair<std::string, int64_t>>;

template <typename Entry>
Named NamesAndBytes(const std::vector<Entry>& entries) {
  Named named;
  for (const Entry& entry : entries) named.emplace_back(entry.name, entry.bytes);
  return named;
}

TEST(LedgerTest, StartsEmpty) {
  const Ledger ledger;
  EXPECT_EQ(ledger.live_bytes(), 0);
  EXPECT_EQ(ledger.peak_bytes(), 0);
  EXPECT_EQ(ledger.allocated_bytes(), 0);
  EXPECT_TRUE(ledger.live_terms().empty());
  EXPECT_TRUE(ledger.peak_terms().empty());
  EXPECT_TRUE(ledger.events().empty());
}

TEST(LedgerTest, KeepsABufferAsLongAsAHandle) {
  Ledger ledger;
  Ledger::Handle a = ledger.Allocate("a", 100);
  EXPECT_EQ(a->name(), "a");
  EXPECT_EQ(a->bytes(), 100);
  Ledger::Handle second = a;
  a.reset();
  EXPECT_EQ(ledger.live_bytes(), 100);
  second.reset();
  EXPECT_EQ(ledger.live_bytes(), 0);
}

TEST(LedgerTest, RemembersThePeakAndWhatItWasMadeOf) {
  Ledger ledger;
  const auto a = ledger.Allocate("a", 100);
  {
    const auto b = ledger.Allocate("b", 50);
    const auto c = ledger.Allocate("c", 7);
  }
  const auto d = ledger.Allocate("d", 56);  // 156 bytes: one less than the peak.
  EXPECT_EQ(ledger.live_bytes(), 156);
  EXPECT_EQ(ledger.peak_bytes(), 157);
  EXPECT_EQ(NamesAndBytes(ledger.peak_terms()), (Named{{"a", 100}, {"b", 50}, {"c", 7}}));
  EXPECT_EQ(NamesAndBytes(ledger.live_terms()), (Named{{"a", 100}, {"d", 56}}));
}

TEST(LedgerTest, ResetPeakStartsFromWhatIsAlive) {
  Ledger ledger;
  const auto a = ledger.Allocate("a", 100);
  ledger.Allocate("b", 50);
  ledger.ResetPeak();
  EXPECT_EQ(ledger.peak_bytes(), 100);
  EXPECT_EQ(NamesAndBytes(ledger.peak_terms()), (Named{{"a", 100}}));
  ledger.Allocate("c", 20);
  EXPECT_EQ(ledger.peak_bytes(), 120);
  EXPECT_EQ(NamesAndBytes(ledger.peak_terms()), (Named{{"a", 100}, {"c", 20}}));
}

TEST(LedgerTest, RecordsEventsInOrder) {
  Ledger ledger;
  auto a = ledger.Allocate("a", 100);
  auto b = ledger.Allocate("b", 50);
  a.reset();
  const auto c = ledger.Allocate("c", 7);
  b.reset();
  EXPECT_EQ(NamesAndBytes(ledger.events()),
            (Named{{"a", 100}, {"b", 50}, {"a", -100}, {"c", 7}, {"b", -50}}));
  EXPECT_EQ(ledger.allocated_bytes(), 157);
}

TEST(LedgerTest, BuffersOfNoBytesLeaveNoTrace) {
  Ledger ledger;
  auto empty = ledger.Allocate("empty", 0);
  EXPECT_EQ(empty->name(), "empty");
  EXPECT_TRUE(ledger.live_terms().empty());
  empty.reset();
  EXPECT_TRUE(ledger.events().empty());
}

TEST(LedgerTest, BuffersMayShareAName) {
  Ledger ledger;
  auto first = ledger.Allocate("copy", 1);
  const auto second = ledger.Allocate("copy", 2);
  first.reset();
  EXPECT_EQ(NamesAndBytes(ledger.live_terms()), (Named{{"copy", 2}}));
}

TEST(LedgerTest, ThrowsPast64BitsAndChangesNothing) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  Ledger ledger;
  {
    const auto a = ledger.Allocate("a", kMax);
    EXPECT_THROW(ledger.Allocate("b", 1), ShapeError);
    EXPECT_EQ(ledger.live_bytes(), kMax);
  }
  EXPECT_EQ(ledger.live_bytes(), 0);
  EXPECT_THROW(ledger.Allocate("b", 1), ShapeError) << "the traffic passes 64 bits";
  EXPECT_EQ(ledger.live_bytes(), 0);
  EXPECT_EQ(NamesAndBytes(ledger.events()), (Named{{"a", kMax}, {"a", -kMax}}));
}

}  // namespace
}  // namespace ttbench::cost
