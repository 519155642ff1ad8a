// Values of flags: the axes of a sweep (--rank=2,4,8, --batch=2:32:x2, --variant=sequential*) and
// quantities with units.
//
// `flag` is the flag as users type it ("--rank"). Everything that cannot be read throws UsageError
// with one sentence that names the flag and the piece at fault.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ttbench {

constexpr int64_t kMaxAxisValues = 10000;

// Integers separated by commas. An item is one integer or a range, whose end is part of it where a
// step lands on it:
//   3:5      3, 4, 5
//   1:9:+2   1, 3, 5, 7, 9
//   2:32:x2  2, 4, 8, 16, 32
// Order is kept; of equal values the first stays. Throws for an empty list or item, anything but
// integers of 64 bits, a value below `minimum` (which is 0 or more), a range that ends below its
// start or never ends, and more than kMaxAxisValues values.
std::vector<int64_t> ParseIntAxis(const std::string& flag, const std::string& text,
                                  int64_t minimum = 1);

// Names separated by commas. An item is one of `known_names` or a glob, which stands for all that
// match in the order of `known_names`. Of equal names the first stays. Throws for an empty list or
// item and for an item that matches nothing, naming the nearest known names.
std::vector<std::string> ParseNameAxis(const std::string& flag, const std::string& text,
                                       const std::vector<std::string>& known_names);

// "12GiB" = 12 * 2^30. Units KiB, MiB, GiB (powers of 1024), KB, MB, GB (of 1000), B or none; a
// fraction is rounded to whole bytes. Throws for less than one byte and for more than 64 bits.
int64_t ParseBytes(const std::string& flag, const std::string& text);

// Non-negative `bytes` in the largest of B, KiB, MiB and GiB that gives 1 or more, to two decimals:
// "1.5GiB", as ParseBytes reads it.
std::string FormatBytes(int64_t bytes);

// "100ms" in nanoseconds. Units ns, us, ms, s, m (minutes), h; without one, seconds. A fraction is
// rounded to whole nanoseconds. Throws for less than one nanosecond and for more than 64 bits.
int64_t ParseSeconds(const std::string& flag, const std::string& text);

// Whether all of `text` matches: `*` stands for any characters, slashes too, `?` for any one.
bool GlobMatches(const std::string& pattern, const std::string& text);

// At most `limit` of `candidates`, nearest first by edit distance, equally near ones as they came.
// `*` and `?` in `name` match as in GlobMatches and cost nothing.
std::vector<std::string> NearNames(const std::string& name,
                                   const std::vector<std::string>& candidates, int64_t limit);

}  // namespace ttbench
