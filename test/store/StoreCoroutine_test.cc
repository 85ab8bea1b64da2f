// Requests to a store in coroutines.

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "workflow/WFCoroutine.h"
#include "workflow/WFTimerStore.h"

namespace {

WFStoreTimer tea_in_an_hour() {
  WFStoreTimer timer;
  timer.name = "tea";
  timer.kind = "kettle";
  timer.due = std::chrono::hours(1);
  return timer;
}

WFCo<> schedule_and_cancel(WFTimerStore& store) {
  const auto stored = co_await store.create_schedule_task(tea_in_an_hour(), nullptr);
  EXPECT_TRUE(stored);
  EXPECT_EQ(stored.value->error, 0);
  const auto cancelled = co_await store.create_cancel_task("tea", nullptr);
  EXPECT_TRUE(cancelled);
  EXPECT_EQ(cancelled.value->answers.size(), 1U);
}

TEST(StoreCoroutine, RequestsGiveTheirResults) {
  const std::unique_ptr<WFTimerStore> store(WFTimerStore::open("memory:coroutine"));
  wf::wait(schedule_and_cancel, std::ref(*store));
}

WFCo<> ask_a_closed_store(WFTimerStore& store) {
  const auto stored = co_await store.create_schedule_task(tea_in_an_hour(), nullptr);
  EXPECT_FALSE(stored);
  EXPECT_NE(stored.error, 0);
  EXPECT_TRUE(stored.value.has_value()) << "it says why";
}

TEST(StoreCoroutine, ARequestThatFailsGivesItsResult) {
  const std::unique_ptr<WFTimerStore> store(WFTimerStore::open("memory:coroutine"));
  store->close();
  wf::wait(ask_a_closed_store, std::ref(*store));
}

}  // namespace
