#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace fault {

// One call in so many is interrupted (EINTR); 0: none.
inline std::atomic<unsigned> interrupt_one_in{0};
inline std::atomic<int> interrupts{0};

// Whether this call is the one in so many; 0: never.
inline bool one_in(const std::atomic<unsigned>& n) {
  static std::atomic<uint32_t> state{1};
  const unsigned chance = n.load(std::memory_order_relaxed);
  if (chance == 0) return false;
  const uint32_t random = state.fetch_add(0x9e3779b9, std::memory_order_relaxed) * 0x85ebca6b;
  return (random >> 8) % chance == 0;
}

// Whether this call is to return -1 and EINTR.
inline bool is_interrupted_at_random() {
  if (!one_in(interrupt_one_in)) return false;
  interrupts++;
  errno = EINTR;
  return true;
}

}  // namespace fault
