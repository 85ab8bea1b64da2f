#include "util/Clock.h"

#include <algorithm>
#include <ctime>

namespace workflow {

namespace {

int64_t read_ns(clockid_t clock) {
  struct timespec now;
  ::clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * kNsPerSec + now.tv_nsec;
}

class SystemClock final : public Clock {
 public:
  int64_t now_ns() override { return monotonic_ns(); }

  int64_t now_ns_on(ClockId clock) override {
    switch (clock) {
      case ClockId::kMonotonic:
        break;
      case ClockId::kBoottime:
        return read_ns(CLOCK_BOOTTIME);
      case ClockId::kWall:
        return std::max<int64_t>(read_ns(CLOCK_REALTIME), 0);
    }
    return monotonic_ns();
  }

  bool is_system_clock() const override { return true; }
};

}  // namespace

int64_t monotonic_ns() {
  return read_ns(CLOCK_MONOTONIC);
}

Clock& system_clock() {
  // Never destroyed: the runtime reads it for tasks that static objects start as they die.
  static SystemClock& clock = *new SystemClock;
  return clock;
}

}  // namespace workflow
