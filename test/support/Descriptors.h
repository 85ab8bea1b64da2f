#pragma once

#include <dirent.h>

#include <cstddef>

namespace test_support {

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

}  // namespace test_support
