#include "benchmarks/result_table.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace ttbench {
namespace {

size_t IndexOf(std::string_view column) {
  const auto& columns = ResultColumns();
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].name == column) return i;
  }
  throw std::logic_error("no result column is named " + std::string(column));
}

[[noreturn]] void ThrowWriteError(const std::string& path) {
  throw WriteError("cannot write " + path + ": " + std::strerror(errno));
}

void WriteAll(int file, const std::string& text, const std::string& path) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = write(file, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) ThrowWriteError(path);
    written += static_cast<size_t>(n);
  }
}

std::string ReadAll(const std::string& path) {
  // A device may never end.
  struct stat status;
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The offset after the last complete record. A line end within quotes ends none.
size_t CompleteLength(const std::string& text) {
  bool quoted = false;
  size_t complete = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '\n' && !quoted) complete = i + 1;
  }
  return complete;
}

}  // namespace

const std::vector<Column>& ResultColumns() {
  static const auto* columns = new std::vector<Column>{
      {"schema", "Version of this set of columns."},
      {"experiment", "The experiment that ran the cell."},
      {"cell", "The cell's name, unique in a run."},
      {"family",
       "linear: a linear layer y = x W^T; attention: a decoder's attention; transformer-xl: a "
       "language model whose position-wise layers the variant computes."},
      {"variant", "The way to compute it, a name of the registry."},
      {"algorithm", "The path that really ran."},
      {"baseline",
       "1 for the variant that ratios are taken against (dense; attention: prealloc-mm), else 0."},
      {"in_modes",
       "Input mode sizes n_1 x .. x n_K; their product is N. Transformer-XL: of the layer up, as "
       "all that follows until rank, empty for a dense one; the cell names the layer down where it "
       "does not mirror that."},
      {"out_modes", "Output mode sizes m_1 x .. x m_K; their product is M."},
      {"ranks", "TT ranks r_0 x .. x r_K as run; empty for a dense variant."},
      {"cores", "Number of cores K."},
      {"d", "The mode size where all modes are equal, else empty."},
      {"rank", "The inner rank where all are equal, else empty."},
      {"source_len",
       "Attention: source length; Transformer-XL: tokens of memory; empty for the linear family."},
      {"target_len",
       "Attention: target length; Transformer-XL: tokens of a segment; empty for the linear "
       "family."},
      {"hidden",
       "Attention: hidden size; Transformer-XL: width of the model; empty for the linear family."},
      {"layers",
       "Attention: LSTM layers of the whole decoder, 0 for the attention alone; Transformer-XL: "
       "its layers; empty for the linear family."},
      {"batch", "Rows of x: tokens; attention and Transformer-XL: sequences."},
      {"phase", "inference, train, step-sgd or step-adam."},
      {"dtype", "float32, float64 or bfloat16."},
      {"device", "cpu or cuda."},
      {"threads", "Threads the cell ran with."},
      {"seed", "Seed of the inputs."},
      {"status", "ok, skipped, oom, timeout, crashed or wrong."},
      {"reason", "Why the cell did not end ok, or a remark on one that did."},
      {"parameters", "Number of parameters."},
      {"weight_bytes", "Bytes of the parameters."},
      {"weight_bytes_model", "The same by the cost model."},
      {"held_bytes",
       "Bytes alive after the forward because the backward needs them: inputs included, "
       "parameters and y not. Empty for inference."},
      {"held_bytes_model", "The same by the cost model."},
      {"forward_peak_bytes", "Most live bytes in the forward beyond inputs and parameters."},
      {"forward_peak_bytes_model", "The same by the cost model."},
      {"backward_peak_bytes", "Most live bytes in the backward beyond inputs and parameters."},
      {"backward_peak_bytes_model", "The same by the cost model."},
      {"step_peak_bytes", "Most live bytes in the optimizer's step beyond inputs and parameters."},
      {"step_peak_bytes_model", "The same by the cost model."},
      {"peak_bytes", "Most live bytes over the whole phase, everything included."},
      {"peak_bytes_model", "The same by the cost model."},
      {"rss_peak_bytes",
       "Rise of the process's resident memory over what it was before inputs and "
       "parameters were made; includes what GEMM libraries allocate for themselves."},
      {"reserved_bytes", "Bytes the CUDA caching allocator reserved; empty on the CPU."},
      {"flops_model",
       "Floating-point operations of all products in the phase, a multiply-add being "
       "two, by the cost model."},
      {"time_ns", "Median time of one run of the phase, in nanoseconds."},
      {"time_min_ns", "Least time of one run of the phase, in nanoseconds."},
      {"time_spread",
       "Interquartile range of the repetitions over their median; empty for one "
       "repetition."},
      {"iterations", "Runs of the phase in each repetition."},
      {"repetitions", "Repetitions."},
      {"stop_reason", "Why measuring stopped: converged, max-repetitions or time-limit."},
      {"gflops", "flops_model over time_ns, in GFLOP/s."},
      {"fraction_of_peak",
       "gflops over the FMA rate measured in the same run with as many threads; "
       "empty for bfloat16."},
      {"time_ratio_to_dense",
       "Median of time over the baseline's (dense; attention: prealloc-mm), interleaved in the "
       "same process."},
      {"peak_ratio_to_dense", "peak_bytes over the baseline's, measured in the same process."},
      {"max_relative_error",
       "Largest error of y and all gradients against the float64 oracle, "
       "relative to the largest element of the same tensor."},
      {"repro", "A command that runs this cell alone."},
  };
  return *columns;
}

Row::Row() : fields_(ResultColumns().size()) {}

void Row::Set(std::string_view column, std::string value) {
  fields_[IndexOf(column)] = std::move(value);
}

void Row::Set(std::string_view column, double value) {
  if (!std::isfinite(value)) return Set(column, std::string());
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  Set(column, std::string(text));
}

const std::string& Row::Get(std::string_view column) const { return fields_[IndexOf(column)]; }

std::string FormatCsvLine(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) line += ',';
    if (fields[i].find_first_of(",\"\r\n") == std::string::npos) {
      line += fields[i];
      continue;
    }
    line += '"';
    for (char c : fields[i]) line += c == '"' ? std::string("\"\"") : std::string(1, c);
    line += '"';
  }
  return line + "\r\n";
}

CsvAppender::CsvAppender(std::string path, const std::vector<std::string>& header)
    : path_(std::move(path)) {
  const size_t complete = CompleteLength(ReadAll(path_));
  file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(complete)) != 0 ||
      lseek(file_, 0, SEEK_END) < 0) {
    ThrowWriteError(path_);
  }
  if (complete == 0) Append(header);
}

CsvAppender::~CsvAppender() {
  if (file_ >= 0) close(file_);
}

void CsvAppender::Append(const std::vector<std::string>& fields) {
  const off_t start = lseek(file_, 0, SEEK_CUR);
  try {
    WriteAll(file_, FormatCsvLine(fields), path_);
  } catch (const WriteError&) {
    // A full disk may have taken a part of the line.
    if (ftruncate(file_, start) == 0) lseek(file_, start, SEEK_SET);
    throw;
  }
  if (fdatasync(file_) != 0 && errno != EINVAL && errno != EROFS) ThrowWriteError(path_);
}

std::vector<std::vector<std::string>> ReadCsv(const std::string& path) {
  std::string text = ReadAll(path);
  text.resize(CompleteLength(text));
  std::vector<std::vector<std::string>> lines;
  size_t i = 0;
  while (i < text.size()) {
    std::vector<std::string>& fields = lines.emplace_back(1);
    for (bool quoted = false; i < text.size(); ++i) {
      const char c = text[i];
      if (quoted) {
        if (c != '"') {
          fields.back() += c;
        } else if (i + 1 < text.size() && text[i + 1] == '"') {
          fields.back() += text[++i];
        } else {
          quoted = false;
        }
      } else if (c == '"') {
        quoted = true;
      } else if (c == ',') {
        fields.emplace_back();
      } else if (c == '\n') {
        ++i;
        break;
      } else if (c != '\r') {
        fields.back() += c;
      }
    }
    if (fields.size() != lines.front().size()) {
      throw std::runtime_error(path + ": line " + std::to_string(lines.size()) + " has " +
                               std::to_string(fields.size()) + " fields, the header " +
                               std::to_string(lines.front().size()));
    }
  }
  return lines;
}

void WriteFile(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp";
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) ThrowWriteError(path);
  try {
    WriteAll(file, text, path);
  } catch (...) {
    close(file);
    unlink(temporary.c_str());
    throw;
  }
  if (close(file) != 0 || rename(temporary.c_str(), path.c_str()) != 0) ThrowWriteError(path);
}

}  // namespace ttbench
