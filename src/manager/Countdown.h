#pragma once

#include <cstdint>

#include "kernel/LendingCondition.h"
#include "util/Mutex.h"

namespace workflow {

// A counter to wait for: a wait ends when the counter is not above zero. Thread-safe. A wait on a
// thread of the library lends the thread meanwhile.
//
// The caller of add() keeps the object alive until add() returns: a waiter may wake up before that.
class Countdown {
 public:
  explicit Countdown(int n) : left_(n) {}
  Countdown(const Countdown&) = delete;
  Countdown& operator=(const Countdown&) = delete;

  void add(int n);

  // Returns true when the counter was not above zero at some moment since the call, or false after
  // `timeout_ns`, or when the scope of the computation that calls this has ended. A negative
  // timeout means no limit. `how` names the user's call in the reports of a simulation.
  bool wait(int64_t timeout_ns, const char* how);

 private:
  class ScopeEnd;

  Mutex mutex_;
  LendingCondition zero_;
  int64_t left_ WF_GUARDED_BY(mutex_);
  // How often the counter came down to zero. A waiter that is slow to wake up may find it above
  // zero again.
  uint64_t arrivals_ WF_GUARDED_BY(mutex_) = 0;
};

}  // namespace workflow
