#pragma once

#include <atomic>
#include <cstdint>

namespace workflow {

// futex(2) for the threads of this process. These functions keep errno: whoever locks a mutex may
// still need it.

// Sleeps as long as `word` has this value, until somebody wakes the thread or CLOCK_MONOTONIC has
// come to `deadline_ns`; kNever means no deadline. May also return without a reason. Returns false
// only if the deadline has passed.
bool futex_wait(const std::atomic<uint32_t>& word, uint32_t value, int64_t deadline_ns);

// Wake one thread, or all, that sleep at this address. The memory there may have been freed
// already, because it is not accessed.
void futex_wake_one(const std::atomic<uint32_t>* word);
void futex_wake_all(const std::atomic<uint32_t>* word);

}  // namespace workflow
