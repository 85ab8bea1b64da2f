#include "factory/TickSchedule.h"

#include "util/Time.h"

namespace workflow {

TickSchedule::Next EvenTicks::next(int64_t due_ns, int64_t now_ns) {
  const int64_t on_time_ns = saturating_add(due_ns, every_ns_);
  if (pace_ == WF_TIMER_FIXED_DELAY) {
    return {saturating_add(now_ns, every_ns_), 0};
  }
  if (on_time_ns > now_ns || pace_ == WF_TIMER_BURST) {
    return {on_time_ns, 0};
  }
  const int64_t missed = (now_ns - due_ns) / every_ns_;
  if (pace_ == WF_TIMER_DELAY) {
    return {saturating_add(now_ns, every_ns_), static_cast<uint64_t>(missed)};
  }
  return {saturating_add(due_ns + missed * every_ns_, every_ns_), static_cast<uint64_t>(missed)};
}

}  // namespace workflow
