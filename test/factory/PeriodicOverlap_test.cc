// In real time, as a tick that takes long is what it is about.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "support/Tally.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFTimer.h"

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;
using test_support::Tally;
using test_support::TimerOutcomes;

namespace {

constexpr milliseconds kBetweenTicks(10);
constexpr milliseconds kLong(55);

struct Seen {
  uint64_t number;
  uint64_t missed;
  nanoseconds late;
  steady_clock::time_point begin;
  steady_clock::time_point end;  // of those that are not the last
};

// The first `n` ticks, the first of which takes kLong.
std::vector<Seen> ticks_of(WFTimerPace pace, size_t n) {
  std::mutex mutex;
  std::vector<Seen> seen;
  TimerOutcomes outcomes;
  WFTimerPeriod period;
  period.every = kBetweenTicks;
  period.pace = pace;
  WFTimer::create_periodic(
      period, {},
      [&](const WFTimerTick& tick) {
        const auto begin = steady_clock::now();
        std::lock_guard<std::mutex> lock(mutex);
        seen.push_back({tick.number, tick.missed, tick.late, begin, {}});
        if (seen.size() == n) {
          tick.end();
          return;
        }
        if (tick.number == 0) {
          std::this_thread::sleep_for(kLong);
        }
        seen.back().end = steady_clock::now();
      },
      outcomes.callback())
      ->start();
  EXPECT_TRUE(outcomes.wait_for(1));
  for (size_t i = 0; i < seen.size(); i++) {
    EXPECT_EQ(seen[i].number, i);
    EXPECT_GE(seen[i].late.count(), 0);
  }
  return seen;
}

}  // namespace

TEST(PeriodicOverlap, ASkippedTickIsCounted) {
  const std::vector<Seen> seen = ticks_of(WF_TIMER_SKIP, 2);
  EXPECT_GE(seen[1].missed, 5u);
}

TEST(PeriodicOverlap, ABurstTicksOnceForEachPeriod) {
  const std::vector<Seen> seen = ticks_of(WF_TIMER_BURST, 6);
  for (const Seen& tick : seen) {
    EXPECT_EQ(tick.missed, 0u);
  }
  EXPECT_GE(seen[1].late, kLong - kBetweenTicks);
}

TEST(PeriodicOverlap, ADelayedTickIsNotLate) {
  const std::vector<Seen> seen = ticks_of(WF_TIMER_DELAY, 2);
  EXPECT_GE(seen[1].missed, 5u);
  // It was due a period after the first had ended, at the earliest.
  EXPECT_LE(seen[1].late, seen[1].begin - seen[0].end - kBetweenTicks);
}

TEST(PeriodicOverlap, AFixedDelayMissesNothing) {
  EXPECT_EQ(ticks_of(WF_TIMER_FIXED_DELAY, 2)[1].missed, 0u);
}

TEST(PeriodicOverlap, TicksThatOverlapDoNotWaitForEachOther) {
  TimerOutcomes outcomes;
  Tally began;
  Tally ended;
  WFTimerPeriod period;
  period.every = milliseconds(1);
  period.overlap = true;
  constexpr size_t kAtOnce = 4;
  std::atomic<size_t> ticks{0};
  WFTimerTask* task = WFTimer::create_periodic(
      period, {},
      [&](const WFTimerTick& tick) {
        ticks++;
        began.add();
        EXPECT_TRUE(began.wait_for(kAtOnce));  // the others begin while this one runs
        tick.end();
        ended.add();
      },
      outcomes.callback());
  task->start();
  EXPECT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes.count(WFT_STATE_SUCCESS, 0), 1u);
  EXPECT_TRUE(ended.wait_for(ticks));
}

TEST(PeriodicOverlap, TheCallbackWaitsForAllTicks) {
  TimerOutcomes outcomes;
  Tally began;
  Tally go_on;
  std::atomic<int> running{0};
  WFTimerPeriod period;
  period.every = milliseconds(1);
  period.overlap = true;
  WFTimerTask* task = WFTimer::create_periodic(
      period, {},
      [&](const WFTimerTick&) {
        running++;
        began.add();
        EXPECT_TRUE(go_on.wait_for(1));
        running--;
      },
      [&](WFTimerTask* ending) {
        EXPECT_EQ(running, 0);
        outcomes.add(0, ending);
      });
  const WFTimerHandle handle = WFTimer::handle_of(task);
  task->start();
  EXPECT_TRUE(began.wait_for(2));
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  EXPECT_EQ(outcomes.size(), 0u);
  go_on.add();
  EXPECT_TRUE(outcomes.wait_for(1));
}
