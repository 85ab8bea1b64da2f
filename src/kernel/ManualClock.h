#pragma once

#include <atomic>
#include <cstdint>

#include "util/Clock.h"
#include "util/Mutex.h"

namespace workflow {

class Runtime;

// Clocks that stand still until they are moved by hand, for use with real threads and sockets.
//
// Thread-safe. Calls that move time exclude each other. The clock must outlive every Runtime that
// uses it.
//
// Invariants:
// 1. The monotonic and the boottime clock never go back.
// 2. Time never jumps over a deadline. It stops at each deadline until the timers that are due have
//    left the queue and every handler and compute thread is idle again. So timers with different
//    deadlines complete in the order of their deadlines, whatever their pollers and callbacks do.
//    Only set_wall() and suspend() jump; timers that are due then expire at the new time.
class ManualClock final : public Clock {
 public:
  int64_t now_ns() override { return now_ns_.load(std::memory_order_acquire); }

  int64_t now_ns_on(ClockId clock) override;

  // Moves all clocks forward by `duration_ns` (>= 0). `runtime` must use this clock. Must not be
  // called on a thread of the library, which would wait for itself.
  void advance(Runtime& runtime, int64_t duration_ns) WF_EXCLUDES(moving_);

  // Moves time to the earliest deadline and no further. Returns false if there is no deadline other
  // than kNever.
  bool advance_to_next_deadline(Runtime& runtime) WF_EXCLUDES(moving_);

  // Sets the wall clock, forwards or backwards. A negative time counts as 0.
  void set_wall(Runtime& runtime, int64_t wall_ns) WF_EXCLUDES(moving_);

  // Acts as if the system were suspended for `duration_ns` (>= 0): all clocks but the monotonic one
  // move on.
  void suspend(Runtime& runtime, int64_t duration_ns) WF_EXCLUDES(moving_);

 private:
  void step_to(Runtime& runtime, int64_t now_ns) WF_REQUIRES(moving_);

  Mutex moving_;
  std::atomic<int64_t> now_ns_{0};
  // How far these clocks are ahead of the monotonic one.
  std::atomic<int64_t> boottime_ahead_ns_{0};
  std::atomic<int64_t> wall_ahead_ns_{kFirstWallNs};
};

}  // namespace workflow
