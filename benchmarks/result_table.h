// The result table: its columns, and rows written one by one so that none is lost.
//
// results.csv is RFC 4180: comma separated, CRLF, quoted where needed, the first line the column
// names. The columns and their order are fixed; kSchemaVersion rises with any change. A value that
// was not measured is empty; there is never a NaN.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ttbench {

inline constexpr int kSchemaVersion = 1;

struct Column {
  const char* name;
  const char* meaning;  // One sentence, unit included.
};

// In file order. docs/results-format.md is made from these.
const std::vector<Column>& ResultColumns();

class Row {
 public:
  Row();
  // Throws std::logic_error for a name that is no column. A double that is not finite leaves the
  // field empty. Doubles are written with six significant digits.
  void Set(std::string_view column, std::string value);
  void Set(std::string_view column, const char* value) { Set(column, std::string(value)); }
  void Set(std::string_view column, int64_t value) { Set(column, std::to_string(value)); }
  void Set(std::string_view column, double value);
  const std::string& Get(std::string_view column) const;
  const std::vector<std::string>& fields() const { return fields_; }

 private:
  std::vector<std::string> fields_;
};

// One line of CSV, its line end included.
std::string FormatCsvLine(const std::vector<std::string>& fields);

// The results could not be written: what() is one sentence that names the file and the cause.
class WriteError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Appends whole lines to a CSV file, each by one write that is on its way to disk when Append
// returns. Creates the file with its header; a file with complete lines is gone on with, a torn
// last line (of a killed process or a full disk) cut off first. Throws WriteError.
class CsvAppender {
 public:
  CsvAppender(std::string path, const std::vector<std::string>& header);
  ~CsvAppender();
  CsvAppender(const CsvAppender&) = delete;
  CsvAppender& operator=(const CsvAppender&) = delete;
  void Append(const std::vector<std::string>& fields);

 private:
  std::string path_;
  int file_ = -1;
};

// All complete lines of a CSV file, the header first; empty if there is no such file. Throws
// std::runtime_error for what is no CSV.
std::vector<std::vector<std::string>> ReadCsv(const std::string& path);

// Writes a whole file, by way of a temporary one beside it, so that a reader sees the old or the
// new one. Throws WriteError.
void WriteFile(const std::string& path, const std::string& text);

}  // namespace ttbench
