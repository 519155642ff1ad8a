// Running text as word numbers: the words, their vocabulary, and what is trained on and held out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ttbench {

inline constexpr const char* kEndOfLine = "<eos>";
inline constexpr const char* kUnknown = "<unk>";

// Words and punctuation of a line, in order: "Abram's God said, Let" gives "Abram's", "God",
// "said",
// ",", "Let". A word is a run of ASCII letters, joined by single apostrophes or hyphens; every
// other character that is no space stands for itself.
std::vector<std::string> Tokenize(std::string_view line);

// Words by number, the most frequent first (of equally frequent ones the first by its letters), as
// an adaptive softmax wants them.
class Vocabulary {
 public:
  // The words that occur at least `min_count` times in `text`; all others are kUnknown, which is a
  // word like any, and there even where no other is missing. WikiText's min_count is 3 (Merity et
  // al., "Pointer Sentinel Mixture Models", 2016, section 4).
  Vocabulary(const std::vector<std::string>& text, int64_t min_count);

  int64_t size() const { return static_cast<int64_t>(words_.size()); }
  int64_t Id(const std::string& word) const;  // kUnknown's for a word that is not in it.
  const std::string& Word(int64_t id) const { return words_[id]; }
  // How often the word occurs in the text that the vocabulary was made from.
  int64_t count(int64_t id) const { return counts_[id]; }
  std::vector<int64_t> Ids(const std::vector<std::string>& text) const;

  // What a model that knows no more than how frequent words are pays for a word of `ids`, in nats:
  // the mean of -log(count / all counts). For the text the vocabulary was made from this is the
  // entropy of its words. Infinite if `ids` has a word of count 0.
  double UnigramNats(const std::vector<int64_t>& ids) const;

 private:
  std::vector<std::string> words_;
  std::vector<int64_t> counts_;
  std::unordered_map<std::string, int64_t> ids_;
};

struct Corpus {
  Vocabulary vocabulary;  // Of the training text alone.
  std::vector<int64_t> training, held_out;
};

// The first 9/10 of the words are for training, the rest are held out.
inline constexpr int64_t kMinCount = 3;

// The corpus of a text in which each line, one sentence or verse, is a key, a space and words; a
// line ends in kEndOfLine. The file's first line is its title and is left out. Throws
// std::runtime_error, one sentence, if the file cannot be read or has no words.
Corpus ReadCorpus(const std::string& path);

}  // namespace ttbench
