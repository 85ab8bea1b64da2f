#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "factory/NameRegistry.h"
#include "factory/TimerCounters.h"
#include "factory/TimerSlots.h"
#include "kernel/Poller.h"
#include "util/BlockCache.h"
#include "workflow/WFTask.h"
#include "workflow/WFTimer.h"

namespace workflow {

// A timer task without a name. Nothing but the poller and its own series ever touches it.
class TimerTask : public WFTimerTask, public TimerNode {
 public:
  // One that is due as refused(error) ends when it is started, SYS_ERROR with that error, which
  // get_error() says from now on. Nothing else can end it, so nobody wins against it, and it has no
  // name (rule 19).
  TimerTask(const ClockedDue& when, std::function<void(WFTimerTask*)>&& callback,
            bool restarts = false)
      : WFTimerTask(std::move(callback)), TimerNode(when, restarts) {
    error_ = when.due.is_refused() ? when.due.error() : 0;
    TimerCounters::add(TimerCounters::kCreated);
  }

  // There may be a million now and none soon, made and freed by different threads.
  static void* operator new(size_t size) { return BlockCache::take(size); }
  static void operator delete(void* memory, size_t size) { BlockCache::give(memory, size); }

  // Before the start. Throws std::bad_alloc.
  WFTimerHandle handle();
  // Before others know the timer: most have none, so it is kept where handles lead. The same.
  void set_tag(uint64_t tag);
  // Before others know the timer: it is refused, as one with a due time that says so.
  void refuse_start(int error);

  // Whether that is its clock; if none is given, yes.
  bool goes_by(std::optional<ClockId> wanted) const { return wanted.value_or(clock()) == clock(); }

  // By a handle, under G; once. Adds the task to `ended` if that is to be called with it.
  WFTimerVerdict cancel(RunnableList& ended);

  // For the report of a simulation: timer "a". A timer has lost its name when its callback runs, so
  // simulations note the names of all.
  static std::string describe(const void* task);

  void dispatch() final;
  void left_queue(bool stopped, RunnableList& finished) override;

 protected:
  ~TimerTask() override;

  SubTask* done() override;

  // By its clock.
  int64_t now_ns() const;

  // The first of the start: for those who know only then when they are due.
  virtual void before_start() {}

  enum class Name { kHasNone, kLeft, kTaken };
  // Takes the timer's name away. kTaken: a canceller did, so that the outcome is ECANCELED.
  virtual Name leave_name() { return Name::kHasNone; }

  // As leave_scope(), of a scope that may be for timers only.
  int leave_timers_scope();

  // The one place where an outcome is set. The caller owns the completion, and has left the name
  // and the scope or is about to.
  void set_outcome(int state, int error) {
    state_ = state;
    error_ = error;
  }
  // Leaves both; the outcome is that one, or ECANCELED if somebody took it out of one of them.
  void leave_with(int state, int error);

  // For the destructor of the most derived class: until then handles may call virtual functions.
  // Destroys what the callback has captured first, as who waits for the timer may free what that
  // uses.
  void give_up_slot();
  virtual void forget_captured() { callback_ = nullptr; }
  TimerSlots::Slot* slot() const { return slot_.load(std::memory_order_acquire); }

 private:
  void interrupt(Interruption& interruption) final;
  void end_interrupted(int error) final;

  // False: it has an outcome, and is not in its scope.
  bool enter_scope_with(Poller& poller);
  // True: the task is others' now. If it was due already, its turn is in `finished`.
  bool start_with(Poller& poller, RunnableList& finished);
  // An outcome for one that was not started with a poller; returns false.
  bool refuse(int error);

  // Of the handles and the tag, if there are any. Who lists the timer may look while it is set.
  std::atomic<TimerSlots::Slot*> slot_{nullptr};
};

// A timer that can be cancelled by its name, from creation on.
class NamedTimerTask : public TimerTask, public NamedNode {
 public:
  // One of these, after applying the policy, or one without a name, which is refused: as policy
  // and quotas say. Throws std::bad_alloc.
  static WFTimerTask* create(std::string_view name, const ClockedDue& when, WFTimerPolicy policy,
                             uint64_t tag, std::function<void(WFTimerTask*)>&& callback);
  // The same with a task that has no name yet, and is owned from now on. One that is refused gets
  // none.
  static WFTimerTask* give_name(NamedTimerTask* task, const NameRegistry::Sought& name,
                                WFTimerPolicy policy, uint64_t tag);

  static size_t cancel(std::string_view name, size_t max);
  // Those that go by `clock`, if one is given.
  static size_t reschedule(std::string_view name, TimerDue due, std::optional<ClockId> clock);

  // Under B, of one that is linked; `name` is its name.
  static WFTimerInfo info_of(std::string_view name, const NamedNode* node, int64_t now_ns);

  // Every outstanding named timer of the calling thread's runtime.
  static NameRegistry& registry();

 protected:
  ~NamedTimerTask() override { give_up_name_and_slot(); }
  Name leave_name() override;

  // For the destructor of the most derived class, as give_up_slot().
  void give_up_name_and_slot();

  // Has no name yet.
  using TimerTask::TimerTask;

 private:
  template <class Wanted>
  static size_t cancel_if(std::string_view name, size_t max, Wanted&& wanted);
};

}  // namespace workflow
