#pragma once

#include "kernel/TimerDue.h"
#include "workflow/WFTimerDue.h"

namespace workflow {

static_assert(ClockId{WF_CLOCK_MONOTONIC} == ClockId::kMonotonic);
static_assert(ClockId{WF_CLOCK_BOOTTIME} == ClockId::kBoottime);
static_assert(ClockId{WF_CLOCK_WALL} == ClockId::kWall);

// The library's form of a time that a user has given.
inline ClockedDue clocked_due(const WFTimerDue& due) {
  const int64_t delay_ns = due.ns() < 0 ? kNever : due.ns();
  return {due.is_deadline() ? TimerDue::at(due.ns()) : TimerDue::after(delay_ns),
          static_cast<ClockId>(due.clock())};
}

}  // namespace workflow
