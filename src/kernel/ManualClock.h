#pragma once

#include <atomic>
#include <cstdint>

#include "util/Clock.h"
#include "util/Mutex.h"

namespace workflow {

class Runtime;

// Clocks that stand still until they are moved: real threads and sockets, time by hand.
// See workflow/WFManualClock.h.
//
// Thread-safe; calls that move time take turns. The clock outlives every Runtime that uses it.
//
// Invariants:
// 1. The monotonic and the boottime clock never go back.
// 2. Time never jumps over a deadline: it stops at each, until what was due has left the queue and
//    every handler and compute thread is idle again. So timers of different deadlines complete in
//    deadline order, whatever their pollers and callbacks do meanwhile. Only set_wall() and
//    suspend() jump: what is due then expires at the new time.
class ManualClock final : public Clock {
 public:
  int64_t now_ns() override { return now_ns_.load(std::memory_order_acquire); }

  int64_t now_ns_on(ClockId clock) override;

  // Moves time of all clocks of `runtime`, which uses this clock, on by `duration_ns` (>= 0).
  // Not from a thread of the runtime: it would wait for itself.
  void advance(Runtime& runtime, int64_t duration_ns) WF_EXCLUDES(moving_);

  // Moves time to the earliest deadline, and past no other. False if there is none but never.
  bool advance_to_next_deadline(Runtime& runtime) WF_EXCLUDES(moving_);

  // Sets the wall clock, forwards or backwards; what lies before its 0 counts as that.
  void set_wall(Runtime& runtime, int64_t wall_ns) WF_EXCLUDES(moving_);

  // The system sleeps for `duration_ns` (>= 0): all but the monotonic clock go on.
  void suspend(Runtime& runtime, int64_t duration_ns) WF_EXCLUDES(moving_);

 private:
  void step_to(Runtime& runtime, int64_t now_ns) WF_REQUIRES(moving_);

  Mutex moving_;
  std::atomic<int64_t> now_ns_{0};
  // How far these are ahead of it.
  std::atomic<int64_t> boottime_ahead_ns_{0};
  std::atomic<int64_t> wall_ahead_ns_{kFirstWallNs};
};

}  // namespace workflow
