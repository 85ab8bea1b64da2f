#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace workflow {

// How a pool shares out its items, from what they and the sleeps of its workers took of late: how
// many items a worker takes at a time, whether it is worth while to wake another worker for those
// that wait, and whether a worker that finds nothing to do sleeps only for a moment.
//
// Knows neither clock nor threads. Not thread-safe: the mutex of the pool guards it.
//
// Invariants:
// 1. Items of which nothing is known count as long, so that each of them gets a thread at once.
// 2. What is taken at a time is expected to take at most kShareNs, and is one item at least.
// 3. If n items are not worth a thread, fewer are not either.
// 4. With hands_over(), items that are worth a thread are not better left to one.
class WorkPace {
 public:
  // About twice what it costs to wake a sleeping thread, on both sides together.
  static constexpr int64_t kShareNs = 20'000;
  static constexpr size_t kMaxShared = 64;
  // How long a nap is. The kernel adds about as much (timer slack, prctl(2)).
  static constexpr int64_t kNapNs = 50'000;

  // `items` were run one after the other and took `duration_ns` together.
  void ran(size_t items, int64_t duration_ns) {
    const int64_t average_ns = items == 1 ? duration_ns : duration_ns / static_cast<int64_t>(items);
    const int64_t each_ns = std::clamp<int64_t>(average_ns, 1, kLongNs);
    // Fast down, because one interruption of a thread makes its items look long, and slowly up.
    item_ns_ = each_ns < item_ns_ ? (item_ns_ + each_ns) / 2 : (3 * item_ns_ + each_ns) / 4;
  }
  // For virtual time, in which items take no time until something else is known. Workers steal
  // whatever there is.
  void assume_short() {
    item_ns_ = 1;
    steal_ns_ = 0;
    hands_over_ns_ = 0;
  }
  // To be called for a pool whose workers take one item at a time while several of them are awake.
  // From then on, items that run for less than kHandOverNs are not worth another thread.
  void hands_over() { hands_over_ns_ = kHandOverNs; }
  // Whether one worker alone should run the items, although others are awake.
  bool better_left_to_one() const { return item_ns_ < hands_over_ns_ / 2; }
  // An item keeps its worker, or all workers, for long.
  void stuck() { item_ns_ = kLongNs; }

  // Whether the next items that run should be measured. Reading the clock for each would cost more
  // than posting it. Short items are measured more rarely: it costs more in proportion, and if they
  // become long the supervisor notices.
  bool measures() { return shares_++ % (worth_a_thread(1) ? kMeasured : kShortMeasured) == 0; }

  // How many of `waiting` items one of `workers` that are awake takes at a time.
  size_t share(size_t waiting, size_t workers) const {
    if (waiting <= workers) {
      return 1;  // a chain of items comes here with each, and the divisions below take long
    }
    const auto in_time = static_cast<size_t>(kShareNs / item_ns_);
    const size_t fair = waiting / std::max<size_t>(workers, 1);
    return std::clamp<size_t>(std::min(in_time, fair), 1, kMaxShared);
  }

  // Whether another worker should be woken for that many items, although one is awake.
  bool worth_a_thread(size_t waiting) const {
    return waiting > 0 && item_ns_ >= hands_over_ns_ &&
           static_cast<int64_t>(std::min<size_t>(waiting, kLongNs)) * item_ns_ > kShareNs;
  }

  // Whether a worker that is awake and has nothing else to do should steal some of that many items.
  bool worth_stealing(size_t waiting) const {
    return static_cast<int64_t>(std::min(waiting, kMaxShared)) * item_ns_ > steal_ns_;
  }

  // Whether a worker that finds nothing to do should take a nap before it sleeps. No thread has to
  // wake it from a nap. True if at least kNapItems items waited when the last worker that was woken
  // looked, unless naps have not paid and this one is to be skipped.
  bool naps() {
    if (skipped_ > 0) {
      skipped_--;
      return false;
    }
    return woken_items_ >= kNapItems;
  }
  // A worker goes on: after a sleep, from which it was woken, after a nap, or after neither.
  enum class Rest { kNone, kSleep, kNap };
  void rested(Rest rest) { rested_ = rest; }
  // A worker has looked for work, and found so many items. If it is the first one after a rest, so
  // many have come meanwhile.
  void found(size_t items) {
    switch (std::exchange(rested_, Rest::kNone)) {
      case Rest::kNone:
        break;
      case Rest::kSleep:
        woken_items_ = items > 0 ? items : woken_items_;
        break;
      case Rest::kNap:
        napped(items);
        break;
    }
  }

 private:
  // If not many more items come in a nap than while a worker wakes up, then the threads that post
  // wait for what they have posted, and naps make them slower.
  void napped(size_t items) {
    const bool pays = items >= 2 * woken_items_;
    backoff_ = pays ? 0 : std::clamp(backoff_ * 2, kMinBackoff, kMaxBackoff);
    skipped_ = backoff_;
  }

  static constexpr int64_t kLongNs = 100'000;
  static constexpr uint64_t kMeasured = 4;
  static constexpr uint64_t kShortMeasured = 32;
  static constexpr int64_t kStealNs = 5'000;
  // The mutex of the pool and what it guards go to another core with each item that is taken there:
  // four or five lines of the cache, 100 ns each.
  static constexpr int64_t kHandOverNs = 500;
  static constexpr size_t kNapItems = 4;
  static constexpr int kMinBackoff = 16;
  static constexpr int kMaxBackoff = 1024;

  int64_t item_ns_ = kLongNs;
  int64_t steal_ns_ = kStealNs;
  int64_t hands_over_ns_ = 0;
  uint64_t shares_ = 0;
  Rest rested_ = Rest::kNone;  // of the worker that went on last, until found() uses it
  size_t woken_items_ = 0;
  int backoff_ = 0;
  int skipped_ = 0;
};

}  // namespace workflow
