#pragma once

#include <cstdint>
#include <string_view>

#include "factory/NameRegistry.h"
#include "kernel/Poller.h"
#include "workflow/WFTask.h"

namespace workflow {

// A timer task without a name. Nothing but the poller and its own series ever touches it.
class TimerTask : public WFTimerTask, public TimerNode {
 public:
  // A delay that dispatch() answers with SYS_ERROR and this errno value at once.
  static constexpr int64_t refused(int error) { return -error; }

  // `delay_ns`: not negative, kNever, or refused(error).
  TimerTask(int64_t delay_ns, std::function<void(WFTimerTask*)>&& callback)
      : WFTimerTask(std::move(callback)), delay_ns_(delay_ns) {}

  void dispatch() final;
  void left_queue(bool stopped, RunnableList& finished) override;

  // After SeriesWork::interrupt(), with no lock held: the timers end. The list is empty then.
  static void end_interrupted(RunnableList& tasks);

 protected:
  ~TimerTask() override = default;

  // Takes the timer's name away; false when a canceller did, so that the outcome is ECANCELED.
  virtual bool leave_name() { return true; }
  // The same with what its series waits for; false when that was interrupted.
  bool leave_scope();

  // The one place where an outcome is set. The caller owns the completion, and has left the name
  // and the scope or is about to.
  void set_outcome(int state, int error) {
    state_ = state;
    error_ = error;
  }

 private:
  // False: it has an outcome, and has left its scope.
  bool enter_scope(Poller& poller);
  bool start_with(Poller& poller);
  const int64_t delay_ns_;
};

// A timer that can be cancelled by its name, from creation on.
class NamedTimerTask final : public TimerTask, public NamedNode {
 public:
  // Throws std::bad_alloc.
  NamedTimerTask(std::string_view name, int64_t delay_ns,
                 std::function<void(WFTimerTask*)>&& callback);

  static size_t cancel(std::string_view name, size_t max);

  // Every outstanding named timer of the calling thread's runtime.
  static NameRegistry& registry();

 protected:
  ~NamedTimerTask() override;
  bool leave_name() override;
};

}  // namespace workflow
