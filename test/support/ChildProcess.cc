#include "support/ChildProcess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace test_support {

ReadEnd read_some(int fd, std::string& output, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    struct pollfd poll_fd = {fd, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&poll_fd, 1, static_cast<int>(left.count())) == 0) {
      return ReadEnd::kTooLate;
    }
    char buffer[65536];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n > 0) {
      output.append(buffer, static_cast<size_t>(n));
      return ReadEnd::kSome;
    }
    if (n == 0 || errno != EINTR) return ReadEnd::kClosed;
  }
}

pid_t spawn_self(const std::vector<std::string>& environment, int stdout_fd) {
  std::vector<char*> variables;
  for (const std::string& each : environment) {
    variables.push_back(const_cast<char*>(each.c_str()));
  }
  for (char** each = environ; *each; each++) {
    variables.push_back(*each);
  }
  variables.push_back(nullptr);
  char name[] = "child";
  char* arguments[] = {name, nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, stdout_fd, STDOUT_FILENO);
  pid_t child = -1;
  const int error =
      ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments, variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : -1;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void say(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) {
    std::abort();
  }
}

void wait_for_exit() {
  for (;;) {
    ::pause();
  }
}

ChildResult run_self(const std::vector<std::string>& environment, std::chrono::seconds patience) {
  ChildResult result;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return result;
  const pid_t child = spawn_self(environment, ends[1]);
  ::close(ends[1]);
  if (child > 0) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    ReadEnd end = ReadEnd::kSome;
    while (end == ReadEnd::kSome) {
      end = read_some(ends[0], result.output, deadline);
    }
    if (end == ReadEnd::kTooLate) {
      ::kill(child, SIGKILL);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  ::close(ends[0]);
  return result;
}

}  // namespace test_support
