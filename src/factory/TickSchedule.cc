#include "factory/TickSchedule.h"

#include <chrono>

#include "util/Time.h"

namespace workflow {

TickSchedule::Next EvenTicks::next(int64_t due_ns, int64_t now_ns) {
  const int64_t on_time_ns = saturating_add(due_ns, every_ns_);
  if (pace_ == WF_TIMER_FIXED_DELAY) return {saturating_add(now_ns, every_ns_), 0};
  if (on_time_ns > now_ns || pace_ == WF_TIMER_BURST) return {on_time_ns, 0};
  const int64_t missed = (now_ns - due_ns) / every_ns_;
  if (pace_ == WF_TIMER_DELAY) {
    return {saturating_add(now_ns, every_ns_), static_cast<uint64_t>(missed)};
  }
  return {saturating_add(due_ns + missed * every_ns_, every_ns_), static_cast<uint64_t>(missed)};
}

int64_t CronTicks::after(int64_t time_ns) const {
  using std::chrono::duration_cast;
  using std::chrono::nanoseconds;
  const auto time = duration_cast<WFCron::TimePoint::duration>(nanoseconds(time_ns));
  const std::optional<WFCron::TimePoint> next = cron_.next(WFCron::TimePoint(time));
  return next ? duration_cast<nanoseconds>(next->time_since_epoch()).count() : kNever;
}

TickSchedule::Next CronTicks::next(int64_t due_ns, int64_t now_ns) {
  Next next{after(due_ns), 0};
  while (next.due_ns <= now_ns && next.missed < kMaxMissed) {
    next.due_ns = after(next.due_ns);
    next.missed++;
  }
  if (next.due_ns <= now_ns) {
    next.due_ns = after(now_ns);
  }
  return next;
}

}  // namespace workflow
