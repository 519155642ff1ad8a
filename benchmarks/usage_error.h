// What a command line that makes no run throws.
#pragma once

#include <stdexcept>

namespace ttbench {

// The program ends with exit code 2. what() is one sentence for the user, naming the flag.
class UsageError : public std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

}  // namespace ttbench
