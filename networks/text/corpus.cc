#include "networks/text/corpus.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <stdexcept>
#include <utility>

namespace ttbench {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

std::vector<std::string> Tokenize(std::string_view line) {
  std::vector<std::string> words;
  for (size_t i = 0; i < line.size();) {
    size_t end = i + 1;
    if (IsLetter(line[i])) {
      auto joins = [&](size_t at) {
        return (line[at] == '\'' || line[at] == '-') && at + 1 < line.size() &&
               IsLetter(line[at + 1]);
      };
      while (end < line.size() && (IsLetter(line[end]) || joins(end))) ++end;
    }
    if (line[i] != ' ') words.emplace_back(line.substr(i, end - i));
    i = end;
  }
  return words;
}

Vocabulary::Vocabulary(const std::vector<std::string>& text, int64_t min_count) {
  std::map<std::string, int64_t> all;
  for (const std::string& word : text) ++all[word];
  std::map<std::string, int64_t> kept{{kUnknown, 0}};
  for (const auto& [word, count] : all) kept[count >= min_count ? word : kUnknown] += count;
  std::vector<std::pair<std::string, int64_t>> ordered(kept.begin(), kept.end());
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [word, count] : ordered) {
    ids_[word] = size();
    words_.push_back(word);
    counts_.push_back(count);
  }
}

int64_t Vocabulary::Id(const std::string& word) const {
  const auto found = ids_.find(word);
  return found != ids_.end() ? found->second : ids_.at(kUnknown);
}

std::vector<int64_t> Vocabulary::Ids(const std::vector<std::string>& text) const {
  std::vector<int64_t> ids;
  ids.reserve(text.size());
  for (const std::string& word : text) ids.push_back(Id(word));
  return ids;
}

double Vocabulary::UnigramNats(const std::vector<int64_t>& ids) const {
  double all = 0;
  for (const int64_t count : counts_) all += static_cast<double>(count);
  double nats = 0;
  for (const int64_t id : ids) nats -= std::log(static_cast<double>(counts_[id]) / all);
  return nats / static_cast<double>(ids.size());
}

Corpus ReadCorpus(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // The title.
  std::vector<std::string> text;
  while (std::getline(file, line)) {
    const size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    for (std::string& word : Tokenize(std::string_view(line).substr(space))) {
      text.push_back(std::move(word));
    }
    text.emplace_back(kEndOfLine);
  }
  if (text.empty()) throw std::runtime_error("there is no text in " + path);
  const auto split = text.begin() + static_cast<int64_t>(text.size()) * 9 / 10;
  const std::vector<std::string> training(text.begin(), split), held_out(split, text.end());
  Vocabulary vocabulary(training, kMinCount);
  std::vector<int64_t> training_ids = vocabulary.Ids(training);
  std::vector<int64_t> held_out_ids = vocabulary.Ids(held_out);
  return {std::move(vocabulary), std::move(training_ids), std::move(held_out_ids)};
}

}  // namespace ttbench
