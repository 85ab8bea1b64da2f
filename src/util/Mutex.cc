#include "util/Mutex.h"

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

}  // namespace

void lock_contended(std::mutex& mutex) {
  for (int attempt = 0; attempt < kAttempts; attempt++) {
    for (int i = 0; i < 1 << attempt; i++) {
      relax();
    }
    if (mutex.try_lock()) return;
  }
  mutex.lock();
}

}  // namespace workflow
