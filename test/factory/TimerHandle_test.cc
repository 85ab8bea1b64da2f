#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "TaskProbes.h"
#include "support/Eventually.h"
#include "support/TimerOutcomes.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"
#include "workflow/Workflow.h"

using probes::kQuiet;
using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using test_support::eventually;
using test_support::Tally;
using test_support::TimerOutcomes;

namespace {

// With and without a name; nothing else differs for a handle.
class TimerHandle : public testing::TestWithParam<bool> {
 protected:
  WFTimerTask* create(nanoseconds delay, int tag = 0) {
    return GetParam() ? WFTimer::create(delay, {"name"}, outcomes_.callback(tag))
                      : WFTimer::create(delay, outcomes_.callback(tag));
  }
  size_t ended(int state, int error) const { return outcomes_.count(state, error); }

  TimerOutcomes outcomes_;
};

std::string named_or_not(const testing::TestParamInfo<bool>& info) {
  return info.param ? "Named" : "Unnamed";
}

INSTANTIATE_TEST_SUITE_P(Timers, TimerHandle, testing::Bool(), named_or_not);

}  // namespace

TEST_P(TimerHandle, CancelWinsAndTheCallbackSeesIt) {
  WFTimerTask* task = create(hours(1));
  const WFTimerHandle handle = WFTimer::handle_of(task);
  task->start();
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  EXPECT_TRUE(outcomes_.wait_for(1));
  EXPECT_EQ(ended(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
}

TEST_P(TimerHandle, CancelBeforeTheStartIsMetByTheStart) {
  WFTimerTask* task = create(hours(1));
  const WFTimerHandle handle = WFTimer::handle_of(task);
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  EXPECT_FALSE(outcomes_.wait_for(1, kQuiet));
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kTooLate);  // decided by the first
  task->start();
  EXPECT_TRUE(outcomes_.wait_for(1));
  EXPECT_EQ(ended(WFT_STATE_SYS_ERROR, ECANCELED), 1u);
}

TEST_P(TimerHandle, OnlyOneOfManyCancelsWins) {
  for (int round = 0; round < 300; round++) {
    WFTimerTask* task = create(hours(1));
    const WFTimerHandle handle = WFTimer::handle_of(task);
    std::atomic<int> won{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; i++) {
      threads.emplace_back([&, i] {
        won += i == 2 && GetParam() ? WFTaskFactory::cancel_by_name("name")
                                    : handle.cancel() == WFTimerCancel::kWon;
      });
    }
    task->start();
    threads.clear();  // joins them
    ASSERT_EQ(won, 1);
  }
  EXPECT_TRUE(outcomes_.wait_for(300));
  EXPECT_EQ(ended(WFT_STATE_SYS_ERROR, ECANCELED), 300u);
}

TEST_P(TimerHandle, IsSafeForEverAfterTheEnd) {
  std::vector<WFTimerHandle> handles;
  for (int i = 0; i < 1000; i++) {  // each slot is used again and again
    WFTimerTask* task = create(nanoseconds(0));
    handles.push_back(WFTimer::handle_of(task));
    task->start();
    ASSERT_TRUE(outcomes_.wait_for(static_cast<size_t>(i) + 1));
  }
  WFTimerTask* last = create(hours(1));
  const WFTimerHandle handle = WFTimer::handle_of(last);
  last->start();
  for (const WFTimerHandle& old : handles) {
    old.cancel_and_wait();  // the callback may be on its way out
    ASSERT_EQ(old.cancel(), WFTimerCancel::kDone);
    ASSERT_EQ(old.reschedule(seconds(0)), WFTimerMove::kDone);
    ASSERT_FALSE(old.remaining());
    ASSERT_NE(old, handle);
  }
  EXPECT_EQ(outcomes_.size(), 1000u);
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kWon);
  EXPECT_TRUE(outcomes_.wait_for(1001));
}

TEST_P(TimerHandle, OfADismissedTimerSaysDone) {
  WFTimerTask* task = create(hours(1));
  const WFTimerHandle handle = WFTimer::handle_of(task);
  task->dismiss();
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kDone);
  EXPECT_EQ(handle.cancel_and_wait(), WFTimerCancel::kDone);
  EXPECT_EQ(handle.reschedule(seconds(1)), WFTimerMove::kDone);
}

TEST_P(TimerHandle, WhileTheTimerIsDismissedEveryCallIsTooLate) {
  struct Captured {
    ~Captured() {
      EXPECT_EQ(handle.cancel(), WFTimerCancel::kTooLate);
      EXPECT_EQ(handle.reschedule(seconds(1)), WFTimerMove::kTooLate);
      EXPECT_FALSE(handle.remaining());
    }
    WFTimerHandle handle;
  };
  WFTimerTask* task = create(hours(1));
  auto captured = std::make_shared<Captured>();
  const std::weak_ptr<Captured> left = captured;
  captured->handle = WFTimer::handle_of(task);
  task->set_callback([captured](WFTimerTask*) {});
  captured.reset();
  task->dismiss();
  EXPECT_TRUE(left.expired());
}

TEST_P(TimerHandle, OfATimerOfACancelledSeriesSaysDone) {
  WFTimerTask* task = create(hours(1));
  const WFTimerHandle handle = WFTimer::handle_of(task);
  WFFacilities::WaitGroup over(1);
  SeriesWork* series = Workflow::create_series_work(
      WFTaskFactory::create_timer_task(0, 0,
                                       [](WFTimerTask* first) { series_of(first)->cancel(); }),
      [&over](const SeriesWork*) { over.done(); });
  series->push_back(task);
  series->start();
  over.wait();
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kDone);
  EXPECT_EQ(outcomes_.size(), 0u);
}

TEST_P(TimerHandle, IsTheSameEachTimeItIsAskedFor) {
  WFTimerTask* task = create(hours(1));
  EXPECT_EQ(WFTimer::handle_of(task), WFTimer::handle_of(task));
  EXPECT_NE(WFTimer::handle_of(task), WFTimerHandle());
  task->dismiss();
}

TEST_P(TimerHandle, IsNotGivenOutInTheCallback) {
  Tally done;
  WFTimerTask* task = create(nanoseconds(0));
  task->set_callback([&](WFTimerTask* self) {
    EXPECT_EQ(WFTimer::handle_of(self), WFTimerHandle());
    done.add();
  });
  task->start();
  EXPECT_TRUE(done.wait_for(1));
}

TEST_P(TimerHandle, InsideTheCallbackSaysRunning) {
  WFTimerTask* task = create(nanoseconds(0));
  const WFTimerHandle handle = WFTimer::handle_of(task);
  Tally done;
  task->set_callback([&](WFTimerTask* self) {
    EXPECT_EQ(self->get_state(), WFT_STATE_SUCCESS);
    EXPECT_EQ(handle.cancel(), WFTimerCancel::kTooLate);
    EXPECT_EQ(handle.reschedule(seconds(0)), WFTimerMove::kTooLate);
    EXPECT_FALSE(handle.remaining());
    errno = 0;
    EXPECT_EQ(handle.cancel_and_wait(), WFTimerCancel::kWouldDeadlock);
    EXPECT_EQ(errno, EDEADLK);
    done.add();
  });
  task->start();
  EXPECT_TRUE(done.wait_for(1));
}

TEST_P(TimerHandle, CancelAndWaitReturnsAfterTheCallback) {
  Tally begun;
  Tally go_on;
  std::atomic<bool> over{false};
  WFTimerTask* task = create(nanoseconds(0));
  const WFTimerHandle handle = WFTimer::handle_of(task);
  task->set_callback([&](WFTimerTask*) {
    begun.add();
    EXPECT_TRUE(go_on.wait_for(1));
    over = true;
  });
  task->start();
  ASSERT_TRUE(begun.wait_for(1));
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kTooLate);
  std::thread waiter([&] {
    // WFTimerCancel::kDone if this thread begins so late that nothing is left to wait for.
    EXPECT_NE(handle.cancel_and_wait(), WFTimerCancel::kWon);
    EXPECT_TRUE(over);
  });
  std::this_thread::sleep_for(kQuiet);  // usually the waiter waits now
  EXPECT_FALSE(over);
  go_on.add();
  waiter.join();
  EXPECT_EQ(handle.cancel_and_wait(), WFTimerCancel::kDone);
}

TEST_P(TimerHandle, CancelAndWaitWaitsForItsOwnCancel) {
  for (int round = 0; round < 300; round++) {
    auto captured = std::make_shared<int>(round);
    const std::weak_ptr<int> left = captured;
    std::atomic<int> runs{0};
    WFTimerTask* task = create(hours(1));
    task->set_callback(
        [&runs, captured](WFTimerTask* self) { runs += self->get_error() == ECANCELED ? 1 : 100; });
    captured.reset();
    const WFTimerHandle handle = WFTimer::handle_of(task);
    task->start();
    ASSERT_EQ(handle.cancel_and_wait(), WFTimerCancel::kWon);
    ASSERT_EQ(runs, 1);
    ASSERT_TRUE(left.expired());
  }
}

TEST_P(TimerHandle, AWaitOnAFrameworkThreadLendsIt) {
  struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
  settings.handler_threads = 1;
  WORKFLOW_library_init(&settings);
  WFTimerTask* task = create(hours(1));
  const WFTimerHandle handle = WFTimer::handle_of(task);
  task->start();
  Tally done;
  WFTimer::create(nanoseconds(0), [&](WFTimerTask*) {
    EXPECT_EQ(handle.cancel_and_wait(), WFTimerCancel::kWon);
    EXPECT_EQ(outcomes_.size(), 1u);
    done.add();
  })->start();
  EXPECT_TRUE(done.wait_for(1));
}

TEST_P(TimerHandle, WaitsForOneThatIsNotStartedUntilItIsDropped) {
  WFTimerTask* task = create(hours(1));
  const WFTimerHandle handle = WFTimer::handle_of(task);
  Tally returned;
  std::thread waiter([&] {
    EXPECT_EQ(handle.cancel_and_wait(), WFTimerCancel::kWon);
    returned.add();
  });
  EXPECT_TRUE(eventually([&] { return !handle.remaining(); }));  // cancelled
  EXPECT_FALSE(returned.wait_for(1, kQuiet));
  task->dismiss();
  EXPECT_TRUE(returned.wait_for(1));
  waiter.join();
}

TEST(TimerHandleOfNothing, SaysSo) {
  const WFTimerHandle handle;
  EXPECT_EQ(handle.cancel(), WFTimerCancel::kNoTimer);
  EXPECT_EQ(handle.cancel_and_wait(), WFTimerCancel::kNoTimer);
  EXPECT_EQ(handle.reschedule(seconds(1)), WFTimerMove::kNoTimer);
  EXPECT_FALSE(handle.remaining());
  EXPECT_EQ(handle, WFTimerHandle());
  EXPECT_EQ(WFTimer::handle_of(nullptr), WFTimerHandle());
}

// A callback may destroy what owns other timers, and cancels them with it.
TEST(TimerHandleOfOthers, MayBeCancelledByWhatTheCallbackDestroys) {
  struct Owner {
    ~Owner() {
      for (const WFTimerHandle& handle : handles) {
        EXPECT_EQ(handle.cancel_and_wait(), WFTimerCancel::kWon);
      }
    }
    std::vector<WFTimerHandle> handles;
  };
  TimerOutcomes outcomes;
  auto owner = std::make_shared<Owner>();
  for (int i = 0; i < 50; i++) {
    WFTimerTask* task = WFTimer::create(hours(1), outcomes.callback());
    owner->handles.push_back(WFTimer::handle_of(task));
    task->start();
  }
  WFTimer::create(nanoseconds(0), [owner](WFTimerTask*) {})->start();
  owner.reset();
  EXPECT_TRUE(outcomes.wait_for(50));
  EXPECT_EQ(outcomes.count(WFT_STATE_SYS_ERROR, ECANCELED), 50u);
}
