#include "store/StoreAlarms.h"

#include <gtest/gtest.h>

#include "store/AlarmDesk.h"
#include "store/BackendKit.h"
#include "support/Eventually.h"

// Tests when an engine is notified that there is something to do, without an engine and with a
// clock that the test sets. set() notifies of times that have come, so no case waits for time to
// pass.

namespace {

using store_test::SetClock;
using test_support::eventually;
using workflow::kUsPerSec;

using Desk = store_test::AlarmDesk<SetClock>;

TEST(StoreAlarms, ATimeThatHasComeIsToldOnce) {
  const auto desk = Desk::create();
  desk->handle_something();
  EXPECT_FALSE(desk->alarms.must_set());
  desk->alarms.due_at(desk->clock.now_us());
  EXPECT_TRUE(desk->alarms.must_set());
  desk->alarms.set();
  EXPECT_EQ(desk->claims, 1);
  desk->alarms.leases_have_changed();
  desk->alarms.set();
  EXPECT_EQ(desk->claims, 1);
  EXPECT_FALSE(desk->alarms.must_set());
}

TEST(StoreAlarms, NobodyIsWokenForTimersThatNobodyTakes) {
  const auto desk = Desk::create();
  desk->alarms.due_at(desk->clock.now_us());
  desk->alarms.set();
  EXPECT_EQ(desk->claims, 0);
  // The time is not forgotten.
  desk->handle_something();
  desk->alarms.leases_have_changed();
  desk->alarms.set();
  EXPECT_EQ(desk->claims, 1);
  desk->runs.refuse();
  desk->alarms.due_at(desk->clock.now_us());
  desk->alarms.set();
  EXPECT_EQ(desk->claims, 1);
}

TEST(StoreAlarms, WhatTheStoreSaysReplacesWhatWasKnown) {
  const auto desk = Desk::create();
  desk->handle_something();
  desk->alarms.due_at(desk->clock.now_us());
  desk->alarms.next_claim_is(workflow::kNeverUs);
  desk->alarms.set();
  EXPECT_EQ(desk->claims, 0);
}

TEST(StoreAlarms, ManyHintsAreOneLookAtTheLeases) {
  const auto desk = Desk::create();
  EXPECT_TRUE(desk->alarms.take_hint());
  for (int i = 0; i < 10; i++) {
    desk->clock.move_us(1);
    EXPECT_FALSE(desk->alarms.take_hint());
  }
  desk->alarms.set();
  EXPECT_EQ(desk->extensions, 0);
  // Those that came too early are made up for.
  desk->clock.move_us(kUsPerSec);
  desk->alarms.leases_have_changed();
  desk->alarms.set();
  EXPECT_TRUE(eventually([&] { return desk->extensions == 1; }));
}

TEST(StoreAlarms, AClockThatIsSetBackMakesTheLeasesBeLookedAt) {
  const auto desk = Desk::create();
  desk->handle_something();
  EXPECT_TRUE(desk->alarms.take_hint());
  desk->alarms.due_at(desk->clock.now_us());
  desk->alarms.set();
  EXPECT_EQ(desk->extensions, 0);
  desk->clock.move_us(-3600 * kUsPerSec);
  desk->alarms.due_at(desk->clock.now_us());
  desk->alarms.set();
  EXPECT_EQ(desk->extensions, 1);
  // Hints count anew, too.
  EXPECT_TRUE(desk->alarms.take_hint());
}

}  // namespace
