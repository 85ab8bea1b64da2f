#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include "ManualTime.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

using probes::advance;
using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using test_support::TimerOutcomes;

namespace {

constexpr nanoseconds kForever{-1};

// Named, so that a timer may be moved by its name and by its handle.
class Reschedule : public testing::Test {
 protected:
  Reschedule() { EXPECT_EQ(WFManualClock::install(), 0); }

  WFTimerHandle start(const std::string& name, nanoseconds delay, int tag = 0) {
    WFTimerTask* task = WFTimer::create(delay, {name}, outcomes_.callback(tag));
    const WFTimerHandle handle = WFTimer::handle_of(task);
    task->start();
    return handle;
  }
  size_t succeeded() const { return outcomes_.count(WFT_STATE_SUCCESS, 0); }

  TimerOutcomes outcomes_;
};

}  // namespace

TEST_F(Reschedule, MovesLater) {
  const WFTimerHandle handle = start("a", seconds(10));
  advance(seconds(9));
  EXPECT_EQ(handle.reschedule(seconds(10)), WFTimerMove::kWon);
  EXPECT_EQ(handle.remaining(), seconds(10));
  advance(seconds(10) - nanoseconds(1));
  EXPECT_EQ(succeeded(), 0u);
  EXPECT_EQ(handle.remaining(), nanoseconds(1));
  advance(nanoseconds(1));
  EXPECT_EQ(succeeded(), 1u);
  EXPECT_EQ(handle.reschedule(seconds(1)), WFTimerMove::kDone);
}

TEST_F(Reschedule, MovesEarlier) {
  const WFTimerHandle handle = start("a", hours(1));
  EXPECT_EQ(handle.reschedule(seconds(1)), WFTimerMove::kWon);
  EXPECT_EQ(handle.remaining(), seconds(1));
  advance(seconds(1));
  EXPECT_EQ(succeeded(), 1u);
  advance(hours(2));
  EXPECT_EQ(outcomes_.size(), 1u);
}

TEST_F(Reschedule, MovesLaterThenEarlierThanAtFirst) {
  const WFTimerHandle handle = start("a", seconds(10));
  handle.reschedule(hours(1));
  EXPECT_EQ(handle.remaining(), hours(1));
  handle.reschedule(seconds(20));  // between: later than the queue knows
  EXPECT_EQ(handle.remaining(), seconds(20));
  handle.reschedule(seconds(5));
  EXPECT_EQ(handle.remaining(), seconds(5));
  advance(seconds(5));
  EXPECT_EQ(succeeded(), 1u);
}

TEST_F(Reschedule, BetweenAnEarlierMoveAndTheQueue) {
  const WFTimerHandle handle = start("a", seconds(10));
  handle.reschedule(hours(1));
  handle.reschedule(seconds(20));
  advance(seconds(20) - nanoseconds(1));
  EXPECT_EQ(succeeded(), 0u);
  advance(nanoseconds(1));
  EXPECT_EQ(succeeded(), 1u);
}

TEST_F(Reschedule, ToNeverAndBack) {
  const WFTimerHandle handle = start("a", seconds(10));
  EXPECT_EQ(handle.reschedule(kForever), WFTimerMove::kWon);
  EXPECT_EQ(handle.remaining(), nanoseconds::max());
  advance(hours(100));
  EXPECT_EQ(outcomes_.size(), 0u);
  EXPECT_EQ(handle.reschedule(seconds(1)), WFTimerMove::kWon);
  advance(seconds(1));
  EXPECT_EQ(succeeded(), 1u);
}

TEST_F(Reschedule, BeforeTheStartChangesTheDelay) {
  WFTimerTask* task = WFTimer::create(hours(1), outcomes_.callback());
  const WFTimerHandle handle = WFTimer::handle_of(task);
  EXPECT_EQ(handle.remaining(), hours(1));
  EXPECT_EQ(handle.reschedule(seconds(3)), WFTimerMove::kWon);
  EXPECT_EQ(handle.remaining(), seconds(3));
  advance(hours(2));
  task->start();
  EXPECT_EQ(handle.remaining(), seconds(3));
  advance(seconds(3));
  EXPECT_EQ(succeeded(), 1u);
}

TEST_F(Reschedule, OfACancelledTimerIsTooLate) {
  WFTimerTask* task = WFTimer::create(hours(1), outcomes_.callback());
  const WFTimerHandle handle = WFTimer::handle_of(task);
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  EXPECT_EQ(handle.reschedule(seconds(3)), WFTimerMove::kTooLate);
  EXPECT_FALSE(handle.remaining());
  task->start();
  advance(seconds(0));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
}

TEST_F(Reschedule, AMovedTimerIsStillCancelledByItsName) {
  const WFTimerHandle handle = start("a", seconds(10));
  handle.reschedule(hours(1));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("a"), 1);
  advance(hours(2));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
}

TEST_F(Reschedule, ByNameMovesAllOfTheName) {
  for (int i = 0; i < 1000; i++) {
    start("many", seconds(10 + i % 7));
  }
  start("other", seconds(10));
  EXPECT_EQ(WFTimer::reschedule("many", hours(1)), 1000u);
  EXPECT_EQ(WFTimer::reschedule("none", hours(1)), 0u);
  EXPECT_EQ(WFTimer::count("many"), 1000u);
  advance(hours(1) - nanoseconds(1));
  EXPECT_EQ(succeeded(), 1u);
  advance(nanoseconds(1));
  EXPECT_EQ(succeeded(), 1001u);
  EXPECT_EQ(WFTimer::reschedule("many", hours(1)), 0u);
}

TEST_F(Reschedule, ByNameLeavesTheCancelledAlone) {
  WFTimerTask* task = WFTimer::create(hours(1), {"a"}, outcomes_.callback());
  EXPECT_EQ(WFTaskFactory::cancel_by_name("a"), 1);
  EXPECT_EQ(WFTimer::reschedule("a", seconds(1)), 0u);
  task->dismiss();
}

// A lease that is renewed a million times: no drift, no leftovers, and the clock goes from deadline
// to deadline as if there were one.
TEST_F(Reschedule, AMillionRenewals) {
  const WFTimerHandle handle = start("lease", seconds(30));
  start("tick", hours(1));
  for (int i = 0; i < 1'000'000; i++) {
    ASSERT_EQ(handle.reschedule(seconds(30)), WFTimerMove::kWon);
    if (i % 1000 == 0) {
      advance(seconds(1));
    }
  }
  EXPECT_EQ(handle.remaining(), seconds(30));
  EXPECT_TRUE(WFManualClock::advance_to_next_deadline());
  EXPECT_EQ(WFManualClock::now_ns(), nanoseconds(seconds(1030)).count());
  EXPECT_EQ(succeeded(), 1u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("tick"), 1);
  advance(seconds(0));
}

TEST_F(Reschedule, ManyPutOffTimersExpireInTheOrderOfTheirNewDeadlines) {
  std::vector<WFTimerHandle> handles;
  for (int i = 0; i < 2000; i++) {
    handles.push_back(start("t" + std::to_string(i), seconds(1), i));
  }
  for (int i = 0; i < 2000; i++) {
    handles[static_cast<size_t>(i)].reschedule(seconds(3000 - i));
  }
  advance(seconds(999));
  EXPECT_EQ(outcomes_.size(), 0u);
  for (int i = 2000; i-- > 0;) {
    ASSERT_TRUE(WFManualClock::advance_to_next_deadline());
    ASSERT_EQ(outcomes_.tags().back(), i);
  }
}
