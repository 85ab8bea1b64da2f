#include "util/Processors.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace workflow {

int usable_processors() {
  cpu_set_t set;
  const int usable = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  // The call fails if the machine has more processors than a cpu_set_t has room for.
  return usable > 0 ? usable : std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

}  // namespace workflow
