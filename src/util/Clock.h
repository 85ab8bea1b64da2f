#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "util/Time.h"

namespace workflow {

// The clocks that deadlines may be of. Values are those of WFTimerClock.
enum class ClockId : uint8_t {
  kMonotonic,  // time since some start, without that of suspension; never set
  kBoottime,   // the same with the time of suspension
  kWall        // since 1970-01-01 UTC; set by people, and by services of the network
};
inline constexpr size_t kClocks = 3;

// Where the pollers read time from. Thread-safe.
class Clock {
 public:
  // The wall clock of those that are no system clock, when their monotonic clock shows 0:
  // 2000-01-01 00:00:00 UTC, so that every run sees the same dates.
  static constexpr int64_t kFirstWallNs = 946'684'800 * kNsPerSec;

  // No clock comes to kNever.
  static constexpr int64_t kLastNs = kNever - 1;

  virtual ~Clock() = default;

  // The monotonic clock; never goes back.
  virtual int64_t now_ns() = 0;

  // Any of the clocks, in its own time; not negative, and before kLastNs. The boottime clock never
  // goes back. The default is for clocks that are neither set nor suspended.
  virtual int64_t now_ns_on(ClockId clock) {
    return clock == ClockId::kWall ? std::min(saturating_add(kFirstWallNs, now_ns()), kLastNs)
                                   : now_ns();
  }

  // True when the operating system's timers follow this clock, so that a timerfd may be armed with
  // its deadlines. Otherwise whoever moves the clock wakes the pollers.
  virtual bool is_system_clock() const { return false; }
};

// The system's clocks: CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME. Lives as long as the
// process.
Clock& system_clock();

}  // namespace workflow
