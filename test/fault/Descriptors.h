#pragma once

#include <dirent.h>

#include <cstddef>

#include "server/TestServer.h"

namespace fault {

// How many descriptors this process has open.
inline size_t descriptor_count() {
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

// Whether there are soon no more than that.
inline bool descriptors_return_to(size_t count) {
  return server_test::eventually([count] { return descriptor_count() <= count; });
}

}  // namespace fault
