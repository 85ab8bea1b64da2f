#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kernel/Activity.h"
#include "kernel/LendingCondition.h"
#include "kernel/TimerDue.h"
#include "util/Clock.h"
#include "util/Mutex.h"
#include "workflow/WFTimer.h"

namespace workflow {

class TimerTask;

// The slots to which the handles of timers lead. A timer gets a slot when somebody asks for a
// handle or sets a tag. It gives the slot up when its callback has returned and what that had
// captured is destroyed, or when it is dismissed. A handle is a slot and a generation. The
// generation changes when the slot is given up. So a handle is safe to use for ever, and keeps
// nothing alive.
//
// There is one instance for the process, which is never destroyed. Slots are used again and never
// freed. A child of fork(2) has slots of its own. Those of the parent stay there as they are, and
// their handles say that the timer has ended.
//
// Thread-safe. Each shard has a mutex, which is the TimerSlots lock. It is taken before the locks
// of NameRegistry, PollerTimers, CancelScope, a pool and LeaderThreads. The timer of a slot that is
// in use is alive as long as the mutex is held, because the slot is given up, under it, before the
// timer is freed.
//
// Rules (numbers as in docs/timer-protocol.md):
// 11. The generation of a handle equals that of its slot until the slot is given up, and never
//     afterwards. That happens when the timer's callback has returned and what it had captured is
//     destroyed, or when a timer that was not started is destroyed.
// 12. At most one cancel by handle is carried out: it goes to the name and the poller, which decide
//     whether it came before everything else that ends the timer. After that cancel, or a call by
//     handle that was too late, no call by handle succeeds. A reschedule fails while a periodic
//     timer is out of its queue for a tick, but later calls may succeed.
class TimerSlots {
 public:
  class Slot;

  static TimerSlots& instance();

  // Gives a slot to a timer that has none. Throws std::bad_alloc.
  Slot* add(TimerTask* task);
  static WFTimerHandle handle_of(const Slot* slot);
  // The tag is the user's number of the slot's timer. Set it only before other threads know that
  // timer.
  static void set_tag(Slot* slot, uint64_t tag);
  static uint64_t tag_of(const Slot* slot);
  // From now on the handles say that the timer is gone. Wakes the threads in wait().
  static void give_up(Slot* slot);
  // Describes the slot's timer for the report of a simulation.
  static std::string describe(const void* slot);

  // These implement WFTimerHandle.
  static WFTimerCancel cancel(const WFTimerHandle& handle);
  // Blocks until the slot is given up. Returns false, and does not block, if the calling thread is
  // in the timer's callback, destroys what that has captured, or is in a tick of the timer.
  static bool wait(const WFTimerHandle& handle);
  static WFTimerMove reschedule(const WFTimerHandle& handle, TimerDue due,
                                std::optional<ClockId> clock);
  // The time until the timer expires, in nanoseconds, or kNever if it never expires. -1 if the
  // timer is cancelled, refused, in a tick that does not overlap others, or has ended.
  static int64_t remaining_ns(const WFTimerHandle& handle);

 private:
  struct Shard;
  static constexpr size_t kShards = 64;

  TimerSlots();
  ~TimerSlots() = delete;
  Shard& next_shard();
  // Called in a child of fork(2) with the shards of the parent. Returns those of the child.
  Shard* leave_to_parent(Shard* shards);
  // Returns the handle's slot. Also prefetches the timer's memory while the slot is being read:
  // with many timers this saves a cache miss. The timer may be gone, so it is not accessed.
  static Slot* slot_of(const WFTimerHandle& handle);

  // Constant but in a child of fork(2), whose first thread that asks for a slot replaces them.
  // Release and acquire: the exchange publishes the new shards.
  std::atomic<Shard*> shards_;
  // Both are relaxed. The number only spreads the timers over the shards, and no code reads the
  // list that begins at simulated_.
  std::atomic<size_t> next_shard_{0};
  std::atomic<Shard*> simulated_{nullptr};  // lists the shards of simulations: for leak checkers
};

// While this object lives, the calling thread is in the callback of the slot's timer or destroys
// what that has captured (kCallback), or it is in a tick (kTick). With kCallback the constructor
// takes the TimerSlots lock, and calls by handle are too late from then on.
class RunningTimer {
 public:
  enum class Part { kTick, kCallback };
  RunningTimer(TimerSlots::Slot* slot, Part part);
  RunningTimer(const RunningTimer&) = delete;
  RunningTimer& operator=(const RunningTimer&) = delete;

  // Whether such an object of the calling thread exists for that slot.
  static bool is_here(const TimerSlots::Slot* slot);

 private:
  const Activity activity_;
};

}  // namespace workflow
