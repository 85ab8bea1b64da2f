#include "factory/TickSchedule.h"

#include <gtest/gtest.h>

#include "util/Time.h"

using workflow::EvenTicks;
using workflow::kNever;
using workflow::TickSchedule;

namespace {

constexpr int64_t kEvery = 10;

void expect_next(WFTimerPace pace, int64_t due_ns, int64_t now_ns, int64_t next_ns,
                 uint64_t missed) {
  const TickSchedule::Next next = EvenTicks(kEvery, pace).next(due_ns, now_ns);
  EXPECT_EQ(next.due_ns, next_ns) << pace << ": due " << due_ns << ", over " << now_ns;
  EXPECT_EQ(next.missed, missed) << pace << ": due " << due_ns << ", over " << now_ns;
}

}  // namespace

TEST(TickSchedule, OnTimeAllButFixedDelayKeepTheDistanceToTheTimeDue) {
  for (const WFTimerPace pace : {WF_TIMER_SKIP, WF_TIMER_BURST, WF_TIMER_DELAY}) {
    expect_next(pace, 100, 100, 110, 0);
    expect_next(pace, 100, 109, 110, 0);
  }
}

TEST(TickSchedule, SkipLeavesOutWhatHasPassedAndKeepsThePhase) {
  expect_next(WF_TIMER_SKIP, 100, 110, 120, 1);
  expect_next(WF_TIMER_SKIP, 100, 119, 120, 1);
  expect_next(WF_TIMER_SKIP, 100, 120, 130, 2);
  expect_next(WF_TIMER_SKIP, 100, 1'000'005, 1'000'010, 99'990);
}

TEST(TickSchedule, BurstLeavesOutNothing) {
  expect_next(WF_TIMER_BURST, 100, 110, 110, 0);
  expect_next(WF_TIMER_BURST, 100, 1000, 110, 0);
}

TEST(TickSchedule, DelayBeginsAnewWhenItIsLate) {
  expect_next(WF_TIMER_DELAY, 100, 110, 120, 1);
  expect_next(WF_TIMER_DELAY, 100, 125, 135, 2);
}

TEST(TickSchedule, FixedDelayCountsFromTheEndOfTheTick) {
  expect_next(WF_TIMER_FIXED_DELAY, 100, 100, 110, 0);
  expect_next(WF_TIMER_FIXED_DELAY, 100, 104, 114, 0);
  expect_next(WF_TIMER_FIXED_DELAY, 100, 135, 145, 0);
}

TEST(TickSchedule, WhatDoesNotFitIsNever) {
  for (const WFTimerPace pace :
       {WF_TIMER_SKIP, WF_TIMER_BURST, WF_TIMER_DELAY, WF_TIMER_FIXED_DELAY}) {
    EXPECT_EQ(EvenTicks(kNever, pace).next(100, 105).due_ns, kNever);
    EXPECT_EQ(EvenTicks(kEvery, pace).next(kNever - 5, kNever - 5).due_ns, kNever);
  }
}
