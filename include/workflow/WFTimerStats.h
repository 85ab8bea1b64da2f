#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

// What has become of the timers of this process, named or not, since it began. Counting costs a
// timer some dozens of nanoseconds and stops nobody; so does a snapshot, which is no picture of one
// moment: each number is right at some time during the call. A child of fork(2) goes on from what
// its parent had counted.
struct WFTimerStats {
  uint64_t created = 0;
  // How they ended, counted when the callback begins:
  uint64_t fired = 0;      // SUCCESS; of a periodic timer, a tick has ended it
  uint64_t cancelled = 0;  // ECANCELED
  uint64_t aborted = 0;    // ABORTED
  uint64_t failed = 0;     // any other error
  uint64_t dropped = 0;    // without a callback: dismissed, or their series was cancelled
  // Created and not ended.
  uint64_t outstanding = 0;

  uint64_t ticks = 0;        // of periodic timers, whose end counts as any other's
  uint64_t rescheduled = 0;  // each time that it had effect

  // How long after their deadline ticks, and the callbacks of those that fired, began; not those of
  // periodic timers, which are due at no time.
  struct Lateness {
    static constexpr size_t kBuckets = 256;
    // Of the number of nanoseconds below 2^(i / 4) * (1 + (i % 4 + 1) / 4); each holds up to a
    // fifth more than the smallest of it.
    std::array<uint64_t, kBuckets> buckets{};
    uint64_t count = 0;
    std::chrono::nanoseconds sum{};
    std::chrono::nanoseconds max{};

    // The lateness that a fraction `part` of the callbacks, in (0, 1], did not exceed. The result
    // is up to a quarter too large. It is exactly `max` for 1, and 0 if there were no callbacks.
    std::chrono::nanoseconds percentile(double part) const;
  };
  Lateness lateness;

  // Of timers that fired, and of ticks.
  std::chrono::nanoseconds longest_callback{};

  // For a handler thread: the longest wait that was seen of what was handed to them, which is not
  // only timers; one in 16 batches is looked at.
  std::chrono::nanoseconds longest_handler_wait{};

  static WFTimerStats snapshot();

  // In the text format of Prometheus 0.0.4 (Content-Type: text/plain; version=0.0.4); names begin
  // with `prefix`.
  std::string to_prometheus(const std::string &prefix = "workflow_timers") const;
};
