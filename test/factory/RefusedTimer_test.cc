#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "support/Tally.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFCron.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"
#include "workflow/Workflow.h"

// A timer that is refused when it is created: what its callback will see is decided then, so every
// call about it is too late, and get_error() stays true.

using std::chrono::hours;
using std::chrono::seconds;
using test_support::Tally;
using test_support::TimerOutcomes;

namespace {

const std::string kName = "refused timer";

enum class Reason {
  kNameIsTaken,
  kQuota,
  kQuotaAndReplace,
  kPeriod,
  kNamedPeriod,
  kCron,
  kNanoseconds,
  kNamedNanoseconds,
  kCancelled
};

struct Refusal {
  Reason reason;
  const char* text;
  int error;
};

void PrintTo(const Refusal& kind, std::ostream* out) {
  *out << kind.text;
}

class RefusedTimer : public testing::TestWithParam<Refusal> {
 protected:
  RefusedTimer() {
    WFTimer::create(hours(1), {kName}, others_.callback())->start();
    task_ = create();
    handle_ = WFTimer::handle_of(task_);
  }
  ~RefusedTimer() override {
    EXPECT_EQ(WFTimer::set_quota(kName, WFTimer::kNoQuota), 0);
    EXPECT_EQ(WFTimer::set_quota(kName + "/other", WFTimer::kNoQuota), 0);
    WFTaskFactory::cancel_by_name(kName);
    EXPECT_TRUE(others_.wait_for(1));
  }

  void expect_that_it_ends_as_announced() {
    EXPECT_TRUE(outcomes_.wait_for(1));
    EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, GetParam().error), 1u);
    EXPECT_EQ(others_.size(), 0u);  // nobody else was ended for its sake
  }

  TimerOutcomes outcomes_;
  TimerOutcomes others_;
  WFTimerTask* task_;
  WFTimerHandle handle_;

 private:
  WFTimerTask* create() {
    WFTimerOptions named;
    named.name = kName;
    switch (GetParam().reason) {
      case Reason::kNameIsTaken:
        named.policy = WF_TIMER_KEEP;
        break;
      case Reason::kQuota:
        EXPECT_EQ(WFTimer::set_quota(kName, 1), 0);
        break;
      case Reason::kQuotaAndReplace:
        // One that takes the place of another would fit: so a name that nobody has.
        named.name = kName + "/other";
        named.policy = WF_TIMER_REPLACE;
        EXPECT_EQ(WFTimer::set_quota(*named.name, 0), 0);
        break;
      case Reason::kPeriod:
        return WFTimer::create_periodic({}, {}, nullptr, outcomes_.callback());
      case Reason::kNamedPeriod:
        named.policy = WF_TIMER_REPLACE;
        return WFTimer::create_periodic({}, named, nullptr, outcomes_.callback());
      case Reason::kCron:
        named.policy = WF_TIMER_REPLACE;
        return WFTimer::create_cron(*WFCron::parse("0 0 30 2 *"), named, nullptr,
                                    outcomes_.callback());
      case Reason::kNanoseconds:
        return WFTaskFactory::create_timer_task(0, -1, outcomes_.callback());
      case Reason::kNamedNanoseconds:
        return WFTaskFactory::create_timer_task(kName, 0, 1'000'000'000, outcomes_.callback());
      case Reason::kCancelled:
        return WFTaskFactory::create_timer_task(outcomes_.callback());
    }
    return WFTimer::create(hours(1), named, outcomes_.callback());
  }
};

constexpr Refusal kRefusals[] = {
    {Reason::kNameIsTaken, "NameIsTaken", EEXIST},
    {Reason::kQuota, "Quota", EDQUOT},
    {Reason::kQuotaAndReplace, "QuotaAndReplace", EDQUOT},
    {Reason::kPeriod, "Period", EINVAL},
    {Reason::kNamedPeriod, "NamedPeriod", EINVAL},
    {Reason::kCron, "Cron", EINVAL},
    {Reason::kNanoseconds, "Nanoseconds", EINVAL},
    {Reason::kNamedNanoseconds, "NamedNanoseconds", EINVAL},
    {Reason::kCancelled, "Cancelled", ECANCELED},
};

std::string kind_of(const testing::TestParamInfo<Refusal>& info) {
  return info.param.text;
}

INSTANTIATE_TEST_SUITE_P(Each, RefusedTimer, testing::ValuesIn(kRefusals), kind_of);

}  // namespace

TEST_P(RefusedTimer, IsTooLateToCancelAndRescheduleBeforeItsStart) {
  EXPECT_EQ(task_->get_error(), GetParam().error);
  EXPECT_EQ(handle_.reschedule(seconds(1)), WFTimerMove::kTooLate);
  EXPECT_EQ(handle_.cancel(), WFTimerCancel::kTooLate);
  EXPECT_EQ(handle_.cancel(), WFTimerCancel::kTooLate);
  EXPECT_EQ(handle_.reschedule(seconds(1)), WFTimerMove::kTooLate);
  EXPECT_FALSE(handle_.remaining());
  EXPECT_EQ(task_->get_error(), GetParam().error);
  task_->start();
  expect_that_it_ends_as_announced();
  // kTooLate if the callback is about to return.
  EXPECT_NE(handle_.cancel_and_wait(), WFTimerCancel::kWon);
  EXPECT_EQ(handle_.cancel(), WFTimerCancel::kDone);
}

TEST_P(RefusedTimer, HasNoName) {
  EXPECT_EQ(WFTimer::count_prefix(kName), 1u);  // of the other timer
  EXPECT_EQ(WFTimer::reschedule(kName, hours(2)), 1u);
  EXPECT_EQ(WFTaskFactory::cancel_by_name(kName), 1);
  EXPECT_TRUE(others_.wait_for(1));
  task_->start();
  EXPECT_TRUE(outcomes_.wait_for(1));
  EXPECT_EQ(outcomes_.count(WFT_STATE_SYS_ERROR, GetParam().error), 1u);
}

TEST_P(RefusedTimer, IsWaitedForUntilItHasEnded) {
  Tally told;
  std::thread waiter([&] {
    EXPECT_NE(handle_.cancel_and_wait(), WFTimerCancel::kWon);
    EXPECT_EQ(outcomes_.size(), 1u);
    told.add();
  });
  EXPECT_FALSE(told.wait_for(1, std::chrono::milliseconds(20)));
  task_->start();
  waiter.join();
  expect_that_it_ends_as_announced();
}

TEST_P(RefusedTimer, IsWaitedForUntilItIsDropped) {
  std::thread waiter([&] { EXPECT_NE(handle_.cancel_and_wait(), WFTimerCancel::kWon); });
  task_->dismiss();
  waiter.join();
  EXPECT_EQ(outcomes_.size(), 0u);
}

TEST_P(RefusedTimer, EndsAsAnnouncedInADeadlineThatHasPassed) {
  Tally ended;
  with_deadline(task_, seconds(0), [&](WFDeadlineTask* task) {
    EXPECT_EQ(task->get_error(), ETIMEDOUT);
    ended.add();
  })->start();
  EXPECT_TRUE(ended.wait_for(1));
  expect_that_it_ends_as_announced();
}

// Its time has come, it has left the queue and it has a name still: then a cancel would win.
TEST(TooLateTimer, ToldByAHandleIsNeverFollowedByWon) {
  constexpr int kTimers = 3000;
  TimerOutcomes outcomes;
  int late = 0;
  for (int i = 0; i < kTimers; i++) {
    auto* task =
        WFTimer::create(std::chrono::microseconds(i % 50), {"too late"}, outcomes.callback());
    const WFTimerHandle handle = WFTimer::handle_of(task);
    task->start();
    WFTimerMove verdict = WFTimerMove::kWon;
    while (verdict == WFTimerMove::kWon) {
      verdict = handle.reschedule(std::chrono::nanoseconds(0));
    }
    late += verdict == WFTimerMove::kTooLate;
    EXPECT_NE(handle.cancel(), WFTimerCancel::kWon);
  }
  EXPECT_TRUE(outcomes.wait_for(kTimers));
  EXPECT_EQ(outcomes.count(WFT_STATE_SUCCESS, 0), static_cast<size_t>(kTimers));
  EXPECT_GT(late, 0);
}

// In a tick it is too late to move that one, and not for a cancel: the timer goes on.
TEST(TooLateTimer, OfAPeriodicTimerInATickIsTheTickAlone) {
  TimerOutcomes outcomes;
  Tally ticks;
  Tally go_on;
  WFTimerPeriod period;
  period.every = hours(1);
  period.first = seconds(0);
  auto* task = WFTimer::create_periodic(
      period, {},
      [&](const WFTimerTick&) {
        ticks.add();
        EXPECT_TRUE(go_on.wait_for(1));
      },
      outcomes.callback());
  const WFTimerHandle handle = WFTimer::handle_of(task);
  task->start();
  EXPECT_TRUE(ticks.wait_for(1));
  EXPECT_EQ(handle.reschedule(seconds(0)), WFTimerMove::kTooLate);
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  EXPECT_EQ(handle.reschedule(seconds(0)), WFTimerMove::kTooLate);
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kTooLate);
  go_on.add();
  EXPECT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
}
