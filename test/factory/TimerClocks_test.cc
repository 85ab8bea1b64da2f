// Clocks and deadlines of timers, by a manual clock. Each case starts with it at its beginning.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <vector>

#include "support/TimerOutcomes.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;
using test_support::TimerOutcomes;

namespace {

constexpr nanoseconds kTick{1};
const system_clock::time_point kFirstDate = system_clock::from_time_t(946'684'800);

class TimerClocks : public testing::Test {
 protected:
  TimerClocks() { EXPECT_EQ(WFManualClock::install(), 0); }
  // Ends what is left, and returns when the callbacks have.
  ~TimerClocks() override {
    for (const char* name : {"a", "b", "c"}) {
      WFTaskFactory::cancel_by_name(name);
    }
    WFManualClock::advance(0);
  }

  WFTimerHandle create(const WFTimerDue& due, WFTimerTask** task, int tag = 0) {
    *task = WFTimer::create(due, {"a"}, outcomes_.callback(tag));
    return WFTimer::handle_of(*task);
  }
  WFTimerHandle start(const WFTimerDue& due, int tag = 0) {
    WFTimerTask* task = nullptr;
    const WFTimerHandle handle = create(due, &task, tag);
    task->start();
    return handle;
  }
  size_t succeeded() const { return outcomes_.count(WFT_STATE_SUCCESS, 0); }

  TimerOutcomes outcomes_;
};

}  // namespace

TEST_F(TimerClocks, TheManualClocksBegin) {
  EXPECT_EQ(WFTimer::steady_now(), steady_clock::time_point());
  EXPECT_EQ(WFBootClock::now(), WFBootClock::time_point());
  EXPECT_EQ(WFTimer::wall_now(), kFirstDate);
  WFManualClock::advance(seconds(1));
  EXPECT_EQ(WFTimer::steady_now(), steady_clock::time_point(seconds(1)));
  EXPECT_EQ(WFBootClock::now(), WFBootClock::time_point(seconds(1)));
  EXPECT_EQ(WFTimer::wall_now(), kFirstDate + seconds(1));
}

TEST_F(TimerClocks, AMonotonicDeadlineIsMetAndNotBefore) {
  const WFTimerHandle handle = start(WFTimer::steady_now() + seconds(10));
  EXPECT_EQ(handle.remaining(), seconds(10));
  WFManualClock::advance(seconds(10) - kTick);
  EXPECT_EQ(succeeded(), 0u);
  EXPECT_EQ(handle.remaining(), kTick);
  WFManualClock::advance(kTick);
  EXPECT_EQ(succeeded(), 1u);
}

TEST_F(TimerClocks, ADateIsMetAndNotBefore) {
  const WFTimerHandle handle = start(kFirstDate + hours(24));
  WFManualClock::advance(hours(24) - kTick);
  EXPECT_EQ(succeeded(), 0u);
  EXPECT_EQ(handle.remaining(), kTick);
  WFManualClock::advance(kTick);
  EXPECT_EQ(succeeded(), 1u);
  EXPECT_EQ(handle.remaining(), std::nullopt);
}

TEST_F(TimerClocks, ABoottimeDeadlineIsMetAndNotBefore) {
  start(WFBootClock::now() + seconds(10));
  WFManualClock::advance(seconds(10) - kTick);
  EXPECT_EQ(succeeded(), 0u);
  WFManualClock::advance(kTick);
  EXPECT_EQ(succeeded(), 1u);
}

TEST_F(TimerClocks, ADeadlineDoesNotCountFromTheStart) {
  WFTimerTask* task = nullptr;
  const WFTimerHandle handle = create(WFTimer::steady_now() + seconds(10), &task);
  WFManualClock::advance(seconds(4));
  EXPECT_EQ(handle.remaining(), seconds(6));
  task->start();
  WFManualClock::advance(seconds(6) - kTick);
  EXPECT_EQ(succeeded(), 0u);
  WFManualClock::advance(kTick);
  EXPECT_EQ(succeeded(), 1u);
}

TEST_F(TimerClocks, ADelayCountsFromTheStartOnEachClock) {
  WFTimerTask* tasks[3];
  create(seconds(10), &tasks[0]);
  create({seconds(10), WF_CLOCK_BOOTTIME}, &tasks[1]);
  const WFTimerHandle wall = create({seconds(10), WF_CLOCK_WALL}, &tasks[2]);
  WFManualClock::advance(hours(1));
  WFManualClock::set_wall(kFirstDate + hours(100));
  EXPECT_EQ(wall.remaining(), seconds(10));
  for (WFTimerTask* task : tasks) {
    task->start();
  }
  WFManualClock::advance(seconds(10) - kTick);
  EXPECT_EQ(succeeded(), 0u);
  WFManualClock::advance(kTick);
  EXPECT_EQ(succeeded(), 3u);
}

TEST_F(TimerClocks, TheWallClockSetForwardsMakesDatesDueAndNothingElse) {
  start(kFirstDate + hours(24), 1);
  start(kFirstDate + hours(25), 2);
  start(hours(1), 3);
  start({hours(1), WF_CLOCK_BOOTTIME}, 4);
  start(WFTimer::steady_now() + hours(1), 5);
  WFManualClock::set_wall(kFirstDate + hours(24));
  EXPECT_EQ(outcomes_.tags(), std::vector<int>{1});
  WFManualClock::advance(hours(1) - kTick);
  EXPECT_EQ(succeeded(), 1u);
  WFManualClock::advance(kTick);
  EXPECT_EQ(succeeded(), 5u);
}

TEST_F(TimerClocks, TheWallClockSetBackwardsPostponesDatesAndNothingElse) {
  const WFTimerHandle date = start(kFirstDate + hours(2), 1);
  start(hours(2), 2);
  WFManualClock::advance(hours(1));
  WFManualClock::set_wall(kFirstDate);
  EXPECT_EQ(date.remaining(), hours(2));
  WFManualClock::advance(hours(1));
  EXPECT_EQ(outcomes_.tags(), std::vector<int>{2});
  WFManualClock::advance(hours(1) - kTick);
  EXPECT_EQ(succeeded(), 1u);
  WFManualClock::advance(kTick);
  EXPECT_EQ(succeeded(), 2u);
}

TEST_F(TimerClocks, ASuspensionCountsForBoottimeAndDates) {
  start(hours(2), 1);
  start({hours(2), WF_CLOCK_BOOTTIME}, 2);
  start(kFirstDate + hours(3), 3);
  WFManualClock::advance(hours(1));
  WFManualClock::suspend(hours(1) - kTick);
  EXPECT_EQ(succeeded(), 0u);
  EXPECT_EQ(WFTimer::steady_now(), steady_clock::time_point(hours(1)));
  EXPECT_EQ(WFBootClock::now(), WFBootClock::time_point(hours(2) - kTick));
  EXPECT_EQ(WFTimer::wall_now(), kFirstDate + hours(2) - kTick);
  WFManualClock::suspend(kTick);
  EXPECT_EQ(outcomes_.tags(), std::vector<int>{2});
  WFManualClock::suspend(hours(10));
  EXPECT_EQ(outcomes_.tags(), (std::vector<int>{2, 3}));
  WFManualClock::advance(hours(1));
  EXPECT_EQ(outcomes_.tags(), (std::vector<int>{2, 3, 1}));
}

TEST_F(TimerClocks, TheNextDeadlineIsThatOfAnyClock) {
  start(kFirstDate + seconds(20), 1);
  start({seconds(10), WF_CLOCK_BOOTTIME}, 2);
  start(seconds(15), 3);
  start(kFirstDate + seconds(12), 4);
  for (int passed : {10, 12, 15, 20}) {
    EXPECT_TRUE(WFManualClock::advance_to_next_deadline());
    EXPECT_EQ(WFTimer::steady_now(), steady_clock::time_point(seconds(passed)));
  }
  EXPECT_FALSE(WFManualClock::advance_to_next_deadline());
  EXPECT_EQ(outcomes_.tags(), (std::vector<int>{2, 4, 3, 1}));
}

TEST_F(TimerClocks, AdvancingMeetsTheDeadlinesOfAllClocksInTheirOrder) {
  WFManualClock::set_wall(system_clock::from_time_t(1'000'000'000));
  WFManualClock::suspend(hours(3));
  std::vector<int> expected;
  for (int i = 0; i < 30; i++) {
    const seconds delay(60 - i);
    const WFTimerClock clock = static_cast<WFTimerClock>(i % 3);
    i % 2                    ? start({delay, clock}, i)
    : clock == WF_CLOCK_WALL ? start(WFTimer::wall_now() + delay, i)
                             : start({delay, clock}, i);
    expected.insert(expected.begin(), i);
  }
  WFManualClock::advance(seconds(60));
  EXPECT_EQ(outcomes_.tags(), expected);
}

TEST_F(TimerClocks, WhatIsPastIsDueAtOnceButNotInTheCall) {
  WFManualClock::advance(hours(1));
  start(WFTimer::steady_now() - seconds(1));
  start(WFTimer::steady_now());
  start(WFBootClock::now() - seconds(1));
  start(WFTimer::wall_now() - hours(24));
  start(system_clock::from_time_t(0));
  start(system_clock::from_time_t(-1));
  start(system_clock::time_point::min());
  start(steady_clock::time_point::min());
  WFManualClock::advance(seconds(0));
  EXPECT_EQ(succeeded(), 8u);
}

TEST_F(TimerClocks, WhatDoesNotFitIsNever) {
  using std::chrono::time_point;
  const std::vector<WFTimerHandle> handles = {
      start(hours::max()),
      start(hours::min()),
      start(nanoseconds::max()),
      start(nanoseconds::min()),
      start(std::chrono::duration<double>(1e300)),
      start(std::chrono::duration<double>(std::numeric_limits<double>::infinity())),
      start({hours::max(), WF_CLOCK_WALL}),
      start({seconds(-1), WF_CLOCK_BOOTTIME}),
      start(system_clock::time_point::max()),
      start(steady_clock::time_point::max()),
      start(time_point<system_clock, hours>(hours::max())),
      start(time_point<system_clock, hours>(hours(24 * 365'000))),
      start(time_point<WFBootClock, seconds>(seconds::max())),
  };
  WFManualClock::advance(hours(24 * 365 * 250));
  for (const WFTimerHandle& handle : handles) {
    EXPECT_EQ(handle.remaining(), nanoseconds::max()) << &handle - handles.data();
  }
  EXPECT_FALSE(WFManualClock::advance_to_next_deadline());
  EXPECT_EQ(WFTaskFactory::cancel_by_name("a"), static_cast<int>(handles.size()));
}

TEST_F(TimerClocks, PartsOfANanosecondAreRoundedUp) {
  start(std::chrono::duration<double, std::nano>(1.5));
  WFManualClock::advance(nanoseconds(1));
  EXPECT_EQ(succeeded(), 0u);
  WFManualClock::advance(nanoseconds(1));
  EXPECT_EQ(succeeded(), 1u);
}

TEST_F(TimerClocks, CancelByHandleAndByNameOnEachClock) {
  const std::vector<WFTimerDue> dues = {seconds(10),
                                        {seconds(10), WF_CLOCK_BOOTTIME},
                                        WFTimer::wall_now() + seconds(10),
                                        WFTimer::steady_now() + seconds(10)};
  for (const WFTimerDue& due : dues) {
    const WFTimerHandle handle = start(due);
    EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
    start(due);
    EXPECT_EQ(WFTaskFactory::cancel_by_name("a"), 1);
    WFTimerTask* task = nullptr;
    create(due, &task);
    EXPECT_EQ(WFTaskFactory::cancel_by_name("a"), 1);
    task->start();
  }
  WFManualClock::advance(hours(1));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, ECANCELED), 12u);
  EXPECT_EQ(succeeded(), 0u);
}

TEST_F(TimerClocks, ADelayReschedulesByTheTimersOwnClock) {
  const WFTimerHandle boottime = start({hours(1), WF_CLOCK_BOOTTIME}, 1);
  const WFTimerHandle date = start(kFirstDate + hours(1), 2);
  EXPECT_EQ(WFTimer::reschedule("a", hours(2)), 2u);
  EXPECT_EQ(boottime.remaining(), hours(2));
  EXPECT_EQ(date.remaining(), hours(2));
  WFManualClock::suspend(hours(1));
  EXPECT_EQ(boottime.reschedule(hours(3)), WFTimerMove::kWon);
  WFManualClock::set_wall(kFirstDate + hours(2) - kTick);
  EXPECT_EQ(succeeded(), 0u);
  WFManualClock::advance(kTick);
  EXPECT_EQ(outcomes_.tags(), std::vector<int>{2});
  WFManualClock::suspend(hours(3));
  EXPECT_EQ(outcomes_.tags(), (std::vector<int>{2, 1}));
}

TEST_F(TimerClocks, ADeadlineReschedulesEarlierAndLater) {
  const WFTimerHandle date = start(kFirstDate + hours(5));
  EXPECT_EQ(date.reschedule(kFirstDate + hours(8)), WFTimerMove::kWon);
  EXPECT_EQ(date.remaining(), hours(8));
  EXPECT_EQ(date.reschedule(kFirstDate + hours(1)), WFTimerMove::kWon);
  EXPECT_EQ(date.remaining(), hours(1));
  EXPECT_EQ(date.reschedule(kFirstDate + hours(2)), WFTimerMove::kWon);
  WFManualClock::advance(hours(2) - kTick);
  EXPECT_EQ(succeeded(), 0u);
  WFManualClock::advance(kTick);
  EXPECT_EQ(succeeded(), 1u);
}

TEST_F(TimerClocks, AnUnstartedTimerTakesADeadlineInsteadOfItsDelay) {
  WFTimerTask* task = nullptr;
  const WFTimerHandle handle = create(seconds(10), &task);
  EXPECT_EQ(handle.reschedule(WFTimer::steady_now() + seconds(5)), WFTimerMove::kWon);
  WFManualClock::advance(seconds(1));
  EXPECT_EQ(handle.remaining(), seconds(4));
  EXPECT_EQ(handle.reschedule(seconds(7)), WFTimerMove::kWon);
  WFManualClock::advance(seconds(1));
  EXPECT_EQ(handle.remaining(), seconds(7));
  task->start();
  WFManualClock::advance(seconds(7));
  EXPECT_EQ(succeeded(), 1u);
}

TEST_F(TimerClocks, ATimeOfAnotherClockChangesNothing) {
  const WFTimerHandle monotonic = start(seconds(10), 1);
  const WFTimerHandle date = start(kFirstDate + seconds(20), 2);
  EXPECT_EQ(monotonic.reschedule(kFirstDate + hours(1)), WFTimerMove::kOtherClock);
  EXPECT_EQ(monotonic.reschedule({hours(1), WF_CLOCK_BOOTTIME}), WFTimerMove::kOtherClock);
  EXPECT_EQ(date.reschedule(WFTimer::steady_now() + hours(1)), WFTimerMove::kOtherClock);
  EXPECT_EQ(monotonic.remaining(), seconds(10));
  EXPECT_EQ(date.remaining(), seconds(20));
  EXPECT_EQ(WFTimer::reschedule("a", WFTimer::steady_now() + seconds(30)), 1u);
  EXPECT_EQ(monotonic.remaining(), seconds(30));
  EXPECT_EQ(date.remaining(), seconds(20));
  WFManualClock::advance(seconds(30));
  EXPECT_EQ(outcomes_.tags(), (std::vector<int>{2, 1}));
  EXPECT_EQ(date.reschedule(WFTimer::steady_now()), WFTimerMove::kDone);
}

TEST_F(TimerClocks, APutOffDateFollowsTheWallClock) {
  const WFTimerHandle date = start(kFirstDate + hours(1));
  EXPECT_EQ(date.reschedule(kFirstDate + hours(10)), WFTimerMove::kWon);
  WFManualClock::set_wall(kFirstDate + hours(10) - kTick);
  EXPECT_EQ(succeeded(), 0u);
  EXPECT_EQ(date.remaining(), kTick);
  WFManualClock::set_wall(kFirstDate);
  EXPECT_EQ(date.remaining(), hours(10));
  WFManualClock::set_wall(kFirstDate + hours(10));
  EXPECT_EQ(succeeded(), 1u);
}

TEST_F(TimerClocks, TheWallClockDoesNotGoBefore1970) {
  WFManualClock::set_wall(system_clock::from_time_t(-1000));
  EXPECT_EQ(WFTimer::wall_now(), system_clock::from_time_t(0));
  start(system_clock::from_time_t(1));
  start(system_clock::from_time_t(-1));
  WFManualClock::advance(seconds(0));
  EXPECT_EQ(succeeded(), 1u);
  WFManualClock::suspend(seconds(1));
  EXPECT_EQ(succeeded(), 2u);
}

TEST_F(TimerClocks, OptionsAndListsKnowTheClock) {
  WFTimer::create(kFirstDate + hours(1), {.name = "b"}, outcomes_.callback())->start();
  WFTimer::create({hours(2), WF_CLOCK_BOOTTIME}, {.name = "c"}, outcomes_.callback())->start();
  WFManualClock::suspend(seconds(60));
  const std::vector<WFTimerInfo> b = WFTimer::list("b", 9);
  const std::vector<WFTimerInfo> c = WFTimer::list("c", 9);
  ASSERT_EQ(b.size(), 1u);
  ASSERT_EQ(c.size(), 1u);
  EXPECT_EQ(b[0].clock, WF_CLOCK_WALL);
  EXPECT_EQ(b[0].remaining, hours(1) - seconds(60));
  EXPECT_EQ(c[0].clock, WF_CLOCK_BOOTTIME);
  EXPECT_EQ(c[0].remaining, hours(2) - seconds(60));
}
