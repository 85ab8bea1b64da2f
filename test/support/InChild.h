#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "support/Eventually.h"

namespace test_support {

// Returns whether every thread except the calling one waits in the kernel.
inline bool all_others_sleep() {
  const std::string own = std::to_string(::gettid());
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string stat;
    std::getline(std::ifstream(thread.path() / "stat"), stat);
    // The state follows the name, which stands in parentheses. See proc(5).
    const size_t state = stat.rfind(") ");
    const bool sleeps = state != std::string::npos && stat[state + 2] == 'S';
    if (!sleeps && thread.path().filename() != own) return false;
  }
  return true;
}

// Runs `body` in a child of fork(2), which exits with what it returns. Returns what the child exits
// with, or -1 if it had to be killed.
//
// The fork waits until all other threads sleep. A thread that is inside the allocator at that
// moment holds its lock, and the allocator of clang's AddressSanitizer does not release it in the
// child.
inline int in_child(const std::function<int()>& body) {
  if (!eventually(all_others_sleep)) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    std::exit(body());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace test_support
