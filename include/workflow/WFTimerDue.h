#pragma once

#include <chrono>
#include <cstdint>

#include "workflow/detail/Duration.h"

// The clock by which a timer expires. A timer keeps its clock for life.
enum WFTimerClock {
  // Counts the time in which the system runs: CLOCK_MONOTONIC, std::chrono::steady_clock.
  WF_CLOCK_MONOTONIC = 0,
  // Also counts the time in which the system is suspended: CLOCK_BOOTTIME, WFBootClock. A timer
  // does not wake the system: what came due during a suspension expires when the system resumes.
  WF_CLOCK_BOOTTIME = 1,
  // The date: CLOCK_REALTIME, std::chrono::system_clock. When the clock is set, its timers follow.
  WF_CLOCK_WALL = 2,
};

// The counterpart of std::chrono::steady_clock for CLOCK_BOOTTIME, except that now() returns the
// time of the library's timers: see WFTimer::steady_now().
struct WFBootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<WFBootClock>;
  static constexpr bool is_steady = true;

  static time_point now();
};

// When a timer expires or a scope ends. It converts from the types that express this, so calls can
// be given these:
//
//   std::chrono::seconds(30)                          30 s from its dispatch, or from a reschedule
//   {std::chrono::seconds(30), WF_CLOCK_BOOTTIME}     the same by another clock
//   std::chrono::steady_clock::now() + 30s            at that time
//   std::chrono::system_clock::from_time_t(t)         at that date
//   WFBootClock::now() + 30s                          at that time
//
// A time in the past is due at once. The callback of a timer then runs soon, but not inside the
// call that dispatches or reschedules the timer, unless the library has stopped. For negative
// delays, and times that do not fit, see docs/limits.md.
class WFTimerDue {
 public:
  // A delay. A new timer measures it by the monotonic clock, an existing one by the clock that it
  // has.
  template <class REP, class PERIOD>
  WFTimerDue(const std::chrono::duration<REP, PERIOD> &delay)
      : WFTimerDue(kDelay, WF_CLOCK_MONOTONIC, delay) {}

  template <class REP, class PERIOD>
  WFTimerDue(const std::chrono::duration<REP, PERIOD> &delay, WFTimerClock clock)
      : WFTimerDue(kDelayByClock, clock, delay) {}

  template <class DURATION>
  WFTimerDue(const std::chrono::time_point<std::chrono::steady_clock, DURATION> &deadline)
      : WFTimerDue(kDeadline, WF_CLOCK_MONOTONIC, deadline.time_since_epoch()) {}

  template <class DURATION>
  WFTimerDue(const std::chrono::time_point<std::chrono::system_clock, DURATION> &date)
      : WFTimerDue(kDeadline, WF_CLOCK_WALL, date.time_since_epoch()) {}

  template <class DURATION>
  WFTimerDue(const std::chrono::time_point<WFBootClock, DURATION> &deadline)
      : WFTimerDue(kDeadline, WF_CLOCK_BOOTTIME, deadline.time_since_epoch()) {}

  // True for a time of the clock, false for a delay.
  bool is_deadline() const { return kind_ == kDeadline; }
  // False for a delay that was given without a clock.
  bool has_clock() const { return kind_ != kDelay; }
  WFTimerClock clock() const { return clock_; }
  // The delay, or the deadline counted from the clock's epoch, in nanoseconds.
  int64_t ns() const { return ns_; }

 private:
  enum Kind : uint8_t { kDelay, kDelayByClock, kDeadline };

  WFTimerDue(Kind kind, WFTimerClock clock, workflow::Duration time)
      : ns_(time.ns()), clock_(clock), kind_(kind) {}

  int64_t ns_;
  WFTimerClock clock_;
  Kind kind_;
};
