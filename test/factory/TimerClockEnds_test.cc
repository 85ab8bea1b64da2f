// Clocks at the end of what they can show. Each case is a process of its own.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>

#include "support/TimerOutcomes.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"
#include "workflow/WFTimerStats.h"

using std::chrono::hours;
using std::chrono::seconds;
using std::chrono::system_clock;
using test_support::TimerOutcomes;

namespace {

constexpr hours kYear(24 * 365);

class TimerClockEnds : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(WFManualClock::install(), 0); }

  // One that never expires, by each clock.
  void start_never() {
    for (const WFTimerClock clock : {WF_CLOCK_MONOTONIC, WF_CLOCK_BOOTTIME, WF_CLOCK_WALL}) {
      WFTimer::create({seconds(-1), clock}, {"never"}, outcomes_.callback())->start();
    }
  }
  void expect_never() {
    EXPECT_EQ(outcomes_.size(), 0u);
    EXPECT_EQ(WFTaskFactory::cancel_by_name("never"), 3);
    EXPECT_TRUE(outcomes_.wait_for(3));
  }

  TimerOutcomes outcomes_;
};

}  // namespace

TEST_F(TimerClockEnds, TheLastDateIsNotNever) {
  start_never();
  WFManualClock::set_wall(system_clock::time_point::max());
  WFManualClock::advance(seconds(1));
  expect_never();
}

TEST_F(TimerClockEnds, ASuspensionForEver) {
  start_never();
  WFManualClock::suspend(hours::max());
  WFManualClock::advance(seconds(1));
  expect_never();
}

TEST_F(TimerClockEnds, MoreYearsThanTheWallClockHas) {
  start_never();
  WFManualClock::advance(kYear * 270);
  WFManualClock::advance(hours::max());
  expect_never();
}

TEST_F(TimerClockEnds, NamesAreInOrderAfterACentury) {
  for (int century = 0; century < 2; century++) {
    WFManualClock::advance(kYear * 73);
    WFTimer::create(seconds(-1), {"old", WF_TIMER_REPLACE}, outcomes_.callback())->start();
    WFManualClock::advance(kYear);
    WFTimer::create(seconds(-1), {"old", WF_TIMER_REPLACE}, outcomes_.callback())->start();
    EXPECT_EQ(WFTimer::count("old"), 1u);
  }
  EXPECT_EQ(WFTaskFactory::cancel_by_name("old"), 1);
  EXPECT_TRUE(outcomes_.wait_for(4));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, ECANCELED), 4u);
}

TEST_F(TimerClockEnds, TimesThatDoNotFitAreForEver) {
  WFTimerPeriod period;
  period.every = hours::max();
  WFTimerOptions options;
  options.name = "never";
  WFTimer::create_periodic(period, options, nullptr, outcomes_.callback())->start();
  WFDeadlineTask* task = with_deadline(
      WFTaskFactory::create_timer_task("never", 3600, 0, outcomes_.callback()), hours(5'200'000));
  task->start();
  EXPECT_EQ(WFTimer::count("never"), 2u);
  WFManualClock::advance(seconds(3599));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("never"), 2);
  EXPECT_TRUE(outcomes_.wait_for(2));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, ECANCELED), 2u);
}

TEST_F(TimerClockEnds, LatenessOfCenturiesHasASum) {
  for (int i = 0; i < 40; i++) {
    WFTimer::create(system_clock::from_time_t(0), outcomes_.callback())->start();
  }
  EXPECT_TRUE(outcomes_.wait_for(40));
  WFManualClock::advance(seconds(1));  // the last callback has been counted
  const WFTimerStats::Lateness late = WFTimerStats::snapshot().lateness;
  EXPECT_GE(late.sum, late.max);
  EXPECT_GE(late.max, kYear * 29);
}
