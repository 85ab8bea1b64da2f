#pragma once

#include <algorithm>
#include <cstdint>

#include "util/Clock.h"
#include "util/Time.h"

namespace workflow {

// When a timer that was not started yet shall leave the queue, in one word that an atomic holds: a
// time after its start, or a deadline on its clock; or that it shall not be started, or was. The
// only place that knows how the one word tells them apart.
//
// A value. Delays are not negative, or kNever. Deadlines are those of a clock that is not negative:
// what lies before is as far in the past as its 0.
class TimerDue {
 public:
  static constexpr TimerDue after(int64_t delay_ns) { return TimerDue(delay_ns); }

  // At a deadline; those that are nearly the last that there are count as kNever.
  static constexpr TimerDue at(int64_t deadline_ns) {
    return deadline_ns > kLastDeadline ? TimerDue(kNever)
                                       : TimerDue(kFirst + std::max<int64_t>(deadline_ns, 0));
  }

  // It will not be started, because of an error: an errno value.
  static constexpr TimerDue refused(int error) { return TimerDue(-error); }

  static constexpr TimerDue started() { return TimerDue(kStarted); }

  constexpr bool is_started() const { return word_ == kStarted; }
  constexpr bool is_refused() const { return word_ < 0 && word_ > kFirst + kLastDeadline; }
  constexpr int error() const { return static_cast<int>(-word_); }  // of one that is refused

  // Of the others: its deadline if it is started at `now_ns` of its clock; kNever.
  constexpr int64_t deadline_ns(int64_t now_ns) const {
    return word_ >= 0 ? saturating_add(now_ns, word_) : word_ - kFirst;
  }

 private:
  static constexpr int64_t kMaxError = 4095;  // as in the kernel
  static constexpr int64_t kStarted = INT64_MIN;
  static constexpr int64_t kFirst = kStarted + 1;
  static constexpr int64_t kLastDeadline = -kMaxError - 1 - kFirst;

  constexpr explicit TimerDue(int64_t word) : word_(word) {}

  int64_t word_;
};

// The same with the clock that it is about.
struct ClockedDue {
  TimerDue due;
  ClockId clock = ClockId::kMonotonic;
};

}  // namespace workflow
