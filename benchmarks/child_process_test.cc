#include "benchmarks/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ttbench {
namespace {

using End = ChildResult::End;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// For children that must not get there: long past what any test waits.
constexpr seconds kDeadline{60};

std::string Hang() {
  while (true) pause();
}

void CloseAllButStdio() {
  for (int fd = 3; fd < 1024; ++fd) close(fd);
}

// Gone, or a zombie that waits for its new parent.
bool HasDied(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string id, name, state;
  return !(stat >> id >> name >> state) || state == "Z" || state == "X";
}

bool DiesSoon(pid_t pid) {
  for (const auto end = Clock::now() + seconds(10); Clock::now() < end;) {
    if (HasDied(pid)) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// A pipe by which a child tells of processes that outlive it.
class PidPipe {
 public:
  PidPipe() {
    if (pipe(ends_) != 0) throw std::runtime_error("pipe");
  }
  ~PidPipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void Send(pid_t pid) const {
    if (write(ends_[1], &pid, sizeof pid) != sizeof pid) _exit(99);
  }
  pid_t Receive() const {
    pid_t pid = 0;
    return read(ends_[0], &pid, sizeof pid) == sizeof pid ? pid : -1;
  }

 private:
  int ends_[2];
};

TEST(RunInChildTest, BringsTheAnswerBack) {
  const ChildResult result = RunInChild([] { return "an answer"; }, kDeadline);
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "an answer");
  EXPECT_GT(result.elapsed.count(), 0);
  EXPECT_LT(result.elapsed, kDeadline);
}

TEST(RunInChildTest, RunsInAnotherProcess) {
  int touched = 0;
  const ChildResult result = RunInChild(
      [&touched] {
        touched = 1;
        return std::to_string(getpid());
      },
      kDeadline);
  EXPECT_NE(result.output, std::to_string(getpid()));
  EXPECT_EQ(touched, 0);
}

TEST(RunInChildTest, AnEmptyAnswerIsAnAnswer) {
  const ChildResult result = RunInChild([] { return ""; }, kDeadline);
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "");
}

TEST(RunInChildTest, NoDeadlineAndNoInterruptWork) {
  const ChildResult result = RunInChild(
      [] {
        std::this_thread::sleep_for(milliseconds(120));
        return "late";
      },
      seconds(0));
  EXPECT_EQ(result.output, "late");
  EXPECT_GE(result.elapsed, milliseconds(120));
}

TEST(RunInChildTest, TenMegabytesOfAnyBytes) {
  std::string expected(10'000'003, '\0');
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<char>(i * 131 + i / 256);
  const ChildResult result = RunInChild([&expected] { return expected; }, kDeadline);
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_TRUE(result.output == expected) << result.output.size() << " bytes came back";
}

TEST(RunInChildTest, AnExceptionIsExitCodeOneAndItsWhat) {
  const ChildResult result =
      RunInChild([]() -> std::string { throw std::runtime_error("no such variant"); }, kDeadline);
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.output, "no such variant");
  EXPECT_EQ(RunInChild([]() -> std::string { throw std::bad_alloc(); }, kDeadline).output,
            std::bad_alloc().what());
  const ChildResult strange = RunInChild([]() -> std::string { throw 5; }, kDeadline);
  EXPECT_EQ(strange.exit_code, 1);
  EXPECT_EQ(strange.output, "an exception that is no std::exception");
}

TEST(RunInChildTest, ABodyThatExitsHasNoOutput) {
  const ChildResult by_exit = RunInChild([]() -> std::string { std::exit(3); }, kDeadline);
  EXPECT_EQ(by_exit.end, End::kExited);
  EXPECT_EQ(by_exit.exit_code, 3);
  EXPECT_EQ(by_exit.output, "");
  const ChildResult at_once = RunInChild([]() -> std::string { _exit(42); }, kDeadline);
  EXPECT_EQ(at_once.end, End::kExited);
  EXPECT_EQ(at_once.exit_code, 42);
}

TEST(RunInChildTest, SignalsAreToldApart) {
  const ChildResult aborted = RunInChild([]() -> std::string { std::abort(); }, kDeadline);
  EXPECT_EQ(aborted.end, End::kSignalled);
  EXPECT_EQ(aborted.signal, SIGABRT);
  EXPECT_EQ(aborted.output, "");
  for (const int signal_number : {SIGSEGV, SIGFPE, SIGBUS, SIGTERM, SIGINT, SIGKILL}) {
    const ChildResult result = RunInChild(
        [signal_number]() -> std::string {
          signal(signal_number, SIG_DFL);  // A sanitizer has handlers of its own.
          raise(signal_number);
          return "survived";
        },
        kDeadline);
    EXPECT_EQ(result.end, End::kSignalled) << signal_number;
    EXPECT_EQ(result.signal, signal_number);
    EXPECT_EQ(result.output, "");
  }
}

TEST(RunInChildTest, ExitHandlersOfTheParentDoNotRun) {
  const ChildResult result = RunInChild(
      [] {
        std::atexit([] { _exit(77); });
        return "left by _exit";
      },
      kDeadline);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "left by _exit");
}

TEST(RunInChildTest, WhatTheParentHasBufferedIsWrittenOnce) {
  const std::string path = testing::TempDir() + "/buffered-" + std::to_string(getpid());
  FILE* const file = fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  fputs("once", file);
  RunInChild([]() -> std::string { std::exit(0); }, kDeadline);
  RunInChild([] { return ""; }, kDeadline);
  fclose(file);
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "once");
  std::filesystem::remove(path);
}

TEST(RunInChildTest, AHangingChildEndsAtTheDeadline) {
  const ChildResult result = RunInChild(Hang, milliseconds(200));
  EXPECT_EQ(result.end, End::kTimedOut);
  EXPECT_EQ(result.output, "");
  EXPECT_GE(result.elapsed, milliseconds(200));
  EXPECT_LT(result.elapsed, seconds(30));
}

TEST(RunInChildTest, AHangingChildThatIgnoresSignalsAndLeftItsGroupEndsToo) {
  const ChildResult result = RunInChild(
      [] {
        if (setpgid(0, getpgid(getppid())) != 0) return std::string("it is still in its group");
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_BLOCK, &all, nullptr);
        return Hang();
      },
      milliseconds(100));
  EXPECT_EQ(result.end, End::kTimedOut);
}

TEST(RunInChildTest, AStoppedChildEndsAtTheDeadline) {
  const ChildResult result = RunInChild(
      [] {
        raise(SIGSTOP);
        return "went on";
      },
      milliseconds(100));
  EXPECT_EQ(result.end, End::kTimedOut);
}

TEST(RunInChildTest, AChildThatClosesThePipeAndHangsEndsAtTheDeadline) {
  const ChildResult result = RunInChild(
      [] {
        CloseAllButStdio();
        return Hang();
      },
      milliseconds(200));
  EXPECT_EQ(result.end, End::kTimedOut);
  EXPECT_GE(result.elapsed, milliseconds(200));
}

TEST(RunInChildTest, AChildThatClosesThePipeAndReturnsHasNoOutput) {
  const ChildResult result = RunInChild(
      [] {
        CloseAllButStdio();
        return "unheard";
      },
      kDeadline);
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.output, "");
}

TEST(RunInChildTest, AGrandchildIsNotWaitedForAndDiesWithTheChild) {
  const PidPipe pids;
  const ChildResult result = RunInChild(
      [&pids]() -> std::string {
        const pid_t grandchild = fork();
        if (grandchild == 0) Hang();
        pids.Send(grandchild);
        return "done";
      },
      kDeadline);
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.output, "done");
  EXPECT_LT(result.elapsed, kDeadline / 2);
  EXPECT_TRUE(DiesSoon(pids.Receive()));
}

TEST(RunInChildTest, AGrandchildOutsideTheGroupIsNotWaitedForEither) {
  const PidPipe pids;
  const ChildResult result = RunInChild(
      [&pids]() -> std::string {
        if (fork() == 0) {
          setsid();
          pids.Send(getpid());
          Hang();
        }
        return std::to_string(pids.Receive());  // It has left the group.
      },
      kDeadline);
  EXPECT_LT(result.elapsed, kDeadline / 2);
  const pid_t grandchild = std::stoi(result.output);
  EXPECT_FALSE(HasDied(grandchild));
  kill(grandchild, SIGKILL);
}

TEST(RunInChildTest, TheDeadlineKillsTheWholeGroup) {
  const PidPipe pids;
  const ChildResult result = RunInChild(
      [&pids] {
        const pid_t grandchild = fork();
        if (grandchild != 0) pids.Send(grandchild);
        return Hang();
      },
      milliseconds(200));
  EXPECT_EQ(result.end, End::kTimedOut);
  EXPECT_TRUE(DiesSoon(pids.Receive()));
}

TEST(RunInChildTest, AnInterruptKillsTheChild) {
  const auto start = Clock::now();
  const ChildResult result =
      RunInChild(Hang, kDeadline, [start] { return Clock::now() - start > milliseconds(100); });
  EXPECT_EQ(result.end, End::kInterrupted);
  EXPECT_EQ(result.output, "");
  EXPECT_GE(result.elapsed, milliseconds(100));
  EXPECT_LT(result.elapsed, kDeadline / 2);
  const ChildResult undisturbed =
      RunInChild([] { return "whole"; }, kDeadline, [] { return false; });
  EXPECT_EQ(undisturbed.output, "whole");
}

TEST(RunInChildTest, AnExceptionFromInterruptedLeavesNoChild) {
  const PidPipe pids;
  EXPECT_THROW(RunInChild(
                   [&pids] {
                     pids.Send(getpid());
                     return Hang();
                   },
                   kDeadline, []() -> bool { throw std::runtime_error("stop"); }),
               std::runtime_error);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(RunInChildTest, SignalHandlersOfTheParentDoNotDisturbTheWait) {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction previous;
  sigaction(SIGALRM, &action, &previous);
  std::atomic<bool> stop{false};
  const pthread_t waiting = pthread_self();
  std::thread pesterer([&stop, waiting] {
    while (!stop) {
      pthread_kill(waiting, SIGALRM);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  const std::string expected(3'000'000, 'x');
  const ChildResult result = RunInChild(
      [&expected] {
        std::this_thread::sleep_for(milliseconds(50));
        return expected;
      },
      kDeadline);
  stop = true;
  pesterer.join();
  sigaction(SIGALRM, &previous, nullptr);
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_TRUE(result.output == expected);
}

TEST(RunInChildTest, TheChildStartsWithDefaultSignals) {
  const int stops[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  std::vector<struct sigaction> previous(std::size(stops));
  struct sigaction action {};
  action.sa_handler = [](int) {};
  for (size_t i = 0; i < std::size(stops); ++i) sigaction(stops[i], &action, &previous[i]);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);

  const ChildResult result = RunInChild(
      [&stops] {
        std::string wrong;
        for (const int stop : stops) {
          struct sigaction now;
          sigaction(stop, nullptr, &now);
          if (now.sa_handler != SIG_DFL) wrong += " handler of " + std::to_string(stop);
        }
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        for (int i = 1; i < NSIG; ++i) {
          if (sigismember(&mask, i) == 1) wrong += " mask of " + std::to_string(i);
        }
        return wrong;
      },
      kDeadline);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.exit_code, 0);

  sigset_t after;
  pthread_sigmask(SIG_SETMASK, &before, &after);
  EXPECT_EQ(sigismember(&after, SIGUSR1), 1) << "the parent's mask is as it was";
  EXPECT_EQ(sigismember(&after, SIGALRM), 0);
  for (size_t i = 0; i < std::size(stops); ++i) sigaction(stops[i], &previous[i], nullptr);
}

TEST(RunInChildTest, TheChildHasAProcessGroupOfItsOwn) {
  const ChildResult result =
      RunInChild([] { return getpgrp() == getpid() ? "its own" : "its parent's"; }, kDeadline);
  EXPECT_EQ(result.output, "its own");
}

TEST(RunInChildTest, TheChildDiesWithItsParent) {
  const PidPipe pids;
  const pid_t parent = fork();
  if (parent == 0) {
    RunInChild(
        [&pids] {
          pids.Send(getpid());
          return Hang();
        },
        seconds(0));
    _exit(98);
  }
  const pid_t child = pids.Receive();
  EXPECT_FALSE(HasDied(child));
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  EXPECT_TRUE(DiesSoon(child));
}

TEST(RunInChildTest, AnIgnoredSigchldDoesNotHideTheEnd) {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  struct sigaction previous;
  sigaction(SIGCHLD, &ignore, &previous);
  const ChildResult result = RunInChild([]() -> std::string { _exit(5); }, kDeadline);
  sigaction(SIGCHLD, &previous, nullptr);
  EXPECT_EQ(result.end, End::kExited);
  EXPECT_EQ(result.exit_code, 5);
}

TEST(RunInChildTest, LeavesNoDescriptorAndNoZombie) {
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 20; ++i) {
    RunInChild([] { return "ok"; }, kDeadline);
    RunInChild([]() -> std::string { throw std::runtime_error("bad"); }, kDeadline);
    RunInChild(
        []() -> std::string {
          raise(SIGKILL);
          return "";
        },
        kDeadline);
    RunInChild(Hang, milliseconds(5));
    RunInChild(Hang, kDeadline, [] { return true; });
  }
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD) << "a child was left";
}

TEST(RunInChildTest, ThrowsWhereNoChildCanBeMade) {
  const size_t before = OpenDescriptors();
  rlimit old;
  getrlimit(RLIMIT_NOFILE, &old);
  rlimit none = old;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &none);
  std::string what;
  try {
    RunInChild([] { return ""; }, kDeadline);
  } catch (const std::runtime_error& e) {
    setrlimit(RLIMIT_NOFILE, &old);
    what = e.what();
  }
  EXPECT_EQ(what, "cannot make a child process: Too many open files");
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(RunInChildTest, TwoThreadsMayEachRunOne) {
  std::string answers[2];
  std::thread threads[2];
  for (int i = 0; i < 2; ++i) {
    threads[i] = std::thread([&answers, i] {
      for (int round = 0; round < 20; ++round) {
        answers[i] += RunInChild([i] { return std::to_string(i); }, kDeadline).output;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answers[0], std::string(20, '0'));
  EXPECT_EQ(answers[1], std::string(20, '1'));
}

TEST(RunInChildTest, PrintsTheCostOfAnEmptyChild) {
  std::vector<std::chrono::nanoseconds> times;
  for (int i = 0; i < 51; ++i) times.push_back(RunInChild([] { return ""; }, kDeadline).elapsed);
  std::sort(times.begin(), times.end());
  printf("an empty child: median %.0f us, fastest %.0f us, slowest %.0f us\n",
         times[25].count() / 1e3, times.front().count() / 1e3, times.back().count() / 1e3);
}

TEST(SignalNameTest, NamesAndDescribes) {
  EXPECT_EQ(SignalName(SIGSEGV), "SIGSEGV (segmentation fault)");
  EXPECT_EQ(SignalName(SIGABRT), "SIGABRT (aborted)");
  EXPECT_EQ(SignalName(SIGKILL), "SIGKILL (killed)");
  EXPECT_EQ(SignalName(SIGILL), "SIGILL (illegal instruction)");
  EXPECT_EQ(SignalName(SIGXCPU), "SIGXCPU (CPU time limit exceeded)");
  EXPECT_EQ(SignalName(99), "signal 99");
  EXPECT_EQ(SignalName(0), "signal 0");
  EXPECT_EQ(SignalName(-1), "signal -1");
}

}  // namespace
}  // namespace ttbench
