#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "workflow/WFTimerStats.h"

namespace workflow {

// The counters of WFTimerStats. The counters are divided into stripes, so that threads seldom share
// a cache line. snapshot() adds the stripes up.
//
// Thread-safe. There is one set of counters for the process, which is never destroyed.
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
  // Counts a task that ends with that outcome.
  static void add_end(int state, int error);
  // Counts a callback or tick that began `late_ns` after its deadline and took `took_ns`.
  static void add_callback(int64_t late_ns, int64_t took_ns);

  static WFTimerStats snapshot();

 private:
  static constexpr size_t kStripes = 16;

  // All are relaxed: they are numbers for reports, and publish nothing. A snapshot that is taken
  // while they change need not be consistent.
  struct alignas(64) Stripe {
    std::array<std::atomic<uint64_t>, kCounters> counts{};
    std::atomic<double> late_sum_ns{0};  // a double: a deadline in 1970 is late by 2e18
    std::atomic<int64_t> late_max_ns{0};
    std::atomic<int64_t> longest_ns{0};
    std::array<std::atomic<uint64_t>, WFTimerStats::Lateness::kBuckets> late{};
  };

  static Stripe& stripe();
  static std::array<Stripe, kStripes> stripes_;
};

}  // namespace workflow
