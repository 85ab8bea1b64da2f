#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "factory/LatenessBuckets.h"
#include "workflow/WFTimerStats.h"

namespace workflow {

// A WFTimerStats::Lateness that threads add to. Thread-safe.
class StoreHistogram {
 public:
  void add(int64_t ns) {
    buckets_[lateness_bucket_of(ns)].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(static_cast<double>(std::max<int64_t>(ns, 0)), std::memory_order_relaxed);
    int64_t before = max_ns_.load(std::memory_order_relaxed);
    while (before < ns && !max_ns_.compare_exchange_weak(before, ns, std::memory_order_relaxed)) {
    }
  }
  WFTimerStats::Lateness snapshot() const {
    WFTimerStats::Lateness values;
    for (size_t i = 0; i < WFTimerStats::Lateness::kBuckets; i++) {
      values.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
      values.count += values.buckets[i];
    }
    constexpr double kMax = 9.2e18;
    values.sum = std::chrono::nanoseconds(
        static_cast<int64_t>(std::min(sum_ns_.load(std::memory_order_relaxed), kMax)));
    values.max = std::chrono::nanoseconds(max_ns_.load(std::memory_order_relaxed));
    return values;
  }

 private:
  // All counters are relaxed: they are numbers for reports, and publish nothing. A snapshot that is
  // taken while they change need not be consistent.
  std::array<std::atomic<uint64_t>, WFTimerStats::Lateness::kBuckets> buckets_{};
  std::atomic<double> sum_ns_{0};  // a double: a due time in 1970 is late by 2e18
  std::atomic<int64_t> max_ns_{0};
};

// What only a backend can measure. It is shared with the engine, which reports it. Thread-safe.
struct StoreTimes {
  // A file: each COMMIT of the engine's requests, until it has returned.
  StoreHistogram commit;
  // A Redis: each script, from when it was sent until its reply was there.
  StoreHistogram round_trip;
};

}  // namespace workflow
