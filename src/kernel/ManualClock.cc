#include "kernel/ManualClock.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"

namespace workflow {

namespace {

// A sum of counters that only grow: while it stays the same the pools stay quiet. Nothing if one of
// them is not quiet.
std::optional<uint64_t> quiet_count(Runtime& runtime) {
  const std::optional<uint64_t> handlers = runtime.handlers().quiet_count();
  const std::optional<uint64_t> compute = runtime.compute().quiet_count();
  if (!handlers || !compute) return std::nullopt;
  return *handlers + *compute;
}

// Ends the timers that are due, and posts them to the handler threads. If the poller's thread did
// this, each deadline would cost more thread switches. Returns whether there were any.
bool expire(Runtime& runtime) {
  RunnableList finished;
  for (size_t i = 0; i < runtime.poller_count(); i++) {
    PollerTimers& timers = runtime.poller(i).timers();
    while (timers.end_due(PollerTimers::Ender::kClock, finished) > 0) {
    }
  }
  if (finished.empty()) return false;
  // A handler thread that has called this takes the first of them itself.
  const bool on_worker = ThreadContext::current().pool == &runtime.handlers();
  runtime.handlers().post(finished, on_worker);
  return true;
}

bool all_settled(Runtime& runtime) {
  for (size_t i = 0; i < runtime.poller_count(); i++) {
    const Poller& poller = runtime.poller(i);
    if (!poller.settled() || poller.has_descriptors()) return false;
  }
  return true;
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
    if (poller->has_descriptors()) {
      // That round may have looked at the descriptors before it was requested. The next one begins
      // after that.
      poller->wait_for_round(poller->ask_for_round());
    }
    while (!poller->settled()) {
      had_work = true;
      poller->wait_for_round(poller->ask_for_round());
    }
  }
  return had_work;
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

void ManualClock::move_to(int64_t now_ns) {
  now_ns_.store(std::max(now_ns, now_ns_.load(std::memory_order_relaxed)),
                std::memory_order_release);
}

void ManualClock::step_to(Runtime& runtime, int64_t now_ns) {
  move_to(now_ns);
  settle(runtime);
}

uint64_t ManualClock::let_handlers_move(Runtime& runtime) {
  stepping_.unlock();
  const uint64_t count = runtime.handlers().wait_quiet();
  stepping_.lock();
  return count;
}

// If the two looks at each pool have found the same number, both pools were quiet at the same time,
// from the first look at the compute pool to the second look at the handler threads, and between
// these no poller had anything to do. From the end of the first look at the handler threads on, no
// handler thread moves time, because stepping_ is held.
void ManualClock::settle(Runtime& runtime) {
  uint64_t before = 0;
  uint64_t after = 0;
  bool had_work = false;
  do {
    expire(runtime);
    before = let_handlers_move(runtime) + runtime.compute().wait_quiet();
    had_work = wait_for_pollers(runtime);
    after = runtime.handlers().wait_quiet() + runtime.compute().wait_quiet();
  } while (had_work || after != before);
}

bool ManualClock::post_more() {
  // Whoever has it, most likely the thread that called advance(), looks itself.
  if (!stepping_.try_lock()) return false;
  const bool more = step_on_worker();
  stepping_.unlock();
  return more;
}

// As settle(), but it gives up where settle() would wait.
bool ManualClock::step_on_worker() {
  Runtime& runtime = Runtime::current();
  if (advancing_ != &runtime) return false;
  const std::optional<uint64_t> before = quiet_count(runtime);
  if (!before) return false;
  if (expire(runtime)) return true;
  if (!all_settled(runtime) || quiet_count(runtime) != before) return false;
  const int64_t next_ns = earliest_ns(runtime);
  if (next_ns > target_ns_) {  // or kNever, which no clock reaches
    return false;
  }
  move_to(next_ns);
  return expire(runtime);
}

void ManualClock::advance(Runtime& runtime, int64_t duration_ns) {
  require_foreign_thread();
  MutexLock moving(moving_);
  MutexLock stepping(stepping_);
  target_ns_ = std::min(saturating_add(now_ns(), std::max<int64_t>(duration_ns, 0)), kLastNs);
  advancing_ = &runtime;
  runtime.handlers().set_source(this);
  settle(runtime);
  for (int64_t next_ns = earliest_ns(runtime); next_ns <= target_ns_;
       next_ns = earliest_ns(runtime)) {
    step_to(runtime, next_ns);
  }
  step_to(runtime, target_ns_);
  runtime.handlers().set_source(nullptr);
  advancing_ = nullptr;
}

void ManualClock::set_wall(Runtime& runtime, int64_t wall_ns) {
  require_foreign_thread();
  MutexLock moving(moving_);
  MutexLock stepping(stepping_);
  settle(runtime);
  wall_ahead_ns_.store(std::max<int64_t>(wall_ns, 0) - now_ns(), std::memory_order_release);
  settle(runtime);
}

void ManualClock::suspend(Runtime& runtime, int64_t duration_ns) {
  require_foreign_thread();
  MutexLock moving(moving_);
  MutexLock stepping(stepping_);
  settle(runtime);
  for (std::atomic<int64_t>* ahead_ns : {&boottime_ahead_ns_, &wall_ahead_ns_}) {
    const int64_t before_ns = ahead_ns->load(std::memory_order_relaxed);
    ahead_ns->store(sum(before_ns, std::max<int64_t>(duration_ns, 0)), std::memory_order_release);
  }
  settle(runtime);
}

bool ManualClock::advance_to_next_deadline(Runtime& runtime) {
  require_foreign_thread();
  MutexLock moving(moving_);
  MutexLock stepping(stepping_);
  settle(runtime);
  const int64_t next_ns = earliest_ns(runtime);
  if (next_ns == kNever) return false;
  step_to(runtime, next_ns);
  return true;
}

}  // namespace workflow
