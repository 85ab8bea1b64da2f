#pragma once

#include <cstdint>
#include <limits>

namespace workflow {

// Time is int64 nanoseconds on CLOCK_MONOTONIC; the largest value means "never".
inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kNsPerUs = 1'000;
inline constexpr int64_t kNsPerMs = 1'000'000;
inline constexpr int64_t kNsPerSec = 1'000'000'000;

// now + delay for non-negative operands; kNever when it does not fit.
constexpr int64_t saturating_add(int64_t now_ns, int64_t delay_ns) {
  return delay_ns >= kNever - now_ns ? kNever : now_ns + delay_ns;
}

// The length of a relative time in ns; kNever when it does not fit.
// Requires seconds >= 0 and 0 <= nanoseconds < 1e9.
constexpr int64_t duration_ns(int64_t seconds, int64_t nanoseconds) {
  return seconds > (kNever - nanoseconds) / kNsPerSec ? kNever : seconds * kNsPerSec + nanoseconds;
}

// A time limit as users set it, in ms. Negative: no limit.
constexpr int64_t timeout_ns(int ms) {
  return ms < 0 ? kNever : ms * kNsPerMs;
}

// Returns the time of CLOCK_MONOTONIC (clock_gettime(2)).
int64_t monotonic_ns();

}  // namespace workflow
