// Timers of other clocks when the process has no descriptors left.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>

#include "support/Descriptors.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::system_clock;
using test_support::TimerOutcomes;

TEST(TimerClockFaults, WithoutDescriptorsTimersOfOtherClocksEndAndMonotonicOnesGoOn) {
  TimerOutcomes outcomes;
  WFTimer::create(milliseconds(0), outcomes.callback())->start();
  ASSERT_TRUE(outcomes.wait_for(1));
  {
    const test_support::NoDescriptors none;
    WFTimerTask* const date =
        WFTimer::create(system_clock::now() + hours(1), {"a"}, outcomes.callback());
    const WFTimerHandle handle = WFTimer::handle_of(date);
    date->start();
    WFTimer::create({hours(1), WF_CLOCK_BOOTTIME}, outcomes.callback())->start();
    ASSERT_TRUE(outcomes.wait_for(3));
    EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, EMFILE), 2u);
    EXPECT_EQ(WFTimer::count("a"), 0u);
    EXPECT_NE(handle.cancel_and_wait(),
              WFTimerCancel::kWon);  // its callback may be about to return
    EXPECT_EQ(handle.cancel(), WFTimerCancel::kDone);
    WFTimer::create(milliseconds(1), outcomes.callback())->start();
    WFTimer::create(system_clock::now(), outcomes.callback())->start();  // due: needs none
    ASSERT_TRUE(outcomes.wait_for(5));
    EXPECT_EQ(outcomes.count(WFT_STATE_SUCCESS, 0), 3u);
  }
  WFTimer::create(system_clock::now() + milliseconds(1), outcomes.callback())->start();
  WFTimer::create({milliseconds(1), WF_CLOCK_BOOTTIME}, outcomes.callback())->start();
  ASSERT_TRUE(outcomes.wait_for(7));
  EXPECT_EQ(outcomes.count(WFT_STATE_SUCCESS, 0), 5u);
}

// Each poller has at most one more.
TEST(TimerClockFaults, ManyTimersOfOtherClocksTakeNoMoreDescriptors) {
  TimerOutcomes outcomes;
  WFTimer::create(milliseconds(0), outcomes.callback())->start();
  ASSERT_TRUE(outcomes.wait_for(1));
  const size_t before = test_support::descriptor_count();
  for (int i = 0; i < 1000; i++) {
    WFTimer::create({hours(1), i % 2 ? WF_CLOCK_BOOTTIME : WF_CLOCK_WALL}, {"a"},
                    outcomes.callback())
        ->start();
  }
  EXPECT_LE(test_support::descriptor_count(), before + 1);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("a"), 1000);
  EXPECT_TRUE(outcomes.wait_for(1001));
}
