#include "util/Clock.h"

#include <ctime>

namespace workflow {

int64_t monotonic_ns() {
  struct timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * kNsPerSec + now.tv_nsec;
}

namespace {

class SystemClock final : public Clock {
 public:
  int64_t now_ns() override { return monotonic_ns(); }
  bool is_system_clock() const override { return true; }
};

}  // namespace

Clock& system_clock() {
  // Never destroyed: the runtime reads it for tasks that static objects start as they die.
  static SystemClock& clock = *new SystemClock;
  return clock;
}

}  // namespace workflow
