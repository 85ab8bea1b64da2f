#pragma once

#include <sys/types.h>

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

// Starts the child without waiting: the caller ends the child and waits for it. What the child
// writes to stdout goes to `stdout_fd`. Returns -1 if it cannot be started.
pid_t spawn_self(const std::vector<std::string>& environment, int stdout_fd);

enum class ReadEnd { kSome, kClosed, kTooLate };
// Waits for bytes of a descriptor and adds them to `output`, unless the other end is closed or the
// deadline passes first.
ReadEnd read_some(int fd, std::string& output, std::chrono::steady_clock::time_point deadline);

// Called in the child.

// The value of an environment variable. Empty when it is not set.
std::string variable(const char* name);

// Sends a line to the test: all of it or, if the child is killed meanwhile, nothing. May be called
// until the very end of the process.
void say(const std::string& text);

// Waits until somebody else has ended the process.
[[noreturn]] void wait_for_exit();

}  // namespace test_support
