#pragma once

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "util/UniqueFd.h"

namespace test_support {

struct ProgramOptions {
  // "NAME=value". Besides, the program sees a PATH, a plain locale and no home; with
  // `keeps_environment` instead all that this process sees.
  std::vector<std::string> environment = {};
  bool keeps_environment = false;
  // Descriptors of this process that the program finds as 3, 4, ...
  std::vector<int> inherited = {};
  // Else it goes where this process's goes.
  bool stderr_is_output = false;
  // What ends it. Not SIGKILL for one that has processes of its own to end.
  int end_signal = SIGKILL;
};

// A program that runs as a process of its own with pipes for stdin and stdout. It is ended by its
// pid at the latest by the destructor, and by the system when the thread that made it ends, however
// that comes. Not thread-safe.
class Program {
 public:
  // `name`: a path, or looked for in the folders of the system. One that cannot be run says so on
  // stderr.
  Program(const std::string& name, const std::vector<std::string>& arguments,
          const ProgramOptions& options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool started() const { return child_ > 0; }
  pid_t pid() const { return child_; }
  const std::string& output() const { return output_; }
  void signal(int number) const;
  void close_stdin() { stdin_.reset(); }
  // False when it does not take all of it. Waits while it reads nothing.
  bool write(std::string_view text);

  // Until `text` was printed so many times; false when it ends or takes too long without.
  bool prints(std::string_view text, int times = 1);
  // The port in the first "127.0.0.1:<port>" printed; 0 when there is none.
  uint16_t port();
  // Its exit code, the negated signal if one ended it; -1000 when it does not end in time.
  int exit_code();

 private:
  void spawn(const std::string& path, const std::vector<std::string>& arguments,
             const ProgramOptions& options, int its_stdin, int its_stdout);
  // False at the end of its output, or at the deadline.
  bool read_some(std::chrono::steady_clock::time_point deadline);
  int wait_for_end(std::chrono::milliseconds patience);

  int end_signal_;
  pid_t child_ = -1;
  workflow::UniqueFd stdin_;
  workflow::UniqueFd stdout_;
  std::string output_;
};

struct ProgramResult {
  int exit_code = -1000;
  std::string output;
};

// Runs it with `input` until it ends.
ProgramResult run_program(const std::string& name, const std::vector<std::string>& arguments,
                          const ProgramOptions& options = {}, std::string_view input = {});

}  // namespace test_support
