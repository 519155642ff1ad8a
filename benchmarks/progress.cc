#include "benchmarks/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

namespace ttbench {

std::string FormatDuration(double seconds) {
  const long long s = static_cast<long long>(seconds + 0.5);
  char text[32];
  if (s < 60) {
    std::snprintf(text, sizeof text, "%lld s", s);
  } else if (s < 3600) {
    std::snprintf(text, sizeof text, "%lld:%02lld", s / 60, s % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  }
  return text;
}

Progress::Progress(std::vector<double> expected_seconds, bool quiet)
    : expected_seconds_(std::move(expected_seconds)),
      quiet_(quiet),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() {
  if (!quiet_ && terminal_) std::fputs("\r\033[K", stderr);
}

double Progress::SecondsLeft() const {
  const auto middle = expected_seconds_.begin() + static_cast<std::ptrdiff_t>(done_);
  const double before = std::accumulate(expected_seconds_.begin(), middle, 0.0);
  const double after = std::accumulate(middle, expected_seconds_.end(), 0.0);
  const double elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  // Until something is measured, the expectation is all there is.
  return before > 0 ? after * elapsed / before : after;
}

void Progress::Show(const std::string& line) {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  const size_t width = known ? size.ws_col - 1u : 79u;
  std::fprintf(stderr, "\r\033[K%s", line.substr(0, width).c_str());
}

void Progress::Begin(const std::string& task) {
  if (quiet_ || !terminal_) return;
  const size_t total = expected_seconds_.size();
  constexpr size_t kBarWidth = 20;
  const size_t filled = total == 0 ? kBarWidth : done_ * kBarWidth / total;
  Show("[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] " +
       std::to_string(done_ + 1) + "/" + std::to_string(total) + "  " +
       FormatDuration(SecondsLeft()) + " left  " + task);
}

void Progress::Done(const std::string& task, const std::string& outcome) {
  done_ = std::min(done_ + 1, expected_seconds_.size());
  if (quiet_) return;
  if (!terminal_) {
    std::fprintf(stderr, "%zu/%zu %s %s\n", done_, expected_seconds_.size(), task.c_str(),
                 outcome.c_str());
  } else if (outcome.rfind("ok", 0) != 0 && outcome.rfind("skipped", 0) != 0) {
    std::fprintf(stderr, "\r\033[K%s %s\n", task.c_str(), outcome.c_str());
  }
}

}  // namespace ttbench
