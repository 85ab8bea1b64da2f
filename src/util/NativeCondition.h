#pragma once

#include "util/FutexCondition.h"
#include "workflow/detail/FutexMutex.h"

#ifdef WORKFLOW_STD_MUTEX
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "util/Time.h"
#endif

namespace workflow {

// The condition variable for a NativeMutex.
#ifdef WORKFLOW_STD_MUTEX
class NativeCondition {
 public:
  void wait(std::mutex& mutex) { wait_until(mutex, kNever); }
  // As FutexCondition::wait_until().
  bool wait_until(std::mutex& mutex, int64_t deadline_ns) {
    std::unique_lock<std::mutex> lock(mutex, std::adopt_lock);
    std::cv_status status = std::cv_status::no_timeout;
    if (deadline_ns == kNever) {
      condition_.wait(lock);
    } else {
      const std::chrono::nanoseconds deadline(deadline_ns);
      status = condition_.wait_until(lock, std::chrono::steady_clock::time_point(deadline));
    }
    lock.release();
    return status == std::cv_status::no_timeout;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};
#else
using NativeCondition = FutexCondition;
#endif

}  // namespace workflow
