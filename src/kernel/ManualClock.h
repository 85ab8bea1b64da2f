#pragma once

#include <atomic>
#include <cstdint>

#include "util/Clock.h"
#include "util/Mutex.h"

namespace workflow {

class Runtime;

// A clock that stands still until it is moved: real threads and sockets, time by hand.
// See workflow/WFManualClock.h.
//
// Thread-safe; calls that move time take turns. The clock outlives every Runtime that uses it.
//
// Invariants:
// 1. now never goes back.
// 2. Time never jumps over a deadline: it stops at each, until what was due has left the queue and
//    every handler and compute thread is idle again. So timers of different deadlines complete in
//    deadline order, whatever their pollers and callbacks do meanwhile.
class ManualClock final : public Clock {
 public:
  int64_t now_ns() override { return now_ns_.load(std::memory_order_acquire); }

  // Moves time of `runtime`, which uses this clock, on by `duration_ns` (>= 0).
  // Not from a thread of the runtime: it would wait for itself.
  void advance(Runtime& runtime, int64_t duration_ns) WF_EXCLUDES(moving_);

  // Moves time to the earliest deadline, and past no other. False if there is none but never.
  bool advance_to_next_deadline(Runtime& runtime) WF_EXCLUDES(moving_);

 private:
  void step_to(Runtime& runtime, int64_t now_ns) WF_REQUIRES(moving_);

  Mutex moving_;
  std::atomic<int64_t> now_ns_{0};
};

}  // namespace workflow
