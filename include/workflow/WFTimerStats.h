#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

// Counters of all timers of this process, named or not, since it began. Counting costs a timer some
// dozens of nanoseconds and never makes a thread wait. A snapshot stops no thread either, so its
// numbers are not from one instant: each is right at some time during the call. A child of fork(2)
// continues from its parent's counts.
struct WFTimerStats {
  uint64_t created = 0;
  // How timers ended. A timer is counted when its callback begins.
  uint64_t fired = 0;      // SUCCESS; a periodic timer: ended by a tick
  uint64_t cancelled = 0;  // ECANCELED
  uint64_t aborted = 0;    // ABORTED
  uint64_t failed = 0;     // any other error
  uint64_t dropped = 0;    // without a callback: dismissed, or their series was cancelled
  // Timers that were created and have not ended.
  uint64_t outstanding = 0;

  uint64_t ticks = 0;        // of periodic timers; their ends are counted above
  uint64_t rescheduled = 0;  // reschedule calls that took effect

  // How long after their deadlines ticks, and the callbacks of timers that fired, began. Callbacks
  // of periodic timers are not included, because they have no deadline.
  struct Lateness {
    static constexpr size_t kBuckets = 256;
    // There are four buckets for each power of two. Bucket `i` = 4 * k + j, with 0 <= j <= 3,
    // counts the latenesses below 2^k * (5 + j) / 4 nanoseconds that are in no earlier bucket. The
    // end of a bucket is at most a quarter above its beginning.
    std::array<uint64_t, kBuckets> buckets{};
    uint64_t count = 0;
    std::chrono::nanoseconds sum{};
    std::chrono::nanoseconds max{};

    // Returns the lateness that a fraction `q` of the callbacks did not exceed. `q` is in (0, 1]:
    // 0.5 is for the median and 0.99 for the 99th percentile. The result is up to a quarter too
    // large. It is exactly `max` if `q` is 1, and 0 if there were no callbacks.
    std::chrono::nanoseconds quantile(double q) const;
    // Another name of quantile(), which takes a fraction as well.
    std::chrono::nanoseconds percentile(double q) const { return quantile(q); }
  };
  Lateness lateness;

  // The longest run of a callback of a timer that fired, or of a tick.
  std::chrono::nanoseconds longest_callback{};

  // The longest time for which an item handed to the handler threads was seen to wait. This
  // includes more than timers. Only one in 16 batches is measured.
  std::chrono::nanoseconds longest_handler_wait{};

  static WFTimerStats snapshot();

  // The counters in the text format of Prometheus 0.0.4 (Content-Type: text/plain; version=0.0.4).
  // The names begin with `prefix`.
  std::string to_prometheus(const std::string &prefix = "workflow_timers") const;
};
