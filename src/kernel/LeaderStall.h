#pragma once

#include <algorithm>
#include <cstdint>

#include "util/Time.h"

namespace workflow {

// What the watch has seen of one leader, and whether that has to be replaced because an item holds
// it up. Knows neither threads nor clocks. Not thread-safe.
//
// A `Leader` has these members of LeaderThreads: callback_epoch(), item_begin_ns(), cpu_ns() and
// sleeps().
//
// Invariants, if somebody looks when next_look_ns() says:
// 1. A leader is replaced only in an item that has run for kLongNs, and that two looks have found.
// 2. It is replaced by kLookNs + kMeasuredNs after the item has begun, if since the first of these
//    looks it has had a processor nearly all the time, or if it sleeps.
// 3. A leader that has to wait for a processor is replaced when it has used kLongNs of it since the
//    first of these looks. On a busy machine another thread would only wait beside it.
class LeaderStall {
 public:
  static constexpr int64_t kLookNs = 500'000;
  static constexpr int64_t kLongNs = 500'000;
  // Shorter times of a processor say little.
  static constexpr int64_t kMeasuredNs = 100'000;

  // Looks at the leader. Returns whether it has to be replaced in the item that it runs.
  template <class Leader>
  bool look(const Leader& leader, int64_t now_ns) {
    const uint64_t item = leader.callback_epoch();
    const bool is_new = item != seen_;
    next_look_ns_ = saturating_add(now_ns, kLookNs);
    seen_ = item;
    if (item == 0) return false;
    if (is_new) {
      seen_ns_ = now_ns;
      seen_cpu_ns_ = leader.cpu_ns();
      // A watch that comes late finds long items although nobody was held up: where processors are
      // scarce, the leader had to wait as well.
      const bool is_late = now_ns - leader.item_begin_ns() > kLookNs + kMeasuredNs;
      decide_ns_ = is_late ? now_ns + kLongNs
                           : std::max(leader.item_begin_ns() + kLongNs, now_ns + kMeasuredNs);
    }
    if (now_ns < decide_ns_) {
      next_look_ns_ = std::min(next_look_ns_, decide_ns_);
      return false;
    }
    const int64_t nearly_all_ns = (now_ns - seen_ns_) / 4 * 3;
    return leader.cpu_ns() - seen_cpu_ns_ >= std::min(nearly_all_ns, kLongNs) || leader.sleeps();
  }

  // Whether the last look has found it in an item.
  bool is_absent() const { return seen_ != 0; }
  // When to look again at the latest.
  int64_t next_look_ns() const { return next_look_ns_; }

 private:
  uint64_t seen_ = 0;  // callback_epoch() at the last look
  int64_t next_look_ns_ = 0;
  // If it was in an item: when a look first found it there, and its processor time then.
  int64_t seen_ns_ = 0;
  int64_t seen_cpu_ns_ = 0;
  int64_t decide_ns_ = 0;  // when it is to be judged
};

}  // namespace workflow
