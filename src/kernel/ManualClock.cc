#include "kernel/ManualClock.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"

namespace workflow {

namespace {

// Waits until each pool has been quiet at some moment. Returns a sum of counters that only grow:
// while it stays the same the pools stay quiet.
uint64_t wait_quiet(Runtime& runtime) {
  const uint64_t handlers = runtime.handlers().wait_quiet();
  return handlers + runtime.compute().wait_quiet();
}

// Ends the timers that are due, and posts them to the handlers. If the poller's thread did this,
// each deadline would cost more thread switches.
void expire(Runtime& runtime) {
  RunnableList finished;
  for (size_t i = 0; i < runtime.poller_count(); i++) {
    PollerTimers& timers = runtime.poller(i).timers();
    while (timers.end_due(PollerTimers::Ender::kClock, finished) > 0) {
    }
  }
  if (!finished.empty()) {
    runtime.handlers().post(finished);
  }
}

// Waits until the pollers' threads have ended the timers that only they may end, have finished what
// they are doing, and have handled what has arrived on descriptors. Returns false if they only had
// to check the descriptors.
bool wait_for_pollers(Runtime& runtime) {
  bool had_work = false;
  std::vector<std::pair<Poller*, uint64_t>> asked;
  for (size_t i = 0; i < runtime.poller_count(); i++) {
    Poller& poller = runtime.poller(i);
    const bool is_busy = !poller.settled();
    had_work = had_work || is_busy;
    if (is_busy || poller.has_descriptors()) {
      asked.emplace_back(&poller, poller.ask_for_round());
    }
  }
  for (auto [poller, round] : asked) {
    poller->wait_for_round(round);
    while (!poller->settled()) {
      had_work = true;
      poller->wait_for_round(poller->ask_for_round());
    }
  }
  return had_work;
}

// Waits until nothing is due, posted or running. The last two calls of wait_quiet() have returned
// the same number. So both pools were quiet at the same time, from the first check of the compute
// pool to the second check of the handlers, and between these no poller had anything to do.
void settle(Runtime& runtime) {
  uint64_t before = 0;
  bool had_work = false;
  do {
    expire(runtime);
    before = wait_quiet(runtime);
    had_work = wait_for_pollers(runtime);
  } while (had_work || wait_quiet(runtime) != before);
}

int64_t earliest_ns(Runtime& runtime) {
  int64_t earliest = kNever;
  for (size_t i = 0; i < runtime.poller_count(); i++) {
    earliest = std::min(earliest, runtime.poller(i).timers().earliest_ns());
  }
  return earliest;
}

// `ahead_ns` may be negative.
int64_t sum(int64_t ahead_ns, int64_t time_ns) {
  int64_t result = 0;
  const bool fits = !__builtin_add_overflow(ahead_ns, time_ns, &result);
  return fits ? std::min(result, Clock::kLastNs) : Clock::kLastNs;
}

void require_foreign_thread() {
  const ThreadContext& context = ThreadContext::current();
  if (context.pool || context.poller) {
    std::fprintf(stderr,
                 "workflow: a thread of the library moves the manual clock, and would "
                 "wait for itself\n");
    std::abort();
  }
}

}  // namespace

int64_t ManualClock::now_ns_on(ClockId clock) {
  const int64_t now = now_ns();
  switch (clock) {
    case ClockId::kMonotonic:
      break;
    case ClockId::kBoottime:
      return sum(boottime_ahead_ns_.load(std::memory_order_acquire), now);
    case ClockId::kWall:
      return std::max<int64_t>(sum(wall_ahead_ns_.load(std::memory_order_acquire), now), 0);
  }
  return now;
}

void ManualClock::step_to(Runtime& runtime, int64_t now_ns) {
  now_ns_.store(std::max(now_ns, now_ns_.load(std::memory_order_relaxed)),
                std::memory_order_release);
  settle(runtime);
}

void ManualClock::advance(Runtime& runtime, int64_t duration_ns) {
  require_foreign_thread();
  MutexLock lock(moving_);
  settle(runtime);
  const int64_t target_ns =
      std::min(saturating_add(now_ns(), std::max<int64_t>(duration_ns, 0)), kLastNs);
  for (;;) {
    const int64_t next_ns = earliest_ns(runtime);
    if (next_ns == kNever || next_ns > target_ns) {
      break;
    }
    step_to(runtime, next_ns);
  }
  step_to(runtime, target_ns);
}

void ManualClock::set_wall(Runtime& runtime, int64_t wall_ns) {
  require_foreign_thread();
  MutexLock lock(moving_);
  settle(runtime);
  wall_ahead_ns_.store(std::max<int64_t>(wall_ns, 0) - now_ns(), std::memory_order_release);
  settle(runtime);
}

void ManualClock::suspend(Runtime& runtime, int64_t duration_ns) {
  require_foreign_thread();
  MutexLock lock(moving_);
  settle(runtime);
  for (std::atomic<int64_t>* ahead_ns : {&boottime_ahead_ns_, &wall_ahead_ns_}) {
    const int64_t before_ns = ahead_ns->load(std::memory_order_relaxed);
    ahead_ns->store(sum(before_ns, std::max<int64_t>(duration_ns, 0)), std::memory_order_release);
  }
  settle(runtime);
}

bool ManualClock::advance_to_next_deadline(Runtime& runtime) {
  require_foreign_thread();
  MutexLock lock(moving_);
  settle(runtime);
  const int64_t next_ns = earliest_ns(runtime);
  if (next_ns == kNever) {
    return false;
  }
  step_to(runtime, next_ns);
  return true;
}

}  // namespace workflow
