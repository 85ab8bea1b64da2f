#include "util/ThreadState.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "util/Time.h"
#include "util/UniqueFd.h"

namespace workflow {

int64_t thread_cpu_ns(clockid_t clock) {
  struct timespec used = {};
  ::clock_gettime(clock, &used);
  return static_cast<int64_t>(used.tv_sec) * kNsPerSec + used.tv_nsec;
}

// proc(5), /proc/pid/stat: the state follows the name, which is in parentheses.
bool thread_sleeps(pid_t thread) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/task/%d/stat", static_cast<int>(thread));
  const UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
  char text[128];
  const ssize_t n = fd.valid() ? ::read(fd.get(), text, sizeof text) : -1;
  const std::string_view stat(text, n > 0 ? static_cast<size_t>(n) : 0);
  const size_t name_end = stat.rfind(')');
  // If the state is unknown, the safe assumption is that the thread sleeps.
  return name_end == std::string_view::npos || name_end + 2 >= stat.size() ||
         stat[name_end + 2] != 'R';
}

}  // namespace workflow
