// Calls that take any std::chrono::duration, by a manual clock where they follow it.

#include "workflow/detail/Duration.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <future>
#include <limits>

#include "support/TimerOutcomes.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"

using std::chrono::duration;
using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using test_support::TimerOutcomes;
using workflow::Duration;

TEST(Duration, IsInNanosecondsRoundedUp) {
  EXPECT_EQ(Duration(seconds(-3)).ns(), -3'000'000'000);
  EXPECT_EQ(Duration(seconds(-3)).positive_ns(), 0);
  EXPECT_EQ(Duration(duration<double>(0.1e-9)).ns(), 1);
  EXPECT_EQ(Duration(duration<int64_t, std::pico>(1001)).ns(), 2);
}

TEST(Duration, WhatDoesNotFitIsTheLongest) {
  EXPECT_EQ(Duration(hours::max()).ns(), INT64_MAX);
  EXPECT_EQ(Duration(nanoseconds::max()).ns(), INT64_MAX);
  EXPECT_EQ(Duration(duration<double>(std::numeric_limits<double>::infinity())).ns(), INT64_MAX);
  EXPECT_LT(Duration(hours::min()).ns(), 0);
  EXPECT_LT(Duration(nanoseconds::min()).ns(), 0);
}

TEST(Duration, ReachesTheLastHourThatFits) {
  EXPECT_EQ(Duration(seconds(9'223'370'000)).ns(), 9'223'370'000'000'000'000);
  EXPECT_EQ(Duration(seconds(-9'223'370'000)).ns(), -9'223'370'000'000'000'000);
  for (float each = 9.2233e9F; each < 9.2234e9F; each = std::nextafter(each, 1e10F)) {
    EXPECT_GE(Duration(duration<float>(each)).ns(), 9'223'290'000'000'000'000) << each;
    EXPECT_LE(Duration(duration<float>(-each)).ns(), -9'223'290'000'000'000'000) << each;
  }
}

TEST(Duration, AsATimeoutIsInMillisecondsOrUnlimited) {
  EXPECT_EQ(Duration(microseconds(1)).timeout_ms(), 1);
  EXPECT_EQ(Duration(seconds(0)).timeout_ms(), 0);
  EXPECT_EQ(Duration(milliseconds(1500)).timeout_ms(), 1500);
  EXPECT_EQ(Duration(nanoseconds(-1)).timeout_ms(), -1);
  EXPECT_EQ(Duration(seconds(-5)).timeout_ms(), -1);
  EXPECT_EQ(Duration(milliseconds(INT32_MAX)).timeout_ms(), INT32_MAX);
  EXPECT_EQ(Duration(milliseconds(int64_t{INT32_MAX} + 1)).timeout_ms(), -1);
  EXPECT_EQ(Duration(hours::max()).timeout_ms(), -1);
}

TEST(Duration, OfTimersOfTheFactory) {
  ASSERT_EQ(WFManualClock::install(), 0);
  TimerOutcomes outcomes;
  WFTaskFactory::create_timer_task(minutes(1), outcomes.callback(1))->start();
  WFTaskFactory::create_timer_task("a", minutes(2), outcomes.callback(2))->start();
  WFTaskFactory::create_timer_task("a", hours::max(), outcomes.callback(3))->start();
  WFTaskFactory::create_timer_task("a", seconds(-1), outcomes.callback(4))->start();
  WFManualClock::advance(minutes(1) - nanoseconds(1));
  EXPECT_EQ(outcomes.size(), 0u);
  WFManualClock::advance(nanoseconds(1));
  EXPECT_EQ(outcomes.size(), 1u);
  WFManualClock::advance(hours(24 * 365 * 200));
  EXPECT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("a"), 2);
  EXPECT_TRUE(outcomes.wait_for(4));
  WFManualClock::advance(seconds(0));
}

// In real time: a manual clock is not moved while a function runs.
TEST(Duration, OfALimitOfAComputation) {
  std::promise<void> go_on;
  const std::shared_future<void> may_go_on = go_on.get_future().share();
  WFFacilities::WaitGroup ended(1);
  int error = 0;
  WFGoTask* const task = WFTaskFactory::create_timedgo_task(milliseconds(5), "queue",
                                                            [may_go_on] { may_go_on.wait(); });
  task->set_callback([&](WFGoTask* ended_task) {
    error = ended_task->get_error();
    ended.done();
  });
  task->start();
  EXPECT_EQ(ended.wait_for(minutes(1)), std::future_status::ready);
  EXPECT_EQ(error, ETIMEDOUT);
  go_on.set_value();
}

TEST(Duration, OfSleepsAndWaits) {
  ASSERT_EQ(WFManualClock::install(), 0);
  WFFuture<void> slept = WFFacilities::async_sleep_for(hours(1));
  WFFuture<void> not_slept = WFFacilities::async_sleep_for(seconds(-1));
  WFManualClock::advance(hours(1) - nanoseconds(1));
  EXPECT_EQ(not_slept.wait_for(seconds(0)), std::future_status::ready);
  EXPECT_EQ(slept.wait_for(seconds(0)), std::future_status::timeout);
  WFManualClock::advance(nanoseconds(1));
  EXPECT_EQ(slept.wait_for(seconds(0)), std::future_status::ready);
  WFFacilities::WaitGroup group(1);
  EXPECT_EQ(group.wait_for(seconds(-1)), std::future_status::timeout);
  group.done();
  EXPECT_EQ(group.wait_for(hours::max()), std::future_status::ready);
}
