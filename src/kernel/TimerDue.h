#pragma once

#include <algorithm>
#include <cstdint>

#include "util/Time.h"

namespace workflow {

// When a timer that was not started yet will be due. This is one word, so that an atomic can hold
// it: a delay after the start, or a deadline on the timer's clock, or the mark that the timer was
// refused or started. Only this class knows how the word encodes these.
//
// A plain value. A delay is not negative; a delay of kNever means that the timer is never due. No
// clock shows a negative time, so a negative deadline counts as 0.
class TimerDue {
 public:
  static constexpr TimerDue after(int64_t delay_ns) { return TimerDue(delay_ns); }

  // A deadline. The latest deadlines that an int64_t can hold, beyond kLastDeadline, count as
  // kNever.
  static constexpr TimerDue at(int64_t deadline_ns) {
    return deadline_ns > kLastDeadline ? TimerDue(kNever)
                                       : TimerDue(kFirst + std::max<int64_t>(deadline_ns, 0));
  }

  // An error, given as an errno value, prevents the start of the timer.
  static constexpr TimerDue refused(int error) { return TimerDue(-error); }

  static constexpr TimerDue started() { return TimerDue(kStarted); }

  constexpr bool is_started() const { return word_ == kStarted; }
  constexpr bool is_refused() const { return word_ < 0 && word_ > kFirst + kLastDeadline; }
  constexpr int error() const { return static_cast<int>(-word_); }  // valid if refused

  // For a delay or a deadline: the deadline if the timer is started when its clock shows `now_ns`;
  // kNever means no deadline.
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

}  // namespace workflow
