#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kernel/Activity.h"
#include "kernel/LendingCondition.h"
#include "kernel/TimerDue.h"
#include "util/Mutex.h"
#include "workflow/Runnable.h"
#include "workflow/WFTimer.h"

namespace workflow {

class TimerTask;

// Where the handles of timers lead: a slot for each timer that somebody has asked a handle of, from
// then until its callback has returned, or it is dropped. A handle is a slot and a generation,
// which changes when the slot is given up: so it is safe for ever, and keeps nothing alive.
//
// One for the process, never destroyed; slots are used again and never freed.
//
// Thread-safe. G is the mutex of a shard. Order: G, then B or I or P. Under G the timer of a slot
// that is in use is alive, because its destructor gives the slot up.
//
// Rules (numbers as in docs/timer-protocol.md):
// 11. A handle's generation is that of its slot exactly until the timer's callback has returned, or
//     the timer was dropped.
// 12. At most one cancel by handle gets to the name and the poller: these know who came first of it
//     and of all others that end the timer. None does once a handle was told that it is too late.
class TimerSlots {
 public:
  class Slot;

  static TimerSlots& instance();

  // The slot of a timer that has none. Throws std::bad_alloc.
  Slot* add(TimerTask* task);
  static WFTimerHandle handle_of(const Slot* slot);
  // The user's number of the slot's timer; set before others know that timer.
  static void set_tag(Slot* slot, uint64_t tag);
  static uint64_t tag_of(const Slot* slot);
  // For those who have handles, the timer is gone.
  static void give_up(Slot* slot);
  // For the report of a simulation.
  static std::string describe(const void* slot);

  // What WFTimerHandle does.
  static WFTimerVerdict cancel(const WFTimerHandle& handle);
  // Until the slot is given up. False when the calling thread is in the timer's callback.
  static bool wait(const WFTimerHandle& handle);
  static WFTimerVerdict reschedule(const WFTimerHandle& handle, TimerDue due,
                                   std::optional<ClockId> clock);
  static int64_t remaining_ns(const WFTimerHandle& handle);  // -1: it does not wait

 private:
  struct Shard;
  static constexpr size_t kShards = 64;

  TimerSlots();
  ~TimerSlots() = delete;
  Shard& next_shard();
  // Has the timer's memory fetched while the slot is looked at, which says where it is, or that it
  // is gone: among many timers that is a wait of its own otherwise. It is not accessed.
  static Slot* slot_of(const WFTimerHandle& handle);

  Shard* const shards_;
  std::atomic<size_t> next_shard_{0};
  std::atomic<Shard*> simulated_{nullptr};  // all of them, so that they can be found in memory
};

// The calling thread is in the callback of the slot's timer, or in a tick of it.
class RunningTimer {
 public:
  enum class Part { kTick, kCallback };
  RunningTimer(TimerSlots::Slot* slot, Part part);
  RunningTimer(const RunningTimer&) = delete;
  RunningTimer& operator=(const RunningTimer&) = delete;

  // Whether the calling thread is in one of both.
  static bool is_here(const TimerSlots::Slot* slot);

 private:
  const Activity activity_;
};

}  // namespace workflow
