#pragma once

#include <atomic>
#include <cstdint>

#include "kernel/WorkerPool.h"
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
//    left the queue and every handler thread and compute thread is idle, or blocked in a
//    BlockingScope. So timers with different deadlines complete in the order of their deadlines,
//    whatever their pollers and callbacks do. Only set_wall() and suspend() jump; timers that are
//    due then expire at the new time.
// 3. While advance() waits for the handler threads, the last of them that has nothing more to do
//    moves time to the next deadline itself, under the same conditions. So a deadline costs no
//    thread switch. If such a handler thread cannot tell at once whether it may, it becomes idle,
//    and the thread that called advance() goes on.
class ManualClock final : public Clock, private WorkerPool::Source {
 public:
  int64_t now_ns() override { return now_ns_.load(std::memory_order_acquire); }

  int64_t now_ns_on(ClockId clock) override;
  bool is_moved_by_hand() const override { return true; }

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
  void step_to(Runtime& runtime, int64_t now_ns) WF_REQUIRES(moving_, stepping_);
  void move_to(int64_t now_ns) WF_REQUIRES(stepping_);
  // Waits until nothing is due or posted, and what still runs is blocked in a BlockingScope.
  void settle(Runtime& runtime) WF_REQUIRES(moving_, stepping_);
  // Waits until the handler threads are quiet. Releases stepping_ meanwhile, so that they may move
  // time. Returns what quiet_count() does.
  uint64_t let_handlers_move(Runtime& runtime) WF_REQUIRES(moving_, stepping_);
  // A worker of the handler threads calls it while the others are idle.
  bool post_more() override WF_EXCLUDES(stepping_);
  bool step_on_worker() WF_REQUIRES(stepping_);

  Mutex moving_;  // held by the thread whose call moves time
  // Held while a thread checks whether time may move, and moves it. Lock order: moving_, stepping_.
  Mutex stepping_;
  // Which runtime's handler threads may move time, and how far; null outside advance().
  Runtime* advancing_ WF_GUARDED_BY(stepping_) = nullptr;
  int64_t target_ns_ WF_GUARDED_BY(stepping_) = 0;
  // The next three are stored with release under stepping_, which orders the relaxed loads there,
  // and read with acquire. So whoever reads a time sees what was done before a clock reached it.
  std::atomic<int64_t> now_ns_{0};
  // How far these clocks are ahead of the monotonic one.
  std::atomic<int64_t> boottime_ahead_ns_{0};
  std::atomic<int64_t> wall_ahead_ns_{kFirstWallNs};
};

}  // namespace workflow
