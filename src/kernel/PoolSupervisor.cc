#include "kernel/PoolSupervisor.h"

#include <utility>

#include "util/Time.h"

namespace workflow {

int64_t PoolSupervisor::begin_wait(uint64_t shares, int64_t now_ns) {
  if (std::exchange(rests_, false)) {
    seen_shares_ = shares;
    quiet_looks_ = 0;
    starved_since_ns_ = now_ns;
  }
  return is_looking() ? saturating_add(now_ns, kLookNs)
                      : saturating_add(starved_since_ns_, kStarvedNs);
}

PoolSupervisor::Findings PoolSupervisor::look(const View& view, int64_t now_ns) {
  looks_++;
  const bool is_quiet = std::exchange(seen_shares_, view.shares) == view.shares;
  if (!is_quiet) {
    starved_since_ns_ = now_ns;
  }
  Findings findings = {.are_items_long = is_quiet && view.work_waits};
  int room = view.work_waits && !view.has_idle_worker ? view.room : 0;
  if (room > 0 && now_ns - starved_since_ns_ >= kStarvedNs) {
    findings.starves = true;
    starved_since_ns_ = now_ns;
    room--;
  }
  const bool helps = view.keeps_items || (view.work_waits && view.has_idle_worker);
  quiet_looks_ = is_quiet && !helps ? quiet_looks_ + 1 : 0;
  if (helps || (is_looking() && quiet_looks_ < kQuietLooks)) {
    watched_ = Watch::kLooks;
  } else {
    watched_ = room > 0 ? Watch::kGrowth : Watch::kNone;
  }
  rests_ = watched_ == Watch::kNone;
  return findings;
}

}  // namespace workflow
