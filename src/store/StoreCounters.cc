#include "store/StoreCounters.h"

namespace workflow {

WFTimerStoreStats StoreCounters::snapshot() const {
  WFTimerStoreStats stats;
  stats.stored = stored.load(std::memory_order_relaxed);
  stats.due = due.load(std::memory_order_relaxed);
  stats.overdue = overdue.load(std::memory_order_relaxed);
  stats.unhandled = unhandled.load(std::memory_order_relaxed);
  stats.leased = leased.load(std::memory_order_relaxed);
  stats.failed_timers = failed_timers.load(std::memory_order_relaxed);
  stats.scheduled = scheduled.load(std::memory_order_relaxed);
  stats.cancelled = cancelled.load(std::memory_order_relaxed);
  stats.rescheduled = rescheduled.load(std::memory_order_relaxed);
  stats.begun = begun.load(std::memory_order_relaxed);
  stats.acknowledged = acknowledged.load(std::memory_order_relaxed);
  stats.retried = retried.load(std::memory_order_relaxed);
  stats.failed = failed.load(std::memory_order_relaxed);
  stats.missed = missed.load(std::memory_order_relaxed);
  stats.lost = lost.load(std::memory_order_relaxed);
  stats.in_doubt = in_doubt.load(std::memory_order_relaxed);
  stats.errors = errors.load(std::memory_order_relaxed);
  stats.lateness = lateness.snapshot();
  stats.group = group.snapshot();
  stats.request = request.snapshot();
  return stats;
}

}  // namespace workflow
