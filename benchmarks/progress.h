// Progress of a list of tasks on standard error: one line that is rewritten, with the time left, on
// a terminal; a plain line for each task elsewhere.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace ttbench {

// "1:23:45", "4:05", "12 s"
std::string FormatDuration(double seconds);

class Progress {
 public:
  // The expected seconds of each task, in order; the time left follows from how those done so far
  // compare with what was expected of them.
  Progress(std::vector<double> expected_seconds, bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Begin(const std::string& task);
  void Done(const std::string& task, const std::string& outcome);

 private:
  double SecondsLeft() const;
  void Show(const std::string& line);

  std::vector<double> expected_seconds_;
  bool quiet_, terminal_;
  size_t done_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace ttbench
