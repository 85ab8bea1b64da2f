#pragma once

#include <cstdint>
#include <mutex>

#include "util/NativeCondition.h"
#include "util/ThreadAnnotations.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"
#include "workflow/detail/FutexMutex.h"

namespace workflow {

// Locks a mutex that no simulation schedules. Before the thread sleeps it tries for a while, see
// FutexMutex::lock().
inline void lock_spinning(FutexMutex& mutex) {
  mutex.lock();
}
void lock_contended(std::mutex& mutex);
inline void lock_spinning(std::mutex& mutex) {
  if (!mutex.try_lock()) [[unlikely]] {
    lock_contended(mutex);
  }
}

// A mutex whose use the compiler checks and a simulation can schedule. Not recursive.
template <class NATIVE>
class WF_CAPABILITY("mutex") BasicMutex {
 public:
  BasicMutex() = default;
  BasicMutex(const BasicMutex&) = delete;
  BasicMutex& operator=(const BasicMutex&) = delete;

  void lock() WF_ACQUIRE() {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->lock(this);
    } else {
      lock_spinning(native_);
    }
  }

  bool try_lock() WF_TRY_ACQUIRE(true) {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      return scheduler->try_lock(this);
    }
    return native_.try_lock();
  }

  void unlock() WF_RELEASE() {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->unlock(this);
    } else {
      native_.unlock();
    }
  }

  // A simulation does not see what is done to this one.
  NATIVE& native() { return native_; }

 private:
  NATIVE native_;
};

// The library's own locks.
using Mutex = BasicMutex<NativeMutex>;
// For interfaces that let users lock the mutex too.
using UserMutex = BasicMutex<std::mutex>;

// Holds a mutex for the lifetime of a scope. The mutex may be unlocked and locked again in between.
template <class MUTEX>
class WF_SCOPED_CAPABILITY BasicLock {
 public:
  explicit BasicLock(MUTEX& mutex) WF_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~BasicLock() WF_RELEASE() {
    if (held_) {
      mutex_.unlock();
    }
  }
  BasicLock(const BasicLock&) = delete;
  BasicLock& operator=(const BasicLock&) = delete;

  void unlock() WF_RELEASE() {
    mutex_.unlock();
    held_ = false;
  }
  void lock() WF_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  MUTEX& mutex_;
  bool held_ = true;
};
using MutexLock = BasicLock<Mutex>;
using UserLock = BasicLock<UserMutex>;

// Locks and unlocks the mutex of a public header, which is no Mutex, so that a simulation can
// schedule it all the same.
class NativeLock {
 public:
  explicit NativeLock(NativeMutex& mutex) : mutex_(mutex) {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->lock(&mutex_);
    } else {
      lock_spinning(mutex_);
    }
  }
  ~NativeLock() {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->unlock(&mutex_);
    } else {
      mutex_.unlock();
    }
  }
  NativeLock(const NativeLock&) = delete;
  NativeLock& operator=(const NativeLock&) = delete;

 private:
  NativeMutex& mutex_;
};

// The current time on the clock of CondVar::wait_until().
inline int64_t wait_now_ns() {
  VirtualScheduler* const scheduler = VirtualScheduler::current();
  return scheduler ? scheduler->now_ns() : monotonic_ns();
}

// Waits may wake spuriously: callers loop on their condition.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void wait(Mutex& mutex) WF_REQUIRES(mutex) {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->wait(this, &mutex, kNever);
    } else {
      native_.wait(mutex.native());
    }
  }

  // `deadline_ns` is on CLOCK_MONOTONIC (virtual time in a simulation); kNever waits for ever.
  // False when the deadline has passed.
  bool wait_until(Mutex& mutex, int64_t deadline_ns) WF_REQUIRES(mutex) {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      return scheduler->wait(this, &mutex, deadline_ns);
    }
    return native_.wait_until(mutex.native(), deadline_ns);
  }

  void notify_one() {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->notify(this, false);
    } else {
      native_.notify_one();
    }
  }

  void notify_all() {
    if (VirtualScheduler* scheduler = VirtualScheduler::current()) [[unlikely]] {
      scheduler->notify(this, true);
    } else {
      native_.notify_all();
    }
  }

 private:
  NativeCondition native_;
};

}  // namespace workflow
