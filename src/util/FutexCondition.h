#pragma once

#include <atomic>
#include <cstdint>

#include "workflow/detail/FutexMutex.h"

namespace workflow {

// A condition variable for a FutexMutex.
//
// Thread-safe. Waits may end without a reason. A thread must hold the waiters' mutex when it
// changes what they wait for, and may unlock it before it notifies them. The condition must not be
// destroyed before the last wait and the last notify have returned.
//
// Invariants.
// 1. A waiter counts itself and reads `sequence_` while it holds the mutex. So whoever changes
//    something after it has looked, and then notifies, finds it counted.
// 2. A thread that finds waiters changes `sequence_` before it wakes one. So a waiter that does not
//    sleep yet will not sleep: the value that it has read is out of date.
class FutexCondition {
 public:
  constexpr FutexCondition() = default;
  FutexCondition(const FutexCondition&) = delete;
  FutexCondition& operator=(const FutexCondition&) = delete;

  void wait(FutexMutex& mutex);
  // `deadline_ns` is on CLOCK_MONOTONIC. Returns false if it has passed.
  bool wait_until(FutexMutex& mutex, int64_t deadline_ns);
  void notify_one();
  void notify_all();

 private:
  // Both are relaxed: the mutex orders them. What a notifying thread reads of `waiters_` is no
  // older than what was there when it held the mutex. futex(2) compares `sequence_` with the value
  // that the waiter has read as one step with its going to sleep, and the wake-up comes after the
  // change: so a waiter either sees the change or is woken.
  std::atomic<uint32_t> sequence_{0};
  std::atomic<uint32_t> waiters_{0};
};

}  // namespace workflow
