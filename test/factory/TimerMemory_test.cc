#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/Sanitizers.h"
#include "support/Tally.h"
#include "util/Pages.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

// The memory of many timers returns to Pages when they have gone.

using std::chrono::hours;
using std::chrono::milliseconds;
using test_support::Tally;
using workflow::Pages;

namespace {

class TimerMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (test_support::kSanitized || Pages::plain()) {
      GTEST_SKIP() << "the memory of a sanitizer is not that of the library";
    }
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.poller_threads = 1;
    settings.handler_threads = 2;
    WORKFLOW_library_init(&settings);
    Tally first;
    WFTimer::create(milliseconds(0), {"first"}, [&first](WFTimerTask*) { first.add(); })->start();
    ASSERT_TRUE(first.wait_for(1));
    before_ = Pages::count();
  }

  // Each thread of the library may keep two batches of blocks, each of another piece.
  void expect_returned(size_t kept_by_tables) const {
    const size_t most = before_ + 150 + kept_by_tables;
    for (int i = 0; i < 60'000 && Pages::count() > most; i++) {
      std::this_thread::sleep_for(milliseconds(1));  // the poller's turn
    }
    EXPECT_LE(Pages::count(), most);
  }

  size_t before_ = 0;
};

constexpr size_t kTimers = 200'000;  // some 900 pieces

TEST_F(TimerMemory, ReturnsWhenTheyExpire) {
  Tally ended;
  std::vector<WFTimerTask*> timers;
  for (size_t i = 0; i < kTimers; i++) {
    timers.push_back(
        WFTimer::create(milliseconds(i * 7919 % 500), [&ended](WFTimerTask*) { ended.add(); }));
  }
  EXPECT_GE(Pages::count(), before_ + 500);
  for (WFTimerTask* timer : timers) {
    timer->start();
  }
  ASSERT_TRUE(ended.wait_for(kTimers));
  expect_returned(0);
}

// Nothing expires then for an hour.
TEST_F(TimerMemory, ReturnsWhenTheyAreCancelled) {
  Tally ended;
  std::vector<WFTimerHandle> handles;
  for (size_t i = 0; i < kTimers; i++) {
    WFTimerTask* const task = WFTimer::create(hours(1), [&ended](WFTimerTask*) { ended.add(); });
    handles.push_back(WFTimer::handle_of(task));
    task->start();
  }
  EXPECT_GE(Pages::count(), before_ + 500);
  for (size_t i = 0; i < kTimers; i++) {
    ASSERT_EQ(handles[i * 7919 % kTimers].cancel(), WFTimerCancel::kWon);
  }
  ASSERT_TRUE(ended.wait_for(kTimers));
  expect_returned(0);
}

TEST_F(TimerMemory, OfNamesReturnsButForTheirTable) {
  Tally ended;
  for (size_t i = 0; i < kTimers; i++) {
    WFTimer::create(hours(1), {"name " + std::to_string(i)}, [&ended](WFTimerTask*) {
      ended.add();
    })->start();
  }
  EXPECT_GE(Pages::count(), before_ + 1000);
  for (size_t i = 0; i < kTimers; i++) {
    ASSERT_EQ(WFTaskFactory::cancel_by_name("name " + std::to_string(i * 7919 % kTimers)), 1);
  }
  ASSERT_TRUE(ended.wait_for(kTimers));
  expect_returned(256);
}

}  // namespace
