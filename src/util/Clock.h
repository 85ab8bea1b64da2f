#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "util/Time.h"

namespace workflow {

// The clocks on which deadlines may be. The values are those of WFTimerClock.
enum class ClockId : uint8_t {
  kMonotonic,  // time since some start, without the time in which the system was suspended; never
               // set
  kBoottime,   // the same, with the time in which the system was suspended
  kWall        // since 1970-01-01 UTC; may be set by administrators and network services
};
inline constexpr size_t kClocks = 3;

// The source of time for the pollers. Thread-safe.
class Clock {
 public:
  // What the wall clock of a Clock other than the system's shows when its monotonic clock shows 0:
  // 2000-01-01 00:00:00 UTC, so that every run sees the same dates.
  static constexpr int64_t kFirstWallNs = 946'684'800 * kNsPerSec;

  // The last time that a clock may show. No clock reaches kNever.
  static constexpr int64_t kLastNs = kNever - 1;

  virtual ~Clock() = default;

  // The monotonic clock; never goes back.
  virtual int64_t now_ns() = 0;

  // The time of any of the clocks, in nanoseconds of that clock; not negative, and not later than
  // kLastNs. The boottime clock never goes back. The default is for clocks that are neither set nor
  // suspended.
  virtual int64_t now_ns_on(ClockId clock) {
    return clock == ClockId::kWall ? std::min(saturating_add(kFirstWallNs, now_ns()), kLastNs)
                                   : now_ns();
  }

  // True when the operating system's timers follow this clock, so that a timerfd may be armed with
  // its deadlines. Otherwise the thread that moves the clock must wake the pollers.
  virtual bool is_system_clock() const { return false; }

  // True when time passes only by calls of this clock, also in a simulation.
  virtual bool is_moved_by_hand() const { return false; }
};

// The system's clocks: CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_REALTIME. Lives as long as the
// process.
Clock& system_clock();

}  // namespace workflow
