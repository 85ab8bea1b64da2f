#include "util/Futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>

#include "util/Time.h"

namespace workflow {

namespace {

void wake(const std::atomic<uint32_t>* word, int count) {
  const int error_before = errno;  // nothing need be there
  ::syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
  errno = error_before;
}

}  // namespace

bool futex_wait(const std::atomic<uint32_t>& word, uint32_t value, int64_t deadline_ns) {
  const int64_t at_ns = std::max<int64_t>(deadline_ns, 0);
  const timespec deadline = {at_ns / kNsPerSec, at_ns % kNsPerSec};
  const int error_before = errno;
  // With a set of bits, the time is that of the clock and not a span.
  const long result =
      ::syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, value,
                deadline_ns == kNever ? nullptr : &deadline, nullptr, FUTEX_BITSET_MATCH_ANY);
  const bool in_time = result == 0 || errno != ETIMEDOUT;
  errno = error_before;
  return in_time;
}

void futex_wake_one(const std::atomic<uint32_t>* word) {
  wake(word, 1);
}

void futex_wake_all(const std::atomic<uint32_t>* word) {
  wake(word, INT_MAX);
}

}  // namespace workflow
