#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/Tally.h"
#include "util/UniqueFd.h"

namespace tutorial_test {

// A program of the build's tutorial folder, running as a process of its own with pipes for stdin
// and stdout; stderr is this test's. It is ended by its pid at the latest by the destructor.
class Program {
 public:
  Program(const std::string& name, const std::vector<std::string>& arguments) {
    int in[2];
    int out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) {
      return;
    }
    const workflow::UniqueFd its_stdin(in[0]);
    const workflow::UniqueFd its_stdout(out[1]);
    stdin_.reset(in[1]);
    stdout_.reset(out[0]);
    spawn(name, arguments, its_stdin.get(), its_stdout.get());
  }
  ~Program() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      wait_for_end(std::chrono::seconds(10));
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool started() const { return child_ > 0; }
  const std::string& output() const { return output_; }
  void signal(int number) const { ::kill(child_, number); }
  void close_stdin() { stdin_.reset(); }

  // Until `text` was printed; false when it ends or takes too long without.
  bool prints(const std::string& text) {
    while (output_.find(text) == std::string::npos) {
      if (!read_some(std::chrono::steady_clock::now() + test_support::kPatience)) {
        return false;
      }
    }
    return true;
  }

  // The port in the first "127.0.0.1:<port>" printed; 0 when there is none.
  uint16_t port() {
    const std::string before = "127.0.0.1:";
    if (!prints(before) || !prints("\n")) {
      return 0;
    }
    const size_t at = output_.find(before) + before.size();
    return static_cast<uint16_t>(std::strtoul(output_.c_str() + at, nullptr, 10));
  }

  // Its exit code, the negated signal if one ended it; -1000 when it does not end in time.
  int exit_code() {
    const auto deadline = std::chrono::steady_clock::now() + test_support::kPatience;
    while (read_some(deadline)) {
    }
    return wait_for_end(test_support::kPatience);
  }

 private:
  void spawn(const std::string& name, const std::vector<std::string>& arguments, int its_stdin,
             int its_stdout) {
    const auto tests = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    const std::string path = tests.parent_path() / "tutorial" / name;
    std::vector<char*> argv = {const_cast<char*>(path.c_str())};
    for (const std::string& each : arguments) {
      argv.push_back(const_cast<char*>(each.c_str()));
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, its_stdin, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, its_stdout, STDOUT_FILENO);
    if (::posix_spawn(&child_, path.c_str(), &actions, nullptr, argv.data(), environ) != 0) {
      child_ = -1;
    }
    ::posix_spawn_file_actions_destroy(&actions);
  }

  // False at the end of its output, or at the deadline.
  bool read_some(std::chrono::steady_clock::time_point deadline) {
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      struct pollfd poll_fd = {stdout_.get(), POLLIN, 0};
      if (left.count() <= 0 || ::poll(&poll_fd, 1, static_cast<int>(left.count())) == 0) {
        return false;
      }
      char buffer[4096];
      const ssize_t n = ::read(stdout_.get(), buffer, sizeof buffer);
      if (n > 0) {
        output_.append(buffer, static_cast<size_t>(n));
        return true;
      }
      if (n == 0 || errno != EINTR) {
        return false;
      }
    }
  }

  int wait_for_end(std::chrono::milliseconds patience) {
    if (child_ <= 0) {
      return -1000;
    }
    const auto deadline = std::chrono::steady_clock::now() + patience;
    int status = 0;
    while (::waitpid(child_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) {
        return -1000;
      }
      // There is no portable wait with a limit for the end of a process.
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  pid_t child_ = -1;
  workflow::UniqueFd stdin_;
  workflow::UniqueFd stdout_;
  std::string output_;
};

}  // namespace tutorial_test
