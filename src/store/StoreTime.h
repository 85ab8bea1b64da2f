#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

#include "store/StoreRequest.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"

namespace workflow {

// The date of microseconds since 1970; the last date of the clock if it does not reach that far.
inline std::chrono::system_clock::time_point time_of_us(int64_t us) {
  using Point = std::chrono::system_clock::time_point;
  constexpr int64_t kLastUs =
      std::chrono::duration_cast<std::chrono::microseconds>(Point::duration::max()).count();
  return us >= kLastUs ? Point::max() : Point(std::chrono::microseconds(us));
}

// The opposite; kNeverUs for the last date of the clock.
inline int64_t us_of_time(std::chrono::system_clock::time_point time) {
  return time == std::chrono::system_clock::time_point::max()
             ? kNeverUs
             : std::chrono::floor<std::chrono::microseconds>(time.time_since_epoch()).count();
}

// Microseconds from nanoseconds, rounded up. What never comes in nanoseconds never comes.
inline int64_t us_from_ns(int64_t ns) {
  return ns == std::numeric_limits<int64_t>::max() ? kNeverUs : ns / 1000 + (ns % 1000 > 0 ? 1 : 0);
}

// The time by which lengths of time are measured: in a simulation that of the simulation.
inline int64_t monotonic_now_ns() {
  VirtualScheduler* const scheduler = VirtualScheduler::current();
  return scheduler ? scheduler->now_ns() : monotonic_ns();
}

// now + delay; kNeverUs if it does not fit. Neither is negative.
inline int64_t add_us(int64_t now_us, int64_t delay_us) {
  return delay_us >= kNeverUs - now_us ? kNeverUs : now_us + delay_us;
}

}  // namespace workflow
