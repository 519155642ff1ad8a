#include "benchmarks/result_table.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace ttbench {
namespace {

using Lines = std::vector<std::vector<std::string>>;

// A directory of the test's own.
class ResultTableTest : public testing::Test {
 protected:
  ResultTableTest()
      : directory_(testing::TempDir() + "/" +
                   testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  ~ResultTableTest() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

 private:
  std::string directory_;
};

std::string Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

TEST_F(ResultTableTest, EveryColumnIsDocumented) {
  std::set<std::string> names;
  for (const Column& column : ResultColumns()) {
    EXPECT_TRUE(names.insert(column.name).second) << column.name << " is there twice";
    const std::string meaning = column.meaning;
    ASSERT_FALSE(meaning.empty()) << column.name;
    EXPECT_EQ(meaning.back(), '.') << column.name;
  }
  EXPECT_EQ(names.size(), 53u);
}

TEST_F(ResultTableTest, RowHoldsAFieldForEveryColumn) {
  Row row;
  EXPECT_EQ(row.fields(), std::vector<std::string>(ResultColumns().size()));
  row.Set("schema", int64_t{1});
  row.Set("repro", "last");
  EXPECT_EQ(row.fields().front(), "1");
  EXPECT_EQ(row.fields().back(), "last");
  EXPECT_EQ(row.Get("repro"), "last");
  row.Set("flops_model", std::numeric_limits<int64_t>::max());
  EXPECT_EQ(row.Get("flops_model"), "9223372036854775807");
  EXPECT_THROW(row.Set("repr", "x"), std::logic_error);
  EXPECT_THROW(row.Get(""), std::logic_error);
}

TEST_F(ResultTableTest, DoublesHaveSixDigitsAndAreFinite) {
  Row row;
  auto written = [&](double value) {
    row.Set("time_ns", value);
    return row.Get("time_ns");
  };
  EXPECT_EQ(written(1.0 / 3), "0.333333");
  EXPECT_EQ(written(1234567), "1.23457e+06");
  EXPECT_EQ(written(-2), "-2");
  EXPECT_EQ(written(std::numeric_limits<double>::quiet_NaN()), "");
  EXPECT_EQ(written(std::numeric_limits<double>::infinity()), "");
  written(1);
  EXPECT_EQ(written(-std::numeric_limits<double>::infinity()), "");
}

// RFC 4180, section 2.
TEST_F(ResultTableTest, QuotesWhereNeeded) {
  EXPECT_EQ(FormatCsvLine({"a", "", "b c"}), "a,,b c\r\n");
  EXPECT_EQ(FormatCsvLine({"a,b"}), "\"a,b\"\r\n");
  EXPECT_EQ(FormatCsvLine({"say \"no\""}), "\"say \"\"no\"\"\"\r\n");
  EXPECT_EQ(FormatCsvLine({"a\nb", "c\r\nd", "e\rf"}), "\"a\nb\",\"c\r\nd\",\"e\rf\"\r\n");
}

TEST_F(ResultTableTest, ReadsWhatIsAppended) {
  const Lines lines = {{"one", "two", "three"},
                       {"", "", ""},
                       {"a,b", "\"", "\"\","},
                       {"\n", "\r\n", "\r"},
                       {"\"\"\"\n,\"", " padded ", "µ"}};
  {
    CsvAppender appender(Path("t.csv"), lines[0]);
    for (size_t i = 1; i < lines.size(); ++i) {
      appender.Append(lines[i]);
      // It is in the file when Append returns.
      EXPECT_EQ(ReadCsv(Path("t.csv")), Lines(lines.begin(), lines.begin() + i + 1));
    }
  }
  std::string text;
  for (const auto& line : lines) text += FormatCsvLine(line);
  EXPECT_EQ(Read(Path("t.csv")), text);
}

TEST_F(ResultTableTest, GoesOnWithAFile) {
  for (const char* value : {"1", "2", "3"}) CsvAppender(Path("t.csv"), {"h"}).Append({value});
  EXPECT_EQ(Read(Path("t.csv")), "h\r\n1\r\n2\r\n3\r\n");
}

TEST_F(ResultTableTest, CutsOffATornLine) {
  const std::string whole = "h,i\r\n1,2\r\n";
  for (const std::string torn : {"3", "3,4", "3,4\r", "\"3\r\n", "\"3\r\n,4\",\"5\r\n6"}) {
    SCOPED_TRACE(torn);
    Write(Path("t.csv"), whole + torn);
    EXPECT_EQ(ReadCsv(Path("t.csv")), (Lines{{"h", "i"}, {"1", "2"}}));
    CsvAppender(Path("t.csv"), {"h", "i"}).Append({"7", "8"});
    EXPECT_EQ(Read(Path("t.csv")), whole + "7,8\r\n");
  }
}

TEST_F(ResultTableTest, WritesTheHeaderOverATornOne) {
  Write(Path("t.csv"), "head");
  EXPECT_EQ(ReadCsv(Path("t.csv")), Lines());
  CsvAppender(Path("t.csv"), {"header"}).Append({"1"});
  EXPECT_EQ(Read(Path("t.csv")), "header\r\n1\r\n");
}

TEST_F(ResultTableTest, LineEndsWithinQuotesEndNoLine) {
  Write(Path("t.csv"), "h\r\n\"a\r\nb\"\r\n");
  CsvAppender(Path("t.csv"), {"h"}).Append({"c"});
  EXPECT_EQ(ReadCsv(Path("t.csv")), (Lines{{"h"}, {"a\r\nb"}, {"c"}}));
}

TEST_F(ResultTableTest, ThereIsNothingInAFileThatIsNot) {
  EXPECT_EQ(ReadCsv(Path("none.csv")), Lines());
  EXPECT_FALSE(std::filesystem::exists(Path("none.csv")));
}

TEST_F(ResultTableTest, RefusesUnevenLines) {
  Write(Path("t.csv"), "a,b\r\n1,2\r\n1\r\n");
  try {
    ReadCsv(Path("t.csv"));
    FAIL();
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(Path("t.csv")), std::string::npos) << what;
    EXPECT_NE(what.find("line 3"), std::string::npos) << what;
  }
}

template <typename Action>
void ExpectWriteError(const Action& action, const std::string& path, const std::string& cause) {
  try {
    action();
    FAIL() << "nothing thrown for " << path;
  } catch (const WriteError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(path), std::string::npos) << what;
    EXPECT_NE(what.find(cause), std::string::npos) << what;
  }
}

TEST_F(ResultTableTest, SaysWhyItCannotWrite) {
  ExpectWriteError([&] { CsvAppender(Path("no/t.csv"), {"h"}); }, "no/t.csv",
                   "No such file or directory");
  ExpectWriteError([&] { WriteFile(Path("no/t"), ""); }, "no/t", "No such file or directory");
  std::filesystem::create_symlink("/dev/full", Path("t.tmp"));
  ExpectWriteError([&] { WriteFile(Path("t"), "text"); }, Path("t"), "No space left on device");
}

// A device may have no end and keeps nothing.
TEST_F(ResultTableTest, WantsAFile) {
  EXPECT_EQ(ReadCsv("/dev/zero"), Lines());
  ExpectWriteError([] { CsvAppender("/dev/full", {"h"}); }, "/dev/full", "");
}

// Limits the size of the files that this process writes, as a full disk would.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_;
};

TEST_F(ResultTableTest, LeavesWholeLinesOnAFullDisk) {
  CsvAppender appender(Path("t.csv"), {"h"});  // 3 bytes.
  appender.Append({"1234567"});                // 9 more.
  {
    const FileSizeLimit limit(16);
    ExpectWriteError([&] { appender.Append({"abcdefg"}); }, Path("t.csv"), "File too large");
    EXPECT_EQ(Read(Path("t.csv")), "h\r\n1234567\r\n");
    appender.Append({"89"});  // Fits to the byte.
  }
  EXPECT_EQ(Read(Path("t.csv")), "h\r\n1234567\r\n89\r\n");
}

TEST_F(ResultTableTest, WriteFileReplacesAWholeFile) {
  WriteFile(Path("t"), "the old text, a long one");
  EXPECT_EQ(Read(Path("t")), "the old text, a long one");
  std::ifstream reader(Path("t"));
  std::string word;
  reader >> word;
  WriteFile(Path("t"), "new");
  EXPECT_EQ(Read(Path("t")), "new");
  // Who reads the old one still sees all of it.
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(reader), {}), " old text, a long one");
  EXPECT_FALSE(std::filesystem::exists(Path("t.tmp")));
}

TEST_F(ResultTableTest, WriteFileKeepsTheOldOneOnAFullDisk) {
  WriteFile(Path("t"), "old");
  {
    const FileSizeLimit limit(4);
    ExpectWriteError([&] { WriteFile(Path("t"), "newer"); }, Path("t"), "File too large");
  }
  EXPECT_EQ(Read(Path("t")), "old");
  EXPECT_FALSE(std::filesystem::exists(Path("t.tmp")));
}

}  // namespace
}  // namespace ttbench
