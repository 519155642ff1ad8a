#include "benchmarks/run_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "benchmarks/result_table.h"

namespace ttbench {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string UserPath(const std::string& path) {
  const std::string from = Environment("BUILD_WORKING_DIRECTORY");
  return path.empty() || path.front() == '/' || from.empty() ? path : from + "/" + path;
}

std::string UtcNow(const char* format) {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, format, std::gmtime(&now));
  return text;
}

std::string DefaultDirectory(const std::string& experiment) {
  const std::string workspace = Environment("BUILD_WORKSPACE_DIRECTORY");
  return (workspace.empty() ? "." : workspace) + "/results/runs/" + experiment + "-" +
         UtcNow("%Y%m%dT%H%M%SZ");
}

void MakeDirectories(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    mkdir(path.substr(0, slash).c_str(), 0755);
  }
  mkdir(path.c_str(), 0755);
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode))
    errno = ENOTDIR;
  else if (access(path.c_str(), W_OK | X_OK) == 0)
    return;
  throw WriteError("cannot write into " + path + ": " + std::strerror(errno));
}

bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

std::string CommandOf(const std::string& target, int argc, char** argv) {
  std::string command = Environment("TTBENCH_COMMAND");
  if (!command.empty()) return command;
  command = "bazel run " + target + " --";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  return command;
}

}  // namespace ttbench
