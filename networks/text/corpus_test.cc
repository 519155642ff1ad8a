// The vocabulary on texts worked out by hand, and the real text by what is known of it.
#include "networks/text/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace ttbench {
namespace {

using Words = std::vector<std::string>;

TEST(TokenizeTest, PunctuationIsSplitOff) {
  EXPECT_EQ(Tokenize("And God said, Let there be light: and"),
            (Words{"And", "God", "said", ",", "Let", "there", "be", "light", ":", "and"}));
  EXPECT_EQ(Tokenize(" (Abram's  sons') heap-up, 'No-' "),
            (Words{"(", "Abram's", "sons", "'", ")", "heap-up", ",", "'", "No", "-", "'"}));
  EXPECT_EQ(Tokenize(""), Words{});
}

TEST(VocabularyTest, OrdersByFrequencyThenLetters) {
  const Words text = {"b", "a", "c", "a", "b", "d", "a", "e"};
  const Vocabulary vocabulary(text, 2);
  // a three times, <unk> (c, d, e) as often but before it by its letters, b twice.
  ASSERT_EQ(vocabulary.size(), 3);
  EXPECT_EQ(vocabulary.Word(0), "<unk>");
  EXPECT_EQ(vocabulary.Word(1), "a");
  EXPECT_EQ(vocabulary.Word(2), "b");
  EXPECT_EQ(vocabulary.count(0), 3);
  EXPECT_EQ(vocabulary.count(1), 3);
  EXPECT_EQ(vocabulary.count(2), 2);
  EXPECT_EQ(vocabulary.Ids({"b", "c", "never", "a"}), (std::vector<int64_t>{2, 0, 0, 1}));
}

// 1/2, 1/4, 1/4: 1.5 bits.
TEST(VocabularyTest, UnigramNatsAreTheEntropyOfItsOwnText) {
  const Words text = {"a", "a", "b", "c"};
  const Vocabulary vocabulary(text, 1);
  EXPECT_NEAR(vocabulary.UnigramNats(vocabulary.Ids(text)), 1.5 * std::log(2.0), 1e-15);
  EXPECT_NEAR(vocabulary.UnigramNats(vocabulary.Ids({"b"})), std::log(4.0), 1e-15);
  EXPECT_TRUE(std::isinf(vocabulary.UnigramNats(vocabulary.Ids({"a", "z"}))));
}

const Corpus& Kjv() {
  static const auto* corpus = new Corpus(ReadCorpus(std::getenv("KJV_TEXT")));
  return *corpus;
}

// The King James Bible has 31,102 verses in 1,189 chapters of 66 books.
TEST(KjvTest, TheTextIsAllThere) {
  std::ifstream file(std::getenv("KJV_TEXT"));
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line.rfind("Holy Bible, Authorized (King James) Version.", 0), 0u);
  int64_t verses = 0;
  std::set<std::string> chapters, books;
  while (std::getline(file, line)) {
    ++verses;
    const std::string chapter = line.substr(0, line.find(':'));
    chapters.insert(chapter);
    books.insert(chapter.substr(0, chapter.find_last_not_of("0123456789") + 1));
  }
  EXPECT_EQ(verses, 31102);
  EXPECT_EQ(chapters.size(), 1189u);
  EXPECT_EQ(books.size(), 66u);
}

TEST(KjvTest, WordsAndEndsOfVersesAreCounted) {
  const Corpus& kjv = Kjv();
  const size_t words = kjv.training.size() + kjv.held_out.size();
  EXPECT_GT(words, 500000u);
  EXPECT_EQ(kjv.training.size(), words * 9 / 10);
  const int64_t eos = kjv.vocabulary.Id(kEndOfLine);
  EXPECT_EQ(kjv.vocabulary.Word(eos), kEndOfLine);
  EXPECT_EQ(std::count(kjv.training.begin(), kjv.training.end(), eos) +
                std::count(kjv.held_out.begin(), kjv.held_out.end(), eos),
            31102);
}

TEST(KjvTest, NumbersAreWordsAgain) {
  const Corpus& kjv = Kjv();
  auto text = [&](const std::vector<int64_t>& ids, size_t begin, size_t count) {
    std::string joined;
    for (size_t i = begin; i < begin + count; ++i) {
      joined += (i > begin ? " " : "") + kjv.vocabulary.Word(ids[i]);
    }
    return joined;
  };
  EXPECT_EQ(text(kjv.training, 0, 12),
            "In the beginning God created the heaven and the earth . <eos>");
  EXPECT_EQ(text(kjv.held_out, kjv.held_out.size() - 15, 15),
            "The grace of our Lord Jesus Christ be with you all . Amen . <eos>");
}

TEST(KjvTest, TheVocabularyIsOfTheTrainingTextByFrequency) {
  const Vocabulary& vocabulary = Kjv().vocabulary;
  int64_t words = 0;
  std::vector<int64_t> counts(vocabulary.size());
  for (const int64_t id : Kjv().training) ++counts[id];
  for (int64_t id = 0; id < vocabulary.size(); ++id) {
    words += vocabulary.count(id);
    EXPECT_EQ(vocabulary.count(id), counts[id]) << vocabulary.Word(id);
    EXPECT_GE(vocabulary.count(id), kMinCount) << vocabulary.Word(id);
    EXPECT_LE(vocabulary.count(id), vocabulary.count(std::max<int64_t>(id - 1, 0)));
    EXPECT_EQ(vocabulary.Id(vocabulary.Word(id)), id);
  }
  EXPECT_EQ(words, static_cast<int64_t>(Kjv().training.size()));
  // Words that are too rare make up little of either part.
  const int64_t unknown = vocabulary.Id(kUnknown);
  EXPECT_LT(vocabulary.count(unknown), words / 100);
  EXPECT_LT(std::count(Kjv().held_out.begin(), Kjv().held_out.end(), unknown),
            static_cast<int64_t>(Kjv().held_out.size()) / 20);
}

TEST(ReadCorpusTest, SaysThatAFileIsMissing) {
  EXPECT_THROW(ReadCorpus("no/such/file"), std::runtime_error);
}

}  // namespace
}  // namespace ttbench
