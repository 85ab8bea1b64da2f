#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>

namespace workflow {

// A length of time as the library's calls take it: any std::chrono::duration. Nanoseconds, rounded
// up; what is too long for them (some 292 years) is the longest there is, and not a number: so
// std::chrono::hours::max() is what it says.
class Duration {
 public:
  template <class REP, class PERIOD>
  Duration(const std::chrono::duration<REP, PERIOD> &duration) : ns_(to_ns(duration)) {}

  // May be negative; INT64_MAX: for ever.
  constexpr int64_t ns() const { return ns_; }
  // The same, where a negative one means the same as 0.
  constexpr int64_t positive_ns() const { return ns_ < 0 ? 0 : ns_; }
  // As the limits that are an int of milliseconds take it, rounded up: -1, unlimited, for negative
  // ones and for what does not fit.
  constexpr int timeout_ms() const {
    constexpr int64_t ns_per_ms = 1000000;
    const int64_t ms = ns_ / ns_per_ms + (ns_ % ns_per_ms > 0 ? 1 : 0);
    return ns_ < 0 || ms > INT32_MAX ? -1 : static_cast<int>(ms);
  }

 private:
  template <class REP, class PERIOD>
  static int64_t to_ns(const std::chrono::duration<REP, PERIOD> &duration) {
    // In the last hour that fits, so that no rounding of floating point gets beyond the end.
    constexpr double longest = 9.22337e9;
    const double seconds = std::chrono::duration<double>(duration).count();
    if (seconds > longest) return INT64_MAX;
    if (seconds < -longest) return -INT64_MAX;
    if (std::isnan(seconds)) return 0;
    return std::chrono::ceil<std::chrono::nanoseconds>(duration).count();
  }

  int64_t ns_;
};

}  // namespace workflow
