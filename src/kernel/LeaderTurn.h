#pragma once

#include <algorithm>
#include <cstdint>

#include "util/Time.h"

namespace workflow {

// For how long a leader runs the callbacks of a round before it leaves the rest to the handler
// threads and polls again. Knows neither threads nor clocks. Not thread-safe.
//
// Invariants, if somebody asks after each callback:
// 1. A turn ends with the callback in which the leader has used a processor for `length_ns`. Time
//    that it has waited for one does not count: on a busy machine the handler threads would wait
//    for one, too. The time until the first look counts as kUnmeasuredNs, however long it was. That
//    look comes after the callback in which kUnmeasuredNs have passed.
// 2. After kPatienceNs a turn ends at the first look that finds that the leader has had a processor
//    for less than three quarters of the time, as far as that was counted: others may run what is
//    left while the callbacks sleep. From then on there is a look every kPatienceNs / 2 at least.
class LeaderTurn {
 public:
  // The length for a process with so many processors. With one, the handler threads could run what
  // is left only instead of the leader, and what the leader has in its cache would be fetched
  // again. The poller's timers and connections wait meanwhile, so there is a limit all the same.
  static constexpr int64_t length_ns(int processors) {
    return processors > 1 ? 500'000 : 10'000'000;
  }

  // Begins now.
  LeaderTurn(int64_t now_ns, int64_t length_ns)
      : length_ns_(length_ns), begin_ns_(now_ns), look_ns_(now_ns + kUnmeasuredNs) {}

  // Whether it is over. `cpu_ns` returns the processor time that the leader has used. It is called
  // rarely, because it is a system call.
  template <class CpuTime>
  bool is_over(int64_t now_ns, CpuTime cpu_ns) {
    if (now_ns < look_ns_) return false;
    const int64_t cpu_now_ns = cpu_ns();
    if (begin_cpu_ns_ == kNever) {
      begin_cpu_ns_ = cpu_now_ns - kUnmeasuredNs;
    }
    const int64_t used_ns = cpu_now_ns - begin_cpu_ns_;
    const int64_t passed_ns = now_ns - begin_ns_;
    const int64_t patience_ns = passed_ns < kPatienceNs ? kPatienceNs - passed_ns : kPatienceNs / 2;
    look_ns_ = now_ns + std::min(length_ns_ - used_ns, patience_ns);
    return used_ns >= length_ns_ || (passed_ns >= kPatienceNs && used_ns < passed_ns / 4 * 3);
  }

 private:
  static constexpr int64_t kPatienceNs = 2'000'000;
  static constexpr int64_t kUnmeasuredNs = 100'000;

  const int64_t length_ns_;
  const int64_t begin_ns_;
  int64_t look_ns_;  // when to look at the processor time
  // The processor time from which on it counts; kNever before the first look.
  int64_t begin_cpu_ns_ = kNever;
};

}  // namespace workflow
