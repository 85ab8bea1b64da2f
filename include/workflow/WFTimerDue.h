#pragma once

#include <chrono>
#include <cstdint>

#include "workflow/Duration.h"

// By which clock a timer expires. A timer keeps its clock for life.
enum WFTimerClock {
  // Time that passes while the system runs: CLOCK_MONOTONIC. std::chrono::steady_clock.
  WF_CLOCK_MONOTONIC = 0,
  // The same and the time in which the system was suspended: CLOCK_BOOTTIME. WFBootClock. A timer
  // does not wake the system: what came due meanwhile expires when that resumes.
  WF_CLOCK_BOOTTIME = 1,
  // The date: CLOCK_REALTIME. std::chrono::system_clock. When it is set, timers follow.
  WF_CLOCK_WALL = 2,
};

// What std::chrono::steady_clock is to CLOCK_MONOTONIC, for CLOCK_BOOTTIME; but its now() is that
// of the library's timers: see WFTimer::steady_now().
struct WFBootClock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<WFBootClock>;
  static constexpr bool is_steady = true;

  static time_point now();
};

// When a timer shall expire. Made from what says it, so that calls just take it:
//
//   std::chrono::seconds(30)                          30 s from its start, or from a reschedule
//   {std::chrono::seconds(30), WF_CLOCK_BOOTTIME}     the same by another clock
//   std::chrono::steady_clock::now() + 30s            at that time
//   std::chrono::system_clock::from_time_t(t)         at that date
//   WFBootClock::now() + 30s                          at that time
//
// A negative delay means never; so does what does not fit (hours::max(), dates after 2261). What is
// past, be it before 1970, is due at once: the callback runs soon, and never in the call.
class WFTimerDue {
 public:
  // Of a new timer, monotonic; of one that there is already, by the clock it has.
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

  // A time of the clock, and not a delay.
  bool is_deadline() const { return kind_ == kDeadline; }
  // False for a delay alone.
  bool has_clock() const { return kind_ != kDelay; }
  WFTimerClock clock() const { return clock_; }
  // The delay; or the deadline, counted from the clock's epoch.
  int64_t ns() const { return ns_; }

 private:
  enum Kind : uint8_t { kDelay, kDelayByClock, kDeadline };

  WFTimerDue(Kind kind, WFTimerClock clock, workflow::Duration time)
      : ns_(time.ns()), clock_(clock), kind_(kind) {}

  int64_t ns_;
  WFTimerClock clock_;
  Kind kind_;
};
