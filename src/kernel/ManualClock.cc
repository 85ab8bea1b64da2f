#include "kernel/ManualClock.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "util/Thread.h"

namespace workflow {

namespace {

// Reached by a poller in the round after it was posted: it has then looked at the clock again.
class Barrier final : public Runnable {
 public:
  ~Barrier() override = default;

  void take_turn() override {
    MutexLock lock(mutex_);
    reached_ = true;
    changed_.notify_one();
  }
  void wait() {
    MutexLock lock(mutex_);
    while (!reached_) {
      changed_.wait(mutex_);
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool reached_ WF_GUARDED_BY(mutex_) = false;
};

void let_poller_look(Poller& poller) {
  do {
    Barrier barrier;
    if (!poller.post(&barrier)) {
      return;  // stopped: it has ended all its timers
    }
    barrier.wait();
  } while (!poller.settled());
}

uint64_t taken(Runtime& runtime) {
  return runtime.handlers().taken() + runtime.compute().taken();
}

bool idle(Runtime& runtime) {
  return runtime.handlers().idle() && runtime.compute().idle();
}

// Until nothing is due, on its way or running. The order of the looks makes it sure: an item that
// runs after they were idle was taken after `before` was read, and shows in the last comparison;
// what earlier items have started is there to be seen by the pollers.
void settle(Runtime& runtime) {
  for (int tries = 0;; tries++) {
    const uint64_t before = taken(runtime);
    if (idle(runtime)) {
      for (size_t i = 0; i < runtime.poller_count(); i++) {
        let_poller_look(runtime.poller(i));
      }
      if (taken(runtime) == before && idle(runtime)) {
        return;
      }
      tries = 0;
    }
    // Pools tell nobody when they become idle: that would cost everyone for the sake of tests.
    pause_ns(tries < 50 ? 1'000 : 50'000);
  }
}

int64_t earliest_ns(Runtime& runtime) {
  int64_t earliest = kNever;
  for (size_t i = 0; i < runtime.poller_count(); i++) {
    earliest = std::min(earliest, runtime.poller(i).earliest_ns());
  }
  return earliest;
}

// What another clock is ahead may be negative.
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
