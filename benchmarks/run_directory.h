// Where a run's files go, and what the user meant by a path.
#pragma once

#include <string>

namespace ttbench {

std::string Environment(const char* name);  // "" if it is not set.

// A path as the user meant it: relative to where they stand, which `bazel run` leaves.
std::string UserPath(const std::string& path);

std::string UtcNow(const char* format);  // As strftime.

// results/runs/<experiment>-<UTC time> of the workspace.
std::string DefaultDirectory(const std::string& experiment);

// With all that lead to it. Throws WriteError, also where it cannot be written into.
void MakeDirectories(const std::string& path);

bool Exists(const std::string& path);

// The command that made the run: what the user typed, where an experiment that calls this program
// says so; else the program's own arguments behind its label.
std::string CommandOf(const std::string& target, int argc, char** argv);

}  // namespace ttbench
