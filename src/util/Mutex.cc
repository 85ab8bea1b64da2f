#include "util/Mutex.h"

#include "util/Futex.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace workflow {

namespace {

// How often a thread tries to lock, and so how long it spins at most: 1 + 2 + ... + 64 pauses.
constexpr int kAttempts = 7;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns whether it has locked the mutex.
template <class MUTEX>
bool try_for_a_while(MUTEX& mutex) {
  for (int attempt = 0; attempt < kAttempts; attempt++) {
    for (int i = 0; i < 1 << attempt; i++) {
      relax();
    }
    if (mutex.try_lock()) return true;
  }
  return false;
}

}  // namespace

void lock_contended(std::mutex& mutex) {
  if (!try_for_a_while(mutex)) {
    mutex.lock();
  }
}

void FutexMutex::lock_contended() {
  if (try_for_a_while(*this)) return;
  while (word_.exchange(kContended, std::memory_order_acquire) != kFree) {
    futex_wait(word_, kContended, kNever);
  }
}

void FutexMutex::wake_one() {
  futex_wake_one(&word_);
}

}  // namespace workflow
