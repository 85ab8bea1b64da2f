#include "factory/TimerSlots.h"

#include <new>
#include <utility>

#include "factory/TimerTask.h"
#include "kernel/OriginProcess.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "util/VirtualScheduler.h"

namespace workflow {

// One cache line, because a thread that uses a handle seldom has the slot in its cache.
class alignas(64) TimerSlots::Slot {
 public:
  explicit Slot(Shard& shard) : shard_(shard) {}

  // Whether the timer is one of the process that this one was forked from. Then the lock must not
  // be taken.
  bool is_of_parent() const;

 private:
  friend class TimerSlots;
  friend class RunningTimer;
  Shard& shard_;
  uint64_t tag_ = 0;
  // Guarded by the mutex of the shard. No handle has the generation of a slot that is not in use.
  uint64_t generation_ = 1;
  TimerTask* task_ = nullptr;
  bool running_ = false;  // the callback, or the destruction of what it has captured
  bool closed_ = false;   // a cancel has come, or a move was too late: no later call succeeds
  Slot* next_free_ = nullptr;
};

struct TimerSlots::Shard {
  Mutex mutex;
  const OriginProcess origin;
  LendingCondition given_up;
  Slot* free WF_GUARDED_BY(mutex) = nullptr;
  Shard* other = nullptr;  // of simulated_, or of the parent process

  void add_slots() WF_REQUIRES(mutex);
};

bool TimerSlots::Slot::is_of_parent() const {
  return shard_.origin.is_parent();
}

// Adds few slots at a time: while a table of slots grew, every thread that needs the mutex would
// wait.
void TimerSlots::Shard::add_slots() {
  constexpr size_t kSlots = 8;
  auto* const slots =
      static_cast<Slot*>(::operator new (kSlots * sizeof(Slot), std::align_val_t{alignof(Slot)}));
  for (size_t i = 0; i < kSlots; i++) {
    Slot* const slot = new (slots + i) Slot(*this);
    slot->next_free_ = std::exchange(free, slot);
  }
}

TimerSlots::TimerSlots() : shards_(new Shard[kShards]) {}

TimerSlots& TimerSlots::instance() {
  static TimerSlots* const slots = new TimerSlots;
  return *slots;
}

TimerSlots::Slot* TimerSlots::slot_of(const WFTimerHandle& handle) {
  __builtin_prefetch(reinterpret_cast<const void*>(handle.timer_), 1);
  __builtin_prefetch(reinterpret_cast<const void*>(handle.timer_ + sizeof(TimerNode) - 1), 1);
  return static_cast<Slot*>(handle.slot_);
}

TimerSlots::Shard& TimerSlots::next_shard() {
  if (!VirtualScheduler::current()) {
    const size_t number = next_shard_.fetch_add(1, std::memory_order_relaxed) % kShards;
    Shard* const shards = shards_.load(std::memory_order_acquire);
    // Each shard knows its process, because the memory of one that all threads read would be busy.
    return (shards[number].origin.is_parent() ? leave_to_parent(shards) : shards)[number];
  }
  // The locks of a simulation exclude only its own threads, so it shares no slots with other system
  // threads. It has one shard only, so that every run with the same seed is the same.
  static thread_local Shard* shard = nullptr;
  if (!shard || shard->origin.is_parent()) {
    shard = new Shard;
    shard->other = simulated_.load(std::memory_order_relaxed);
    while (!simulated_.compare_exchange_weak(shard->other, shard, std::memory_order_relaxed)) {
    }
  }
  return *shard;
}

TimerSlots::Shard* TimerSlots::leave_to_parent(Shard* shards) {
  auto* const own = new Shard[kShards];
  own->other = shards;  // for leak checkers
  if (shards_.compare_exchange_strong(shards, own, std::memory_order_acq_rel,
                                      std::memory_order_acquire)) {
    return own;
  }
  delete[] own;  // another thread was faster
  return shards;
}

TimerSlots::Slot* TimerSlots::add(TimerTask* task) {
  Shard& shard = next_shard();
  MutexLock lock(shard.mutex);
  if (!shard.free) {
    shard.add_slots();
  }
  Slot* const slot = std::exchange(shard.free, shard.free->next_free_);
  slot->task_ = task;
  slot->tag_ = 0;
  slot->running_ = false;
  slot->closed_ = false;
  return slot;
}

WFTimerHandle TimerSlots::handle_of(const Slot* slot) {
  WFTimerHandle handle;
  MutexLock lock(slot->shard_.mutex);
  handle.slot_ = const_cast<Slot*>(slot);
  handle.generation_ = slot->generation_;
  handle.timer_ = reinterpret_cast<uintptr_t>(static_cast<const TimerNode*>(slot->task_));
  return handle;
}

void TimerSlots::set_tag(Slot* slot, uint64_t tag) {
  slot->tag_ = tag;
}

uint64_t TimerSlots::tag_of(const Slot* slot) {
  return slot->tag_;
}

void TimerSlots::give_up(Slot* slot) {
  Shard& shard = slot->shard_;
  MutexLock lock(shard.mutex);
  slot->generation_++;
  slot->task_ = nullptr;
  slot->next_free_ = std::exchange(shard.free, slot);
  shard.given_up.notify_all();
}

// Needs no lock: no thread of the simulation runs now, and one that waits for a lock has changed
// nothing yet.
std::string TimerSlots::describe(const void* slot) {
  const auto* const its = static_cast<const Slot*>(slot);
  if (!its->task_) return "a timer that has ended";
  const std::string text = TimerTask::describe(its->task_);
  const bool is_waiting = !its->running_ && its->task_->get_state() == WFT_STATE_UNDEFINED;
  return is_waiting && !PollerTimers::is_started(its->task_) ? text + ", which was not started"
                                                             : text;
}

WFTimerCancel TimerSlots::cancel(const WFTimerHandle& handle) {
  Slot* const slot = slot_of(handle);
  if (!slot) return WFTimerCancel::kNoTimer;
  if (slot->is_of_parent()) return WFTimerCancel::kDone;
  RunnableList ended;
  WFTimerCancel verdict = WFTimerCancel::kTooLate;
  {
    MutexLock lock(slot->shard_.mutex);
    if (slot->generation_ != handle.generation_) return WFTimerCancel::kDone;
    if (!slot->running_ && !std::exchange(slot->closed_, true)) {
      verdict = slot->task_->cancel(ended);
    }
  }
  if (!ended.empty()) {
    Runtime::current().handlers().post(ended);
  }
  return verdict;
}

bool TimerSlots::wait(const WFTimerHandle& handle) {
  Slot* const slot = slot_of(handle);
  if (!slot || slot->is_of_parent()) return true;
  LendingCondition::Waiter waiter({"cancel_and_wait()", slot, &TimerSlots::describe});
  MutexLock lock(slot->shard_.mutex);
  while (slot->generation_ == handle.generation_) {
    if (RunningTimer::is_here(slot)) return false;
    slot->shard_.given_up.wait(slot->shard_.mutex, waiter);
  }
  return true;
}

WFTimerMove TimerSlots::reschedule(const WFTimerHandle& handle, TimerDue due,
                                   std::optional<ClockId> clock) {
  using Move = PollerTimers::Move;
  Slot* const slot = slot_of(handle);
  if (!slot) return WFTimerMove::kNoTimer;
  if (slot->is_of_parent()) return WFTimerMove::kDone;
  MutexLock lock(slot->shard_.mutex);
  if (slot->generation_ != handle.generation_) return WFTimerMove::kDone;
  if (!slot->task_->uses_clock(clock)) return WFTimerMove::kOtherClock;
  if (slot->running_ || slot->closed_) return WFTimerMove::kTooLate;
  switch (PollerTimers::move(slot->task_, due)) {
    case Move::kMoved:
      TimerCounters::add(TimerCounters::kRescheduled);
      return WFTimerMove::kWon;
    case Move::kInTick:
      break;
    case Move::kTooLate:
      // Also if the name is still linked: no call may succeed after one was too late (rule 12).
      slot->closed_ = true;
      break;
  }
  return WFTimerMove::kTooLate;
}

int64_t TimerSlots::remaining_ns(const WFTimerHandle& handle) {
  Slot* const slot = slot_of(handle);
  if (!slot || slot->is_of_parent()) return -1;
  MutexLock lock(slot->shard_.mutex);
  return slot->generation_ == handle.generation_ && !slot->running_
             ? PollerTimers::remaining_ns(slot->task_, Runtime::current_clock())
             : -1;
}

RunningTimer::RunningTimer(TimerSlots::Slot* slot, Part part)
    : activity_(part == Part::kTick ? "a tick of" : "the callback of", slot,
                &TimerSlots::describe) {
  if (part == Part::kCallback) {
    MutexLock lock(slot->shard_.mutex);
    slot->running_ = true;
  }
}

bool RunningTimer::is_here(const TimerSlots::Slot* slot) {
  return Activity::is_in(ThreadContext::current().activity, slot);
}

}  // namespace workflow
