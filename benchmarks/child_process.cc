#include "benchmarks/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>

namespace ttbench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long a wait may last before the child, the deadline and `interrupted` are looked at again.
constexpr milliseconds kLongestWait{50};

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_;
};

struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

std::runtime_error NoChild(int error) {
  return std::runtime_error(std::string("cannot make a child process: ") + strerror(error));
}

Pipe MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw NoChild(errno);
  Pipe pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return pipe;
}

// Blocks every signal from construction to destruction, so that no handler of the parent runs in
// the child before the child has put the defaults back.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t previous_;
};

// A message is its length and then its bytes, so that the parent knows a whole one without waiting
// for the end of the pipe, which a process that the child left behind may hold open.
using Length = uint64_t;

bool Write(int fd, const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(fd, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    bytes -= static_cast<size_t>(written);
  }
  return true;
}

bool WriteMessage(int fd, const std::string& text) {
  const Length length = text.size();
  return Write(fd, &length, sizeof length) && Write(fd, text.data(), text.size());
}

class MessageReader {
 public:
  explicit MessageReader(int fd) : fd_(fd) {}

  // Reads once, without waiting. False if there is nothing to read now.
  bool ReadSome() {
    char buffer[1 << 16];
    const ssize_t bytes = read(fd_, buffer, sizeof buffer);
    if (bytes > 0) {
      received_.append(buffer, static_cast<size_t>(bytes));
    } else if (bytes == 0 || (errno != EAGAIN && errno != EINTR)) {
      at_end_ = true;
    }
    return bytes > 0;
  }

  int fd() const { return fd_; }
  bool at_end() const { return at_end_; }

  bool complete() const {
    return received_.size() >= sizeof(Length) && received_.size() - sizeof(Length) == length();
  }

  std::string text() const { return complete() ? received_.substr(sizeof(Length)) : ""; }

 private:
  Length length() const {
    Length length;
    memcpy(&length, received_.data(), sizeof length);
    return length;
  }

  int fd_;
  bool at_end_ = false;
  std::string received_;
};

// noexcept: whatever goes wrong, the child never returns into the parent's code.
[[noreturn]] void RunBody(const std::function<std::string()>& body, int pipe_fd,
                          pid_t parent) noexcept {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // It died before the line above could take effect.

  for (const int stop : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) signal(stop, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);

  std::string output;
  int exit_code = 0;
  try {
    output = body();
  } catch (const std::exception& e) {
    output = e.what();
    exit_code = 1;
  } catch (...) {
    output = "an exception that is no std::exception";
    exit_code = 1;
  }
  _exit(WriteMessage(pipe_fd, output) ? exit_code : 1);
}

// A forked child. Killed, with its process group, and reaped at the latest by the destructor.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid), pidfd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
    setpgid(pid_, pid_);  // The child does the same: whoever comes first.
  }
  ~Child() { Reap(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // To poll() for the child's end; -1, which poll() passes over, on kernels before 5.3.
  int pidfd() const { return pidfd_.get(); }

  bool HasEnded() const {
    siginfo_t info;
    info.si_pid = 0;
    const int error = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    return error == 0 && info.si_pid == pid_;
  }

  // Returns waitpid's status. Until the child is reaped its process group's number is its own, so
  // the group is killed first.
  int Reap() {
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      kill(pid_, SIGKILL);  // In case the child has left its group.
      while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
      }
      pid_ = 0;
    }
    return status_;
  }

 private:
  pid_t pid_;
  FileDescriptor pidfd_;
  int status_ = 0;
};

// Until the pipe has more to read, the child has ended, or the time is over.
void Wait(const Child& child, const MessageReader& reader, Clock::duration longest) {
  pollfd wanted[] = {{reader.at_end() ? -1 : reader.fd(), POLLIN, 0}, {child.pidfd(), POLLIN, 0}};
  poll(wanted, 2, static_cast<int>(std::chrono::ceil<milliseconds>(longest).count()));
}

// Gathers the child's message until the child ends. Returns why it must be killed instead, if so.
std::optional<ChildResult::End> Watch(const Child& child, MessageReader& reader,
                                      std::optional<Clock::time_point> deadline,
                                      const std::function<bool()>& interrupted) {
  while (true) {
    if (child.HasEnded()) {
      while (!reader.complete() && reader.ReadSome()) {
      }
      return std::nullopt;
    }
    if (interrupted && interrupted()) return ChildResult::End::kInterrupted;
    Clock::duration wait = kLongestWait;
    if (deadline) {
      const Clock::duration left = *deadline - Clock::now();
      if (left <= Clock::duration::zero()) return ChildResult::End::kTimedOut;
      wait = std::min(wait, left);
    }
    Wait(child, reader, wait);
    reader.ReadSome();
  }
}

}  // namespace

ChildResult RunInChild(const std::function<std::string()>& body, std::chrono::nanoseconds deadline,
                       const std::function<bool()>& interrupted) {
  // A process that inherited SIGCHLD ignored would never learn how its children ended.
  struct sigaction on_child_end;
  if (sigaction(SIGCHLD, nullptr, &on_child_end) == 0 && on_child_end.sa_handler == SIG_IGN) {
    signal(SIGCHLD, SIG_DFL);
  }
  // A body that calls exit() would write what the parent has buffered a second time.
  fflush(nullptr);

  Pipe pipe = MakePipe();
  const Clock::time_point start = Clock::now();
  const pid_t parent = getpid();
  pid_t pid;
  int error;
  {
    const SignalsBlocked blocked;
    pid = fork();
    error = errno;
    if (pid == 0) {
      pipe.read_end.Close();
      RunBody(body, pipe.write_end.get(), parent);
    }
  }
  if (pid < 0) throw NoChild(error);
  Child child(pid);
  pipe.write_end.Close();

  std::optional<Clock::time_point> last_moment;
  if (deadline.count() > 0) last_moment = start + deadline;
  MessageReader reader(pipe.read_end.get());
  ChildResult result;
  const std::optional<ChildResult::End> cut_short = Watch(child, reader, last_moment, interrupted);
  const int status = child.Reap();
  result.elapsed = Clock::now() - start;
  if (cut_short) {
    result.end = *cut_short;
  } else if (WIFSIGNALED(status)) {
    result.end = ChildResult::End::kSignalled;
    result.signal = WTERMSIG(status);
  } else {
    result.exit_code = WEXITSTATUS(status);
    result.output = reader.text();
  }
  return result;
}

std::string SignalName(int signal) {
  const char* const abbreviation = sigabbrev_np(signal);
  if (abbreviation == nullptr) return "signal " + std::to_string(signal);
  std::string description = sigdescr_np(signal);
  // "Segmentation fault", but "CPU time limit exceeded".
  if (description.size() > 1 && std::islower(static_cast<unsigned char>(description[1]))) {
    description[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(description[0])));
  }
  return std::string("SIG") + abbreviation + " (" + description + ")";
}

}  // namespace ttbench
