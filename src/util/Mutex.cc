#include "util/Mutex.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace workflow {

namespace {

constexpr int kSpins = 100;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Mutex::lock_contended() {
  for (int i = 0; i < kSpins; i++) {
    relax();
    if (mutex_.try_lock()) return;
  }
  mutex_.lock();
}

}  // namespace workflow
