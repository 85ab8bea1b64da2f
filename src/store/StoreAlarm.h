#pragma once

#include <functional>

#include "util/Mutex.h"
#include "workflow/WFTimer.h"

namespace workflow {

// A timer of the library that is set again and again. Its function runs on a handler.
//
// Thread-safe. The function may run once more, at the same time as close() or after it, so it must
// keep alive what it uses.
class StoreAlarm {
 public:
  // The function runs once at that time. If the alarm is set already it is moved, and keeps the
  // functions that it has: always give the same ones. Throws std::bad_alloc.
  // `lost` runs in its place if the timer has failed, for want of memory, and may run inside this
  // call.
  void set(const WFTimerDue& due, const std::function<void()>& expired,
           const std::function<void()>& lost);

  // It is not set any more, now and later.
  void close();

 private:
  Mutex mutex_;
  WFTimerHandle timer_ WF_GUARDED_BY(mutex_);
  bool closed_ WF_GUARDED_BY(mutex_) = false;
};

}  // namespace workflow
