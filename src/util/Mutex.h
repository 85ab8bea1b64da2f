#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "util/ThreadAnnotations.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"

namespace workflow {

// Locks a mutex that no simulation schedules. Before the thread sleeps it tries to lock for about
// as long as the library's critical sections last: to sleep and to be woken takes longer than that.
// A thread that was woken would often find that another one, which locks in a loop, was faster.
void lock_contended(std::mutex& mutex);
inline void lock_spinning(std::mutex& mutex) {
  if (!mutex.try_lock()) [[unlikely]] {
    lock_contended(mutex);
  }
}

// A mutex whose use the compiler checks and a simulation can schedule. Not recursive.
class WF_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() WF_ACQUIRE() {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->lock(this);
    } else {
      lock_spinning(mutex_);
    }
  }

  bool try_lock() WF_TRY_ACQUIRE(true) {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      return scheduler->try_lock(this);
    }
    return mutex_.try_lock();
  }

  void unlock() WF_RELEASE() {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->unlock(this);
    } else {
      mutex_.unlock();
    }
  }

  // For interfaces that let users lock the mutex too. A simulation does not see such a lock.
  std::mutex& native() { return mutex_; }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex for the lifetime of a scope. The mutex may be unlocked and locked again in between.
class WF_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) WF_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() WF_RELEASE() {
    if (held_) {
      mutex_.unlock();
    }
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() WF_RELEASE() {
    mutex_.unlock();
    held_ = false;
  }
  void lock() WF_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// Waits may wake spuriously: callers loop on their condition.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void wait(Mutex& mutex) WF_REQUIRES(mutex) {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->wait(this, &mutex, kNever);
      return;
    }
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // `deadline_ns` is on CLOCK_MONOTONIC (virtual time in a simulation); kNever waits for ever.
  // False when the deadline has passed.
  bool wait_until(Mutex& mutex, int64_t deadline_ns) WF_REQUIRES(mutex) {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      return scheduler->wait(this, &mutex, deadline_ns);
    }
    if (deadline_ns == kNever) {
      wait(mutex);
      return true;
    }
    const std::chrono::steady_clock::time_point deadline{std::chrono::nanoseconds(deadline_ns)};
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const std::cv_status status = condition_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }

  void notify_one() {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->notify(this, false);
    } else {
      condition_.notify_one();
    }
  }

  void notify_all() {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->notify(this, true);
    } else {
      condition_.notify_all();
    }
  }

 private:
  std::condition_variable condition_;
};

}  // namespace workflow
