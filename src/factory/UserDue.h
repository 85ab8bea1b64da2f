#pragma once

#include <optional>

#include "kernel/TimerDue.h"
#include "util/Clock.h"
#include "workflow/WFTimerDue.h"

namespace workflow {

static_assert(ClockId{WF_CLOCK_MONOTONIC} == ClockId::kMonotonic);
static_assert(ClockId{WF_CLOCK_BOOTTIME} == ClockId::kBoottime);
static_assert(ClockId{WF_CLOCK_WALL} == ClockId::kWall);

// The library's form of a time that a user has given.
inline TimerDue timer_due(const WFTimerDue& due) {
  const int64_t delay_ns = due.ns() < 0 ? kNever : due.ns();
  return due.is_deadline() ? TimerDue::at(due.ns()) : TimerDue::after(delay_ns);
}

// The clock by which something new measures that time.
inline ClockId clock_of(const WFTimerDue& due) {
  return static_cast<ClockId>(due.clock());
}

// The clock that the user has given with that time. If none, what exists keeps the clock that it
// has.
inline std::optional<ClockId> given_clock(const WFTimerDue& due) {
  return due.has_clock() ? std::optional(clock_of(due)) : std::nullopt;
}

}  // namespace workflow
