#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "workflow/WFFacilities.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTimerStore.h"

// A case that docs/store.md shows. It has a program of its own for the manual clock.

using std::chrono::minutes;

TEST(StoreExamplesClock, RemindsAfterAnHour) {
  ASSERT_EQ(WFManualClock::install(), 0);
  WFFacilities::WaitGroup reminded(1);
  std::atomic<bool> was_reminded{false};
  const std::unique_ptr<WFTimerStore> store(WFTimerStore::open("memory:test"));
  store->handle("remind", [&](WFStoredTimer*) {
    was_reminded = true;
    reminded.done();
  });
  WFStoreTimer timer;
  timer.name = "tea";
  timer.due = minutes(60);
  timer.kind = "remind";
  ASSERT_TRUE(store->schedule(timer).ok());

  WFManualClock::advance(minutes(59));
  EXPECT_EQ(store->list("tea").timers.at(0).stage, WFStoreStage::kWaiting);
  EXPECT_FALSE(was_reminded);
  WFManualClock::advance(minutes(1));
  reminded.wait();  // the store has threads of its own
}
