#include "util/FutexCondition.h"

#include "util/Futex.h"
#include "util/Time.h"

namespace workflow {

void FutexCondition::wait(FutexMutex& mutex) {
  wait_until(mutex, kNever);
}

bool FutexCondition::wait_until(FutexMutex& mutex, int64_t deadline_ns) {
  waiters_.fetch_add(1, std::memory_order_relaxed);
  const uint32_t seen = sequence_.load(std::memory_order_relaxed);
  mutex.unlock();
  const bool in_time = futex_wait(sequence_, seen, deadline_ns);
  mutex.lock();
  waiters_.fetch_sub(1, std::memory_order_relaxed);
  return in_time;
}

void FutexCondition::notify_one() {
  if (waiters_.load(std::memory_order_relaxed) == 0) return;
  sequence_.fetch_add(1, std::memory_order_relaxed);
  futex_wake_one(&sequence_);
}

void FutexCondition::notify_all() {
  if (waiters_.load(std::memory_order_relaxed) == 0) return;
  sequence_.fetch_add(1, std::memory_order_relaxed);
  futex_wake_all(&sequence_);
}

}  // namespace workflow
