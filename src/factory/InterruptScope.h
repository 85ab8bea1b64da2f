#pragma once

#include <unordered_map>

#include "kernel/Poller.h"
#include "util/Mutex.h"
#include "workflow/Runnable.h"

class SeriesWork;

namespace workflow {

class TimerTask;

// The timers that a series waits for, and those of the series inside it, so that they can be ended
// together (SeriesWork::interrupt).
//
// To a timer it is what a name is: it enters when it is started and leaves on its way to its
// completion, and who takes it out decides its outcome.
//
// Owned by the outermost series, and made when the first timer of it starts: most series of a
// server never wait. Until then, and if it is interrupted before, SeriesWork::scope_ says so by
// idle() and over().
//
// Thread-safe. I is mutex_. Order: B or C, then I, then P. Under I a task in the scope is alive.
class InterruptScope {
 public:
  InterruptScope() = default;
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  // Stand for a scope that does not exist yet, or needs not any more.
  static InterruptScope* idle();
  static InterruptScope* over();

  enum class Enter { kEntered, kInterrupted, kNoMemory };
  // Before the timer is started with `poller`.
  Enter enter(TimerTask* task, Poller& poller);
  // The owner of the completion, before it sets an outcome. False: it was interrupted.
  bool leave(TimerTask* task);
  // Takes all out; those whose completion the caller owns then are added to `ended`, see
  // TimerTask::end_interrupted(). The others' owners find them taken out. Nothing enters any more.
  void interrupt(RunnableList& ended);

 private:
  explicit InterruptScope(bool interrupted) : interrupted_(interrupted) {}

  Mutex mutex_;  // I
  bool interrupted_ WF_GUARDED_BY(mutex_) = false;
  // Mostly there is one at a time.
  TimerTask* one_ WF_GUARDED_BY(mutex_) = nullptr;
  Poller* poller_of_one_ WF_GUARDED_BY(mutex_) = nullptr;
  std::unordered_map<TimerTask*, Poller*> others_ WF_GUARDED_BY(mutex_);
};

}  // namespace workflow
