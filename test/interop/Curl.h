#pragma once

#include <string>
#include <vector>

#include "support/Program.h"

namespace interop_test {

// curl without a configuration of its own. What it prints of errors and by -v is output, too; an
// exit code that is not 0 says what it did not like (man curl).
inline test_support::ProgramResult curl(const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"-q", "-sS", "--max-time", "50"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return test_support::run_program("curl", all, {.stderr_is_output = true});
}

}  // namespace interop_test
