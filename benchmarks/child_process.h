// Runs a function in a forked child with a deadline and brings its answer back.
//
// A parent that has loaded LibTorch and computed nothing forks in milliseconds, so a fresh process
// for every cell costs little. The parent must never run a parallel region: libgomp hangs in a
// child forked after one.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace ttbench {

struct ChildResult {
  enum class End { kExited, kSignalled, kTimedOut, kInterrupted };
  End end = End::kExited;
  int exit_code = 0;   // kExited
  int signal = 0;      // kSignalled: the signal that ended it.
  std::string output;  // What the body returned, whole, or its exception's what(); "" if neither.
  std::chrono::nanoseconds elapsed{0};  // From before the fork until the child is reaped.
};

// Forks; the child runs body() and sends the string it returns back through a pipe, then leaves by
// _exit(0) without running the parent's exit handlers or flushing its stdio. An exception that
// leaves body() ends the child with exit code 1 and its what() as output. Output of any size is
// taken. A body that ends the process itself (exit, abort, a signal), or closes the pipe, has no
// output.
//
// A child past the deadline is killed (SIGKILL, with its process group) and reaped: kTimedOut. The
// child also dies if the parent does (PR_SET_PDEATHSIG). deadline = 0: none. If `interrupted` is
// given and turns true while waiting, the child is killed and the end is kInterrupted; it is asked
// at least every 50 ms. What the child leaves running in its process group is killed when it ends,
// so that it does not disturb the next cell.
//
// The child starts with SIGINT, SIGTERM, SIGHUP and SIGQUIT at their defaults and no signal
// blocked. In a process group of its own it does not see the terminal's Ctrl-C, so the parent
// decides. Throws std::runtime_error only if no child can be made.
ChildResult RunInChild(const std::function<std::string()>& body, std::chrono::nanoseconds deadline,
                       const std::function<bool()>& interrupted = nullptr);

// "SIGSEGV (segmentation fault)" for 11; "signal 99" for one without a name.
std::string SignalName(int signal);

}  // namespace ttbench
