#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "support/ChildProcess.h"
#include "support/Tally.h"
#include "util/UniqueFd.h"

namespace test_support {

// Another process that runs the test's own program, with variables added to its environment, and
// whose lines on stdout the test reads. It is killed when this object goes.
class SqliteChild {
 public:
  explicit SqliteChild(const std::vector<std::string>& variables) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    output_.reset(ends[0]);
    const workflow::UniqueFd input(ends[1]);
    pid_ = spawn_self(variables, input.get());
  }
  ~SqliteChild() { kill(); }
  SqliteChild(const SqliteChild&) = delete;
  SqliteChild& operator=(const SqliteChild&) = delete;

  // The next line. Empty if there is none in time, or at the end.
  std::optional<std::string> line() {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      if (const size_t found = text_.find('\n'); found != std::string::npos) {
        std::string line = text_.substr(0, found);
        text_.erase(0, found + 1);
        return line;
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      struct pollfd poll_fd = {output_.get(), POLLIN, 0};
      if (left.count() <= 0 || ::poll(&poll_fd, 1, static_cast<int>(left.count())) == 0) return {};
      char buffer[4096];
      const ssize_t n = ::read(output_.get(), buffer, sizeof buffer);
      if (n > 0) {
        text_.append(buffer, static_cast<size_t>(n));
      } else if (n == 0 || errno != EINTR) {
        return {};
      }
    }
  }

  void send(int signal) const { ::kill(pid_, signal); }

  // Ends it, and waits for that. What it has written can still be read.
  void kill() {
    if (pid_ > 0) {
      send(SIGKILL);
      wait();
    }
  }

  // Waits for its end. Returns its exit code, or the negated signal.
  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
  workflow::UniqueFd output_;
  std::string text_;
};

}  // namespace test_support
