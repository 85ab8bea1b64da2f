#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace workflow {

// A mutex in one word, on futex(2): U. Drepper, "Futexes Are Tricky" (2011), section 6. To lock and
// to unlock it without contention is one atomic operation each, inlined, which takes two thirds of
// the time of a std::mutex. Not recursive, not fair. It knows no owner, so the child of a fork(2)
// may unlock what its parent has locked.
//
// Thread-safe. The thread that unlocks it may be the last that uses it: another one may destroy the
// mutex as soon as it could lock it. An unlock() that is not over by then uses no more than the
// address, for a system call that finds nobody there.
//
// Invariants. The word has one of three values.
// 1. kFree: no thread holds the mutex. A thread takes it by changing the word to another value.
// 2. kHeld: a thread holds it, and no thread sleeps that nobody has promised to wake.
// 3. kContended: a thread holds it, and others may sleep. The thread that unlocks it wakes one.
// 4. A thread sleeps only while the word is kContended, and whoever has slept takes the mutex by
//    kContended: there may be others that sleep. So as long as a thread sleeps, the word is
//    kContended, or a thread that was woken is on its way to make it so.
class FutexMutex {
 public:
  constexpr FutexMutex() = default;
  FutexMutex(const FutexMutex &) = delete;
  FutexMutex &operator=(const FutexMutex &) = delete;

  bool try_lock() {
    uint32_t free = kFree;
    return word_.compare_exchange_strong(free, kHeld, std::memory_order_acquire,
                                         std::memory_order_relaxed);
  }

  // Before the thread sleeps, it tries for about as long as the library holds a mutex: to sleep and
  // to be woken takes longer than that.
  void lock() {
    if (!try_lock()) {
      lock_contended();
    }
  }

  void unlock() {
    if (word_.exchange(kFree, std::memory_order_release) == kContended) {
      wake_one();
    }
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kHeld = 1;
  static constexpr uint32_t kContended = 2;

  void lock_contended();
  void wake_one();

  // Acquire when the mutex is taken and release when it is given back: what a thread has written
  // while it held the mutex is seen by the next one that holds it. A failed attempt orders nothing.
  std::atomic<uint32_t> word_{kFree};
};

// The mutex of the library's own locks. WORKFLOW_STD_MUTEX, which the build sets for the library
// and for all that use it, is for tools that watch the functions of POSIX threads: ThreadSanitizer
// and Helgrind find locks that are taken in different orders, and script/jitter makes threads late
// there.
#ifdef WORKFLOW_STD_MUTEX
using NativeMutex = std::mutex;
#else
using NativeMutex = FutexMutex;
#endif

}  // namespace workflow
