#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "workflow/WFTimerStats.h"

namespace workflow {

// The counters of WFTimerStats. Threads have stripes of their own, so that they seldom share a
// cache line; who reads adds them up.
//
// Thread-safe. For the process, and never destroyed.
class TimerCounters {
 public:
  enum Counter {
    kCreated,
    kFired,
    kCancelled,
    kAborted,
    kFailed,
    kDropped,
    kTicks,
    kRescheduled,
    kCounters
  };

  static void add(Counter counter, uint64_t n = 1) {
    stripe().counts[counter].fetch_add(n, std::memory_order_relaxed);
  }
  // Of a task that ends with that outcome.
  static void add_end(int state, int error);
  // A callback, or tick, began that much after its deadline, and took that long.
  static void add_callback(int64_t late_ns, int64_t took_ns);

  static WFTimerStats snapshot();

 private:
  static constexpr size_t kStripes = 16;

  struct alignas(64) Stripe {
    std::array<std::atomic<uint64_t>, kCounters> counts{};
    std::atomic<double> late_sum_ns{0};  // a date of 1970 is late by 2e18
    std::atomic<int64_t> late_max_ns{0};
    std::atomic<int64_t> longest_ns{0};
    std::array<std::atomic<uint64_t>, WFTimerStats::Lateness::kBuckets> late{};
  };

  static Stripe& stripe();
  static std::array<Stripe, kStripes> stripes_;
};

}  // namespace workflow
