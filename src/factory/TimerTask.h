#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "factory/NameRegistry.h"
#include "factory/TimerCounters.h"
#include "factory/TimerSlots.h"
#include "kernel/PollerTimers.h"
#include "util/BlockCache.h"
#include "workflow/WFTask.h"
#include "workflow/WFTimer.h"

namespace workflow {

// A timer task without a name. It never touches the name registry (rule 8).
class TimerTask : public WFTimerTask, public TimerNode {
 public:
  // If `due` is refused(error), the timer ends with SYS_ERROR and that error when it is started,
  // and get_error() returns the error from now on. Nothing else can end such a timer: every cancel
  // is too late, and it has no name (rule 19).
  TimerTask(TimerDue due, std::function<void(WFTimerTask*)>&& callback,
            ClockId clock = ClockId::kMonotonic, bool restarts = false)
      : WFTimerTask(std::move(callback)), TimerNode(due, clock, restarts) {
    error = due.is_refused() ? due.error() : 0;
    TimerCounters::add(TimerCounters::kCreated);
  }

  // A program may have a million timers now and none soon, and one thread may free what another has
  // created.
  static void* operator new(size_t size) { return BlockCache::take(size); }
  static void operator delete(void* memory, size_t size) { BlockCache::give(memory, size); }

  // Returns a handle. Only before the start. Throws std::bad_alloc.
  WFTimerHandle handle();
  // Sets the tag. Only before other threads know the timer. The tag is kept in the slot to which
  // handles lead, because most timers have none. Throws std::bad_alloc.
  void set_tag(uint64_t tag);
  // Refuses the timer with that error (rule 19). Only before other threads know the timer.
  void refuse_start(int refusal);

  // Whether `wanted` is the timer's clock. True if no clock is given.
  bool uses_clock(std::optional<ClockId> wanted) const {
    return wanted.value_or(clock()) == clock();
  }

  // Cancels for a handle. The caller holds the TimerSlots lock. At most once. If this call now owns
  // the completion, it stores the outcome and appends the task to `ended`; the caller posts that.
  WFTimerCancel cancel(RunnableList& ended);

  // Describes the timer for the report of a simulation, for example: timer "a". A timer has no name
  // any more when its callback runs, so a simulation notes the names of all its timers.
  static std::string describe(const void* task);

  void dispatch() final;
  void left_queue(bool stopped, RunnableList& finished) override;

 protected:
  ~TimerTask() override;

  SubTask* done() override;

  // Returns the present time of the timer's clock.
  int64_t now_ns() const;

  // Called first by dispatch(), for timers that know only then when they are due.
  virtual void before_start() {}

  enum class Name { kUnnamed, kLeft, kTaken };
  // Unlinks the timer from its name, if it has one. Returns kTaken if a canceller has done so
  // before; the outcome is ECANCELED then.
  virtual Name leave_name() { return Name::kUnnamed; }

  // The one place where an outcome is stored. The caller owns the completion, and has left the name
  // or is about to. leave_scope() follows.
  void set_outcome(int end_state, int end_error) {
    state = end_state;
    error = end_error;
  }
  // Leaves the name and stores the outcome: this one, or ECANCELED if a canceller had taken the
  // timer out of its name. Then leaves the scope, and returns what leave_scope() does.
  bool leave_with(int end_state, int end_error);
  // Why the scope has ended for timers.
  int scope_error() const { return cancel_reason(ScopeKind::kTimer); }

  // Gives up the slot, if there is one. The destructor of the most derived class has to call this,
  // because handles may call virtual functions of the timer until then. First destroys what the
  // callback has captured: a thread that waits for the timer may free what the captured values use.
  void give_up_slot();
  virtual void forget_captured() { callback_ = nullptr; }
  TimerSlots::Slot* slot() const { return slot_.load(std::memory_order_acquire); }

 private:
  void on_cancel(int reason) final;

  // Ends a timer that the poller does not take. The outcome is SYS_ERROR with `refusal`, unless
  // a canceller has come first.
  void refuse(int refusal, RunnableList& finished);
  void start_with(PollerTimers& timers, RunnableList& finished);
  void end_with(int end_state, int end_error, RunnableList& finished);

  // The slot of the handles and the tag; null if there are none. Atomic, because a thread that
  // lists timers may read it while it is being set. Release and acquire publish the content of the
  // slot. Null is stored relaxed: by then the timer has left its name and its ticks are over, so no
  // other thread reads this.
  std::atomic<TimerSlots::Slot*> slot_{nullptr};
};

// A timer that can be cancelled by its name, from creation on.
class NamedTimerTask : public TimerTask, public NamedNode {
 public:
  // Creates a timer and applies the policy to the others of its name. If the policy or a quota
  // refuses the timer, it gets no name (rule 19). Throws std::bad_alloc.
  static WFTimerTask* create(std::string_view name, TimerDue due, WFTimerPolicy policy,
                             uint64_t tag, std::function<void(WFTimerTask*)>&& callback,
                             ClockId clock = ClockId::kMonotonic);
  // Does the same with a task that has no name yet. Owns the task from now on: deletes it if this
  // throws, or else returns it.
  static WFTimerTask* give_name(NamedTimerTask* task, const NameRegistry::NameKey& name,
                                WFTimerPolicy policy, uint64_t tag);

  static size_t cancel(std::string_view name, size_t max);
  // Moves the timers of that name, and only those that go by `clock` if one is given. Returns how
  // many.
  static size_t reschedule(std::string_view name, TimerDue due, std::optional<ClockId> clock);

  // Describes a node that is linked under `name`. The caller holds the NameRegistry lock.
  static WFTimerInfo info_of(std::string_view name, const NamedNode* node, int64_t now_ns);

  // Returns the registry of all outstanding named timers of the calling thread's runtime.
  static NameRegistry& registry();

 protected:
  ~NamedTimerTask() override { give_up_name_and_slot(); }
  Name leave_name() override;

  // The destructor of the most derived class has to call this, as it does give_up_slot().
  void give_up_name_and_slot();

  // The new timer has no name yet.
  using TimerTask::TimerTask;

 private:
  template <class Wanted>
  static size_t cancel_if(std::string_view name, size_t max, Wanted&& wanted);
};

}  // namespace workflow
