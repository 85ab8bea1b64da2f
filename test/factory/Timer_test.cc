#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <limits>
#include <memory>

#include "factory/TimerTask.h"
#include "support/TimerOutcomes.h"
#include "util/Time.h"
#include "workflow/WFTaskFactory.h"

using test_support::Tally;
using test_support::TimerOutcomes;
using workflow::kNsPerMs;
using workflow::kNsPerSec;
using workflow::monotonic_ns;
using workflow::NamedTimerTask;

namespace {

// Long enough for a timer that wrongly expires to show itself; nothing else tells that something
// will not happen.
constexpr std::chrono::milliseconds kTimerQuiet{50};

// Starts the timer and returns how it ended.
TimerOutcomes::Outcome outcome_of(WFTimerTask* task) {
  TimerOutcomes outcomes;
  task->set_callback(outcomes.callback());
  task->start();
  EXPECT_TRUE(outcomes.wait_for(1));
  return outcomes.all().at(0);
}

void expect_success_after(WFTimerTask* task, int64_t delay_ns) {
  const int64_t start_ns = monotonic_ns();
  const TimerOutcomes::Outcome outcome = outcome_of(task);
  EXPECT_EQ(outcome.state, WFT_STATE_SUCCESS);
  EXPECT_EQ(outcome.error, 0);
  EXPECT_GE(outcome.at_ns - start_ns, delay_ns);
  EXPECT_LT(outcome.at_ns - start_ns, delay_ns + 10 * kNsPerSec);
}

}  // namespace

TEST(Timer, ZeroDelayExpiresAtOnce) {
  expect_success_after(WFTaskFactory::create_timer_task(0, 0, nullptr), 0);
  expect_success_after(WFTaskFactory::create_timer_task(0u, nullptr), 0);
  expect_success_after(WFTaskFactory::create_timer_task("name", 0, 0, nullptr), 0);
}

TEST(Timer, OneNanosecondExpires) {
  expect_success_after(WFTaskFactory::create_timer_task(0, 1, nullptr), 1);
  expect_success_after(WFTaskFactory::create_timer_task("name", 0, 1, nullptr), 1);
}

TEST(Timer, NeverExpiresEarly) {
  for (const int64_t delay_ns : {1'000L, 70'000L, 999'999L, 1'000'000L, 20'000'003L}) {
    expect_success_after(WFTaskFactory::create_timer_task(0, delay_ns, nullptr), delay_ns);
  }
  expect_success_after(WFTaskFactory::create_timer_task(1, 1, nullptr), kNsPerSec + 1);
}

TEST(Timer, TakesMicroseconds) {
  expect_success_after(WFTaskFactory::create_timer_task(30'000u, nullptr), 30 * kNsPerMs);
}

TEST(Timer, ManyAtOnceAreNeverEarlyAndAllExpire) {
  constexpr int kTimers = 2000;
  Tally done;
  std::atomic<int> early{0};
  std::atomic<int> others{0};
  for (int i = 0; i < kTimers; i++) {
    const long delay_ns = (i * 7919L) % (20 * kNsPerMs);
    const int64_t due_ns = monotonic_ns() + delay_ns;
    WFTaskFactory::create_timer_task(0, delay_ns, [&, due_ns](WFTimerTask* task) {
      early += monotonic_ns() < due_ns;
      others += task->get_state() != WFT_STATE_SUCCESS;
      done.add();
    })->start();
  }
  EXPECT_TRUE(done.wait_for(kTimers));
  EXPECT_EQ(early, 0);
  EXPECT_EQ(others, 0);
}

TEST(Timer, InvalidNanosecondsAreEinval) {
  for (const long nanoseconds : {-1L, 1'000'000'000L, LONG_MAX, LONG_MIN}) {
    for (const time_t seconds : {time_t{0}, time_t{-1}, std::numeric_limits<time_t>::max()}) {
      auto outcome = outcome_of(WFTaskFactory::create_timer_task(seconds, nanoseconds, nullptr));
      EXPECT_EQ(outcome.state, WFT_STATE_SYS_ERROR);
      EXPECT_EQ(outcome.error, EINVAL);
      outcome = outcome_of(WFTaskFactory::create_timer_task("name", seconds, nanoseconds, nullptr));
      EXPECT_EQ(outcome.state, WFT_STATE_SYS_ERROR);
      EXPECT_EQ(outcome.error, EINVAL);
    }
  }
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 0);
  EXPECT_TRUE(NamedTimerTask::registry().empty());
}

TEST(Timer, InvalidTimerHasNoNameToBeCancelledBy) {
  WFTimerTask* task = WFTaskFactory::create_timer_task("name", 0, -1, nullptr);
  EXPECT_EQ(task->get_error(), EINVAL);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 0);
  EXPECT_EQ(outcome_of(task).error, EINVAL);
}

TEST(Timer, NegativeSecondsNeverExpire) {
  TimerOutcomes outcomes;
  for (const time_t seconds : {time_t{-1}, time_t{-2}, std::numeric_limits<time_t>::min()}) {
    WFTaskFactory::create_timer_task("never", seconds, 0, outcomes.callback())->start();
  }
  EXPECT_FALSE(outcomes.wait_for(1, kTimerQuiet));
  EXPECT_EQ(WFTaskFactory::cancel_by_name("never"), 3);
  EXPECT_TRUE(outcomes.wait_for(3));
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), 3u);
}

TEST(Timer, HugeDelaysDoNotOverflowIntoThePast) {
  constexpr time_t kMaxSeconds = std::numeric_limits<int64_t>::max() / kNsPerSec;
  TimerOutcomes outcomes;
  int count = 0;
  for (const time_t seconds :
       {std::numeric_limits<time_t>::max(), std::numeric_limits<time_t>::max() - 1, kMaxSeconds + 1,
        kMaxSeconds, kMaxSeconds - 1, kMaxSeconds / 2, time_t{INT_MAX}, time_t{UINT_MAX}}) {
    for (const long nanoseconds : {0L, 1L, 854'775'807L, 854'775'808L, 999'999'999L}) {
      WFTaskFactory::create_timer_task("huge", seconds, nanoseconds, outcomes.callback())->start();
      count++;
    }
  }
  EXPECT_FALSE(outcomes.wait_for(1, kTimerQuiet));
  // What waits behind them still expires.
  expect_success_after(WFTaskFactory::create_timer_task(0, 1000, nullptr), 1000);
  EXPECT_EQ(WFTaskFactory::cancel_by_name("huge"), count);
  EXPECT_TRUE(outcomes.wait_for(static_cast<size_t>(count)));
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), static_cast<size_t>(count));
}

TEST(Timer, TheGreatestMicrosecondsAreMoreThanAnHour) {
  // An unnamed timer cannot be cancelled: this one ends with the process.
  static TimerOutcomes& at_exit = *new TimerOutcomes;
  WFTaskFactory::create_timer_task(UINT_MAX, at_exit.callback())->start();
  EXPECT_FALSE(at_exit.wait_for(1, kTimerQuiet));
}

TEST(Timer, CreatedWithACallbackAloneIsCancelledOnceStarted) {
  TimerOutcomes outcomes;
  WFTimerTask* task = WFTaskFactory::create_timer_task(outcomes.callback());
  EXPECT_FALSE(outcomes.wait_for(1, kTimerQuiet));
  task->start();
  EXPECT_TRUE(outcomes.wait_for(1));
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
}

TEST(Timer, HasNoStateBeforeItStarts) {
  WFTimerTask* task = WFTaskFactory::create_timer_task(0, 0, nullptr);
  EXPECT_EQ(task->get_state(), WFT_STATE_UNDEFINED);
  EXPECT_EQ(task->get_error(), 0);
  EXPECT_EQ(task->user_data, nullptr);
  EXPECT_EQ(series_of(task), nullptr);
  task->dismiss();
}

TEST(Timer, DismissedIsFreedWithoutACallback) {
  TimerOutcomes outcomes;
  auto captured = std::make_shared<int>();
  const auto callback = [&outcomes, captured](WFTimerTask* task) { outcomes.add(0, task); };
  WFTaskFactory::create_timer_task(0, 0, callback)->dismiss();
  WFTaskFactory::create_timer_task("name", 0, 0, callback)->dismiss();
  WFTaskFactory::create_timer_task(callback)->dismiss();
  EXPECT_EQ(captured.use_count(), 2) << "ours and the lambda's";
  EXPECT_FALSE(outcomes.wait_for(1, kTimerQuiet));
}

TEST(Timer, IsFreedAfterItsCallback) {
  Tally freed;
  Tally called;
  std::shared_ptr<void> captured(nullptr, [&freed](void*) { freed.add(); });
  WFTaskFactory::create_timer_task(0, 0, [&, captured](WFTimerTask*) {
    EXPECT_EQ(freed.count(), 0u);
    called.add();
  })->start();
  captured.reset();
  EXPECT_TRUE(freed.wait_for(1));
  EXPECT_EQ(called.count(), 1u);
}

TEST(Timer, CallbackMayBeNull) {
  Tally done;
  SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_timer_task(0, 0, nullptr),
                                                    [&done](const SeriesWork*) { done.add(); });
  series->push_back(WFTaskFactory::create_timer_task("name", 0, 0, nullptr));
  series->push_back(WFTaskFactory::create_timer_task(nullptr));
  series->start();
  EXPECT_TRUE(done.wait_for(1));
}

TEST(Timer, CallbackSeesItsTaskAndMayExtendItsSeries) {
  TimerOutcomes outcomes;
  int data = 0;
  WFTimerTask* task = WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask* self) {
    EXPECT_EQ(self->user_data, &data);
    EXPECT_NE(series_of(self), nullptr);
    series_of(self)->push_back(WFTaskFactory::create_timer_task(0, 0, outcomes.callback(1)));
    outcomes.add(0, self);
  });
  task->user_data = &data;
  task->start();
  EXPECT_TRUE(outcomes.wait_for(2));
  EXPECT_EQ(outcomes.tags(), (std::vector<int>{0, 1}));
}

TEST(Timer, CallbackRunsOnAnotherThread) {
  EXPECT_NE(outcome_of(WFTaskFactory::create_timer_task(0, 0, nullptr)).thread,
            std::this_thread::get_id());
  EXPECT_NE(outcome_of(WFTaskFactory::create_timer_task(0, -1, nullptr)).thread,
            std::this_thread::get_id());
  EXPECT_NE(outcome_of(WFTaskFactory::create_timer_task(nullptr)).thread,
            std::this_thread::get_id());
}
