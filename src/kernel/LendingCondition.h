#pragma once

#include <cstdint>

#include "kernel/Activity.h"
#include "kernel/BlockingScope.h"
#include "util/Mutex.h"

namespace workflow {

// A condition variable. While a thread of the library waits on it, another one works in its place
// (see BlockingScope).
//
// A waiter counts as blocked from the moment it begins to wait, under the mutex, until it is
// notified, although it wakes later. So a thread that checks whether anything can still happen
// (ManualClock) never overlooks a waiter that was notified.
class LendingCondition {
 public:
  // A thread that is going to wait. Must be created before the mutex is locked.
  class Waiter {
   public:
    explicit Waiter(const WaitNote& note = {}) : note_(note), scope_(BlockingScope::kLater) {}

   private:
    friend class LendingCondition;
    const WaitNote note_;
    BlockingScope scope_;
    Waiter* next_ = nullptr;
  };

  LendingCondition() = default;
  LendingCondition(const LendingCondition&) = delete;
  LendingCondition& operator=(const LendingCondition&) = delete;

  // As CondVar::wait_until(). All calls must use the same mutex.
  bool wait_until(Mutex& mutex, Waiter& waiter, int64_t deadline_ns) WF_REQUIRES(mutex);
  void wait(Mutex& mutex, Waiter& waiter) WF_REQUIRES(mutex) { wait_until(mutex, waiter, kNever); }

  // To be called with the mutex held.
  void notify_all();

 private:
  // Ends the wait of `waiter` unless it was notified.
  void stop_waiting(Waiter& waiter);

  CondVar changed_;
  Waiter* waiting_ = nullptr;  // guarded by the mutex
};

}  // namespace workflow
