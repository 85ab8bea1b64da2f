#pragma once

#include <chrono>
#include <cstdint>

namespace workflow {

// A length of time as the library's calls take it; any std::chrono::duration converts to it. It is
// in nanoseconds, rounded up. A duration that is too long for them (some 292 years) becomes the
// longest one, without overflow, so std::chrono::hours::max() means what it says.
class Duration {
 public:
  template <class REP, class PERIOD>
  Duration(const std::chrono::duration<REP, PERIOD> &duration) : ns_(to_ns(duration)) {}

  // May be negative. INT64_MAX means for ever.
  constexpr int64_t ns() const { return ns_; }
  // Returns what ns() does, but 0 for negative durations.
  constexpr int64_t positive_ns() const { return ns_ < 0 ? 0 : ns_; }
  // In milliseconds, rounded up, for limits that are an int. Negative durations, and durations that
  // do not fit, become -1, which means unlimited.
  constexpr int timeout_ms() const {
    constexpr int64_t ns_per_ms = 1000000;
    const int64_t ms = ns_ / ns_per_ms + (ns_ % ns_per_ms > 0 ? 1 : 0);
    return ns_ < 0 || ms > INT32_MAX ? -1 : static_cast<int>(ms);
  }
  // The same for a limit that is given as an int: every negative one becomes -1.
  static constexpr int timeout_ms(int ms) { return ms < 0 ? -1 : ms; }

 private:
  template <class REP, class PERIOD>
  static int64_t to_ns(const std::chrono::duration<REP, PERIOD> &duration) {
    // In the last hour that fits into 64 bits, so that rounding of floating point stays within the
    // range.
    constexpr double longest = 9.22337e9;
    const double seconds = std::chrono::duration<double>(duration).count();
    if (seconds > longest) return INT64_MAX;
    if (seconds < -longest) return -INT64_MAX;
    if (seconds != seconds) return 0;  // not a number
    return std::chrono::ceil<std::chrono::nanoseconds>(duration).count();
  }

  int64_t ns_;
};

}  // namespace workflow
