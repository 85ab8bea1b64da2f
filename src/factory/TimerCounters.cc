#include "factory/TimerCounters.h"

#include <algorithm>
#include <cerrno>

#include "factory/LatenessBuckets.h"
#include "factory/PrometheusText.h"
#include "kernel/HandlerPool.h"
#include "workflow/WFTaskState.h"

namespace workflow {

namespace {

using Lateness = WFTimerStats::Lateness;

void raise(std::atomic<int64_t>& most, int64_t value) {
  int64_t before = most.load(std::memory_order_relaxed);
  while (before < value && !most.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

constinit std::array<TimerCounters::Stripe, TimerCounters::kStripes> TimerCounters::stripes_;

TimerCounters::Stripe& TimerCounters::stripe() {
  // Relaxed: it publishes nothing, and only spreads the threads over the stripes.
  static std::atomic<size_t> threads{0};
  static thread_local Stripe& mine =
      stripes_[threads.fetch_add(1, std::memory_order_relaxed) % kStripes];
  return mine;
}

void TimerCounters::add_end(int state, int error) {
  switch (state) {
    case WFT_STATE_SUCCESS:
      add(kFired);
      break;
    case WFT_STATE_ABORTED:
      add(kAborted);
      break;
    default:
      add(error == ECANCELED ? kCancelled : kFailed);
  }
}

void TimerCounters::add_callback(int64_t late_ns, int64_t took_ns) {
  Stripe& mine = stripe();
  mine.late[lateness_bucket_of(late_ns)].fetch_add(1, std::memory_order_relaxed);
  mine.late_sum_ns.fetch_add(static_cast<double>(std::max<int64_t>(late_ns, 0)),
                             std::memory_order_relaxed);
  raise(mine.late_max_ns, late_ns);
  raise(mine.longest_ns, took_ns);
}

WFTimerStats TimerCounters::snapshot() {
  WFTimerStats stats;
  std::array<uint64_t, kCounters> sums{};
  double sum_ns = 0;
  int64_t max_ns = 0;
  int64_t longest_ns = 0;
  // Reads the ends before kCreated, because a timer is created before it ends. So the sum seldom
  // has an end without its creation.
  for (size_t counter = kCounters; counter-- > 0;) {
    for (const Stripe& stripe : stripes_) {
      sums[counter] += stripe.counts[counter].load(std::memory_order_relaxed);
    }
  }
  for (const Stripe& stripe : stripes_) {
    for (size_t i = 0; i < Lateness::kBuckets; i++) {
      const uint64_t count = stripe.late[i].load(std::memory_order_relaxed);
      stats.lateness.buckets[i] += count;
      stats.lateness.count += count;
    }
    sum_ns += stripe.late_sum_ns.load(std::memory_order_relaxed);
    max_ns = std::max(max_ns, stripe.late_max_ns.load(std::memory_order_relaxed));
    longest_ns = std::max(longest_ns, stripe.longest_ns.load(std::memory_order_relaxed));
  }
  stats.created = sums[kCreated];
  stats.fired = sums[kFired];
  stats.cancelled = sums[kCancelled];
  stats.aborted = sums[kAborted];
  stats.failed = sums[kFailed];
  stats.dropped = sums[kDropped];
  stats.ticks = sums[kTicks];
  stats.rescheduled = sums[kRescheduled];
  const uint64_t ended =
      stats.fired + stats.cancelled + stats.aborted + stats.failed + stats.dropped;
  stats.outstanding = stats.created > ended ? stats.created - ended : 0;
  constexpr double kMax = 9.2e18;
  stats.lateness.sum = std::chrono::nanoseconds(static_cast<int64_t>(std::min(sum_ns, kMax)));
  stats.lateness.max = std::chrono::nanoseconds(max_ns);
  stats.longest_callback = std::chrono::nanoseconds(longest_ns);
  stats.longest_handler_wait = std::chrono::nanoseconds(HandlerPool::longest_wait_ns());
  return stats;
}

}  // namespace workflow

using workflow::PrometheusText;
using workflow::TimerCounters;

WFTimerStats WFTimerStats::snapshot() {
  return TimerCounters::snapshot();
}

std::chrono::nanoseconds WFTimerStats::Lateness::quantile(double q) const {
  if (count == 0) return std::chrono::nanoseconds(0);
  const double wanted = q * static_cast<double>(count);
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; i++) {
    seen += buckets[i];
    if (seen > 0 && static_cast<double>(seen) >= wanted) {
      const double end_ns = workflow::end_of_lateness_bucket(i);
      return end_ns < static_cast<double>(max.count())
                 ? std::chrono::nanoseconds(static_cast<int64_t>(end_ns))
                 : max;
    }
  }
  return max;
}

std::string WFTimerStats::to_prometheus(const std::string& prefix) const {
  PrometheusText text(prefix);
  const auto seconds_of = [](std::chrono::nanoseconds time) {
    return PrometheusText::seconds(static_cast<double>(time.count()));
  };
  text.count("_created_total", "Timers created.", created);
  text.head("_ended_total", "counter", "Timers that have ended, by how.");
  const auto ended = [&text](const char* how, uint64_t n) {
    text.line("_ended_total", "how=\"" + std::string(how) + "\"", std::to_string(n));
  };
  ended("fired", fired);
  ended("cancelled", cancelled);
  ended("aborted", aborted);
  ended("failed", failed);
  ended("dropped", dropped);
  text.gauge("_outstanding", "Timers created and not ended.", outstanding);
  text.count("_ticks_total", "Ticks of periodic timers.", ticks);
  text.count("_rescheduled_total", "Times a timer was rescheduled.", rescheduled);
  text.value("_longest_callback_seconds", "gauge", "The longest callback or tick so far.",
             seconds_of(longest_callback));
  text.value("_longest_handler_wait_seconds", "gauge",
             "The longest wait for a handler thread that was seen so far.",
             seconds_of(longest_handler_wait));
  text.histogram("_lateness_seconds", "From a deadline to its callback or tick.", lateness);
  return text.take();
}
