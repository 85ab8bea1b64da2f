#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "util/Time.h"

namespace workflow {

// Decides how many threads of a pool have to end: those that were removed, and those that were
// spare for long. The surplus is the number of threads beyond those that are configured, blocked or
// written off. If it is positive, so many are spare; it is negative if threads could not be
// started. Knows neither clock, lock nor threads: times are passed in, and so is the surplus.
//
// Owned by a WorkerPool, whose mutex guards it. Until it stops, the pool reports whenever the
// surplus falls.
//
// Invariants:
// 1. The number of threads that have to end is at most the surplus, or 0. So is least_spare_.
// 2. Spare threads are counted for kSpareNs at a time. At the end of a count, at least as many have
//    to end as were spare and idle throughout it. So a thread ends kSpareNs to twice that after it
//    was needed last, if count() is called in time.
class SpareCount {
 public:
  static constexpr int64_t kSpareNs = 5'000'000'000;

  // The surplus is one less now. Threads that are needed do not end.
  void fell(int surplus) {
    const int spare = std::max(surplus, 0);
    least_spare_ = std::min(least_spare_, spare);
    leaving_ = std::min(leaving_, spare);
  }
  // One thread more is configured. If one had to end, it stays.
  void added(int surplus) {
    leaving_ = std::max(leaving_ - 1, 0);
    fell(surplus);
  }
  // One thread less is configured, so one has to end.
  void removed(int surplus) {
    leaving_++;
    fell(surplus);
  }
  // A thread has taken work, and so many others are idle.
  void took_work(int idle) { least_idle_ = std::min(least_idle_, idle); }

  // To be called by a thread that has nothing to do, before one_leaves(), while the surplus is
  // positive. It is one of the `idle` threads. Ends a count that has gone on for kSpareNs, and
  // begins the next one.
  void count(int surplus, int idle, int64_t now_ns) {
    if (now_ns < ends_ns_) return;
    leaving_ = std::max(leaving_, std::min({least_spare_, least_idle_, idle}));
    ends_ns_ = saturating_add(now_ns, kSpareNs);
    least_idle_ = std::numeric_limits<int>::max();
    least_spare_ = surplus;
  }
  // When a thread that is idle must call count() again, if the surplus is positive.
  int64_t count_ends_ns() const { return ends_ns_; }
  // Whether the calling thread, which has nothing to do, has to end. If this is true it does, so
  // that the surplus is one less.
  bool one_leaves(int surplus) {
    if (leaving_ == 0) return false;
    leaving_--;
    fell(surplus - 1);
    return true;
  }

 private:
  int leaving_ = 0;      // how many threads have to end
  int64_t ends_ns_ = 0;  // when the count ends
  int least_spare_ = 0;  // the least surplus since it began, or 0
  int least_idle_ = 0;   // the least number of idle threads when one has taken work since then
};

}  // namespace workflow
