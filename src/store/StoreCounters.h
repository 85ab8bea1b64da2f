#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "factory/LatenessBuckets.h"
#include "workflow/WFTimerStore.h"

namespace workflow {

// The counters behind WFTimerStoreStats. Thread-safe.
class StoreCounters {
 public:
  // A WFTimerStats::Lateness that threads add to.
  class Histogram {
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
    // All counters of this file are relaxed: they are numbers for reports, and publish nothing. A
    // snapshot that is taken while they change need not be consistent.
    std::array<std::atomic<uint64_t>, WFTimerStats::Lateness::kBuckets> buckets_{};
    std::atomic<double> sum_ns_{0};  // a double: a due time in 1970 is late by 2e18
    std::atomic<int64_t> max_ns_{0};
  };

  using Count = std::atomic<uint64_t>;
  Count stored{0};
  Count overdue{0};
  Count unhandled{0};
  Count failed_timers{0};
  Count scheduled{0};
  Count cancelled{0};
  Count rescheduled{0};
  Count begun{0};
  Count acknowledged{0};
  Count retried{0};
  Count failed{0};
  Count missed{0};
  Count lost{0};
  Count in_doubt{0};
  Count errors{0};
  Histogram lateness;
  Histogram commit;
  Histogram request;

  // All but `running`, which StoreRuns knows.
  WFTimerStoreStats snapshot() const;
};

}  // namespace workflow
