#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "support/Program.h"

namespace tutorial_test {

// A program of the build's tutorial folder; stderr is this test's.
class Program : public test_support::Program {
 public:
  Program(const std::string& name, const std::vector<std::string>& arguments)
      : test_support::Program(path_of(name), arguments, {.keeps_environment = true}) {}

 private:
  static std::string path_of(const std::string& name) {
    const auto tests = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    return tests.parent_path() / "tutorial" / name;
  }
};

}  // namespace tutorial_test
