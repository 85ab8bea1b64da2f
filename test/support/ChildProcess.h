#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace test_support {

struct ChildResult {
  int exit_code = -1;  // the negated signal if one ended it
  std::string output;  // what it wrote to stdout
};

// Runs this very program again with `environment` ("NAME=value") added, and waits for its end. A
// child that takes longer than `patience` is killed.
ChildResult run_self(const std::vector<std::string>& environment, std::chrono::seconds patience);

}  // namespace test_support
