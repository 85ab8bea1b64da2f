#pragma once

#include <cstdint>

#include "kernel/LendingCondition.h"
#include "util/Mutex.h"

namespace workflow {

// A number to wait for: waits end when it is not above zero. Thread-safe. A wait on a framework
// thread lends the thread meanwhile.
//
// Whoever calls add() keeps the object alive until it returns: a waiter may be awake before.
class Countdown {
 public:
  explicit Countdown(int n) : left_(n) {}
  Countdown(const Countdown&) = delete;
  Countdown& operator=(const Countdown&) = delete;

  void add(int n);

  // True if the number was not above zero at some moment since the call; false after `timeout_ns`.
  // Negative: no limit. `how`: the user's call, for the reports of a simulation.
  bool wait(int64_t timeout_ns, const char* how);

 private:
  Mutex mutex_;
  LendingCondition zero_;
  int64_t left_ WF_GUARDED_BY(mutex_);
  // How often the number came down to zero: a waiter that is slow to wake may find it above again.
  uint64_t arrivals_ WF_GUARDED_BY(mutex_) = 0;
};

}  // namespace workflow
