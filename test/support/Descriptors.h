#pragma once

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "support/Eventually.h"
#include "util/Sanitizers.h"
#include "util/UniqueFd.h"

#ifdef WORKFLOW_THREAD_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace test_support {

// Starts the program with which ThreadSanitizer finds the names of functions. It starts by itself
// at the first race found, even one that tsan.supp allows, and has two pipes from then on.
inline void start_symbolizer() {
#ifdef WORKFLOW_THREAD_SANITIZER
  char name[16];
  __sanitizer_symbolize_pc(reinterpret_cast<void*>(&start_symbolizer), "%f", name, sizeof(name));
#endif
}

// Returns how many descriptors this process has open.
inline size_t descriptor_count() {
  start_symbolizer();
  size_t count = 0;
  if (DIR* directory = ::opendir("/proc/self/fd")) {
    while (const struct dirent* entry = ::readdir(directory)) {
      count += entry->d_name[0] != '.' ? 1 : 0;
    }
    ::closedir(directory);
    count--;  // the directory's own
  }
  return count;
}

// Waits until there are no more than that. Returns false if that takes too long.
inline bool descriptors_return_to(size_t count) {
  return eventually([count] { return descriptor_count() <= count; });
}

// Takes all descriptors that the process may still have, and gives them back.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    struct rlimit few = before_;
    few.rlim_cur = descriptor_count() + 8;
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (workflow::UniqueFd fd(::dup(STDOUT_FILENO)); fd.valid();
         fd = workflow::UniqueFd(::dup(STDOUT_FILENO))) {
      taken_.push_back(std::move(fd));
    }
  }
  ~NoDescriptors() { give_back(); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

  void give_back() {
    taken_.clear();
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  // Room for one more of the test's own.
  void give_back_one() { taken_.pop_back(); }

 private:
  struct rlimit before_ = {};
  std::vector<workflow::UniqueFd> taken_;
};

}  // namespace test_support
