#include "benchmarks/axis.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "benchmarks/usage_error.h"

namespace ttbench {
namespace {

[[noreturn]] void Fail(const std::string& flag, const std::string& what) {
  throw UsageError(flag + ": " + what);
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> pieces;
  size_t start = 0;
  while (true) {
    const size_t end = text.find(separator, start);
    pieces.push_back(text.substr(start, end - start));
    if (end == std::string::npos) return pieces;
    start = end + 1;
  }
}

std::vector<std::string> SplitList(const std::string& flag, const std::string& text,
                                   const std::string& example) {
  if (text.empty()) Fail(flag, "the list is empty; write it as in " + example);
  std::vector<std::string> items = Split(text, ',');
  for (const std::string& item : items) {
    if (item.empty()) Fail(flag, "'" + text + "' has an empty item; write it as in " + example);
  }
  return items;
}

std::string Join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Keeps values in the order of their first arrival.
template <typename Value>
class OrderedSet {
 public:
  void Add(const Value& value) {
    if (seen_.insert(value).second) values_.push_back(value);
  }
  std::vector<Value> Take() { return std::move(values_); }
  int64_t size() const { return static_cast<int64_t>(values_.size()); }

 private:
  std::unordered_set<Value> seen_;
  std::vector<Value> values_;
};

// One item of an integer axis: start, start + step or start * step, ..., up to end.
struct Range {
  int64_t start = 0, end = 0, step = 1;
  bool multiplies = false;

  // Whether the value after `value` is still in the range.
  bool HasNext(int64_t value) const {
    return multiplies ? value <= end / step : value <= end - step;
  }
  int64_t Next(int64_t value) const { return multiplies ? value * step : value + step; }
};

class IntItemParser {
 public:
  IntItemParser(const std::string& flag, const std::string& item, int64_t minimum)
      : flag_(flag), item_(item), minimum_(minimum) {}

  Range Parse() const {
    const std::vector<std::string> pieces = Split(item_, ':');
    Range range;
    range.start = range.end = Bound(pieces[0]);
    if (pieces.size() == 1) return range;
    if (pieces.size() > 3) FailItem("has too many ':'; write a range as in 2:32:x2");
    range.end = Bound(pieces[1]);
    if (range.end < range.start) FailItem("ends below its start; swap the two");
    if (pieces.size() == 2) return range;
    const std::string& step = pieces[2];
    if (step.empty() || (step[0] != 'x' && step[0] != '+')) {
      FailItem("has no step '+" + step + "' or 'x" + step +
               "' behind its second ':'; write a range as in 1:9:+2 or 2:32:x2");
    }
    range.multiplies = step[0] == 'x';
    range.step = Integer(step.substr(1));
    if (range.multiplies && range.step < 2) FailItem("never ends; multiply by 2 or more");
    if (!range.multiplies && range.step < 1) FailItem("never ends; add 1 or more");
    if (range.multiplies && range.start == 0) FailItem("never ends; start a product at 1 or more");
    return range;
  }

 private:
  [[noreturn]] void FailItem(const std::string& what) const {
    Fail(flag_, "'" + item_ + "' " + what);
  }

  [[noreturn]] void FailPiece(const std::string& piece, const std::string& what) const {
    Fail(flag_, "'" + piece + "' " + (piece == item_ ? "" : "in '" + item_ + "' ") + what);
  }

  int64_t Integer(const std::string& text) const {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (stop != end || error == std::errc::invalid_argument) {
      FailPiece(text, "is not an integer; write digits only");
    }
    if (error == std::errc::result_out_of_range) {
      FailPiece(text, "does not fit in 64 bits; use a number below 2^63");
    }
    return value;
  }

  int64_t Bound(const std::string& text) const {
    const int64_t value = Integer(text);
    if (value < minimum_) {
      FailPiece(text, "is too small; give " + std::to_string(minimum_) + " or more");
    }
    return value;
  }

  const std::string& flag_;
  const std::string& item_;
  const int64_t minimum_;
};

struct Unit {
  const char* name;
  int64_t size;
};

constexpr int64_t kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;
constexpr std::array<Unit, 8> kByteUnits = {{{"B", 1},
                                             {"KiB", kKiB},
                                             {"MiB", kMiB},
                                             {"GiB", kGiB},
                                             {"KB", 1000},
                                             {"MB", 1000000},
                                             {"GB", 1000000000},
                                             {"", 1}}};
constexpr std::array<Unit, 7> kTimeUnits = {{{"ns", 1},
                                             {"us", 1000},
                                             {"ms", 1000000},
                                             {"s", 1000000000},
                                             {"m", 60 * int64_t{1000000000}},
                                             {"h", 3600 * int64_t{1000000000}},
                                             {"", 1000000000}}};

// A decimal number and a unit, in the unit of size 1. `expected` is what to write instead.
template <size_t kCount>
int64_t ParseQuantity(const std::string& flag, const std::string& text,
                      const std::array<Unit, kCount>& units, const std::string& expected) {
  const size_t unit_start = std::min(text.find_first_not_of("0123456789."), text.size());
  // A long double holds every 64-bit integer.
  long double number = 0;
  const char* number_end = text.data() + unit_start;
  const auto [stop, error] = std::from_chars(text.data(), number_end, number);
  const auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& candidate) {
    return text.compare(unit_start, std::string::npos, candidate.name) == 0;
  });
  if (stop != number_end || error == std::errc::invalid_argument || unit == units.end()) {
    Fail(flag, "'" + text + "' is not " + expected);
  }
  const long double quantity = std::round(number * unit->size);
  if (error == std::errc::result_out_of_range || quantity >= 0x1p63L) {
    Fail(flag, "'" + text + "' does not fit in 64 bits; use a smaller value");
  }
  if (quantity < 1) Fail(flag, "'" + text + "' is too small; give 1" + units[0].name + " or more");
  return static_cast<int64_t>(quantity);
}

// Levenshtein's, but that `*` in `pattern` takes in characters and `?` stands for one at no cost.
int64_t EditDistance(const std::string& pattern, const std::string& text) {
  std::vector<int64_t> row(text.size() + 1);  // From the pattern so far to each prefix of `text`.
  std::iota(row.begin(), row.end(), 0);
  for (const char c : pattern) {
    int64_t diagonal = row[0];
    if (c != '*') ++row[0];
    for (size_t t = 1; t <= text.size(); ++t) {
      const int64_t above = row[t];
      if (c == '*') {
        row[t] = std::min(above, row[t - 1]);
      } else {
        const int64_t substituted = diagonal + (c != '?' && c != text[t - 1]);
        row[t] = std::min({substituted, above + 1, row[t - 1] + 1});
      }
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace

std::vector<int64_t> ParseIntAxis(const std::string& flag, const std::string& text,
                                  int64_t minimum) {
  OrderedSet<int64_t> values;
  for (const std::string& item : SplitList(flag, text, "2,4,8 or 2:32:x2")) {
    const Range range = IntItemParser(flag, item, minimum).Parse();
    int64_t value = range.start;
    values.Add(value);
    while (range.HasNext(value) && values.size() <= kMaxAxisValues) {
      value = range.Next(value);
      values.Add(value);
    }
    if (values.size() > kMaxAxisValues) {
      Fail(flag, "'" + item + "' makes more than " + std::to_string(kMaxAxisValues) +
                     " values; use a larger step or a smaller range");
    }
  }
  return values.Take();
}

std::vector<std::string> ParseNameAxis(const std::string& flag, const std::string& text,
                                       const std::vector<std::string>& known_names) {
  OrderedSet<std::string> names;
  for (const std::string& item : SplitList(flag, text, "dense,sequential*")) {
    bool matched = false;
    for (const std::string& known : known_names) {
      if (!GlobMatches(item, known)) continue;
      matched = true;
      names.Add(known);
    }
    if (!matched) {
      Fail(flag, "'" + item + "' matches nothing; the nearest are " +
                     Join(NearNames(item, known_names, 3)));
    }
  }
  return names.Take();
}

int64_t ParseBytes(const std::string& flag, const std::string& text) {
  return ParseQuantity(flag, text, kByteUnits,
                       "a number of bytes; write it as in 12GiB, with B, KiB, MiB, GiB, KB, MB or "
                       "GB");
}

std::string FormatBytes(int64_t bytes) {
  // What two decimals round up to a whole larger unit is written in that unit.
  const auto hundredths = [bytes](int64_t unit) {
    return std::round(static_cast<long double>(bytes) * 100 / unit);
  };
  Unit unit = kByteUnits[0];
  for (size_t i = 1; i <= 3; ++i) {
    if (hundredths(unit.size) >= 100 * 1024) unit = kByteUnits[i];
  }
  std::array<char, 32> number;
  std::snprintf(number.data(), number.size(), "%.2Lf", hundredths(unit.size) / 100);
  std::string text = number.data();
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + unit.name;
}

int64_t ParseSeconds(const std::string& flag, const std::string& text) {
  return ParseQuantity(flag, text, kTimeUnits,
                       "a time; write it as in 100ms, with ns, us, ms, s, m or h");
}

bool GlobMatches(const std::string& pattern, const std::string& text) {
  size_t p = 0;
  size_t after_star = std::string::npos;  // Pattern behind the last star, once one was met.
  size_t star_end = 0;                    // Where the text that this star stands for ends.
  for (size_t t = 0; t < text.size();) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      star_end = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (after_star != std::string::npos) {
      p = after_star;
      t = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string::npos;
}

std::vector<std::string> NearNames(const std::string& name,
                                   const std::vector<std::string>& candidates, int64_t limit) {
  std::vector<std::pair<int64_t, std::string>> by_distance;
  for (const std::string& candidate : candidates) {
    by_distance.emplace_back(EditDistance(name, candidate), candidate);
  }
  std::stable_sort(by_distance.begin(), by_distance.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> nearest;
  for (const auto& [distance, candidate] : by_distance) {
    if (static_cast<int64_t>(nearest.size()) == limit) break;
    nearest.push_back(candidate);
  }
  return nearest;
}

}  // namespace ttbench
