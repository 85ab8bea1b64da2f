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
  // "NAME=value". These are added to a minimal environment (PATH, the C locale, no HOME) or, with
  // `keeps_environment`, to the environment of this process.
  std::vector<std::string> environment = {};
  bool keeps_environment = false;
  // Descriptors of this process that the program finds as 3, 4, ...
  std::vector<int> inherited = {};
  // Whether output() includes stderr. If not, the program inherits the stderr of this process.
  bool stderr_is_output = false;
  // Whether what does not fit into the pipe is lost, and does not hold up the program: for servers,
  // whose output is read at their beginning only.
  bool loses_output = false;
  // The signal that the destructor sends. A program with child processes needs one that it can
  // handle, not SIGKILL.
  int end_signal = SIGKILL;
};

// A child process with pipes for stdin and stdout. The destructor ends it by its pid if it still
// runs. The system ends it if the thread that created it ends for any reason. Not thread-safe.
class Program {
 public:
  // `name` is a path, or a name that is looked for in the folders of the system. If the program
  // cannot be run, stderr says so.
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
  // Writes `text` to stdin. Blocks while the program reads nothing. Returns false if the program
  // does not take all of it.
  bool write(std::string_view text);

  // Waits until the program has printed `text` `times` times. Returns false if it ends first, or
  // takes too long.
  bool prints(std::string_view text, int times = 1);
  // Returns the port in the first "127.0.0.1:<port>" that the program prints, or 0 if there is
  // none.
  uint16_t port();
  // Waits for the end. Returns the exit code, or the negated signal that ended the program, or
  // -1000 if it does not end in time.
  int exit_code();

 private:
  void spawn(const std::string& path, const std::vector<std::string>& arguments,
             const ProgramOptions& options, int its_stdin, int its_stdout);
  // Returns false at the end of the output, or at the deadline.
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

// Runs a program with `input` as its stdin, until it ends.
ProgramResult run_program(const std::string& name, const std::vector<std::string>& arguments,
                          const ProgramOptions& options = {}, std::string_view input = {});

}  // namespace test_support
