#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "TaskProbes.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "support/Tally.h"
#include "util/Time.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"

// Go tasks with time limits. Functions that run for long wait in a WaitGroup, which the manual
// clock does not take for work to be waited for.

using test_support::Tally;
using workflow::kNsPerSec;
using WaitGroup = WFFacilities::WaitGroup;

namespace {

const workflow::WorkerPool* this_pool() {
  return workflow::ThreadContext::current().pool;
}
const workflow::WorkerPool* compute() {
  return &workflow::Runtime::current().compute();
}
const workflow::WorkerPool* handlers() {
  return &workflow::Runtime::current().handlers();
}

// How a task ended. Thread-safe after wait().
class GoOutcome {
 public:
  std::function<void(WFGoTask*)> callback() {
    return [this](WFGoTask* task) {
      state_ = task->get_state();
      error_ = task->get_error();
      pool_ = this_pool();
      calls_.add();
    };
  }

  bool wait() const { return calls_.wait_for(1); }
  size_t calls() const { return calls_.count(); }
  int state() const { return state_; }
  int error() const { return error_; }
  const workflow::WorkerPool* pool() const { return pool_; }

 private:
  Tally calls_;
  int state_ = WFT_STATE_UNDEFINED;
  int error_ = 0;
  const workflow::WorkerPool* pool_ = nullptr;
};

// Something that a function has captured; tells whether it lives.
class Captured {
 public:
  Captured()
      : freed_(std::make_shared<std::atomic<bool>>(false)),
        token_(new int(7), [freed = freed_](int* token) {
          delete token;
          freed->store(true, std::memory_order_release);
        }) {}
  // What is captured; once.
  std::shared_ptr<int> take() { return std::move(token_); }
  bool alive() const { return !freed_->load(std::memory_order_acquire); }
  // The task is deleted a moment after its callback, or after its function.
  bool is_freed() const {
    const auto give_up = std::chrono::steady_clock::now() + test_support::kPatience;
    while (alive()) {
      if (std::chrono::steady_clock::now() > give_up) return false;
      std::this_thread::yield();
    }
    return true;
  }

 private:
  const std::shared_ptr<std::atomic<bool>> freed_;
  std::shared_ptr<int> token_;
};

}  // namespace

// On the manual clock ---------------------------------------------------------------------------

class TimedGoTask : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    workflow::Runtime::configure({.compute_threads = 1});
    ASSERT_EQ(WFManualClock::install(), 0);
  }
};

TEST_F(TimedGoTask, InTimeItSucceeds) {
  GoOutcome outcome;
  const workflow::WorkerPool* ran_on = nullptr;
  WFGoTask* task =
      WFTaskFactory::create_timedgo_task(1, 0, "queue", [&ran_on] { ran_on = this_pool(); });
  task->set_callback(outcome.callback());
  task->start();
  ASSERT_TRUE(outcome.wait());
  EXPECT_EQ(outcome.state(), WFT_STATE_SUCCESS);
  EXPECT_EQ(outcome.error(), 0);
  EXPECT_EQ(ran_on, compute());
  EXPECT_EQ(outcome.pool(), compute());
  EXPECT_FALSE(WFManualClock::advance_to_next_deadline()) << "the timer is gone";
  EXPECT_EQ(outcome.calls(), 1u);
}

TEST_F(TimedGoTask, TimesOutWhileItRunsAndItsFunctionRunsOn) {
  GoOutcome outcome;
  Captured captured;
  WaitGroup begun(1);
  WaitGroup go_on(1);
  WaitGroup returned(1);
  int seen = 0;
  WFGoTask* task =
      WFTaskFactory::create_timedgo_task(10, 500, "queue", [&, token = captured.take()] {
        begun.done();
        go_on.wait();
        seen = *token;
        returned.done();
      });
  task->set_callback(outcome.callback());
  task->start();
  begun.wait();
  WFManualClock::advance(10 * kNsPerSec + 499);
  EXPECT_EQ(outcome.calls(), 0u);
  WFManualClock::advance(1);
  ASSERT_EQ(outcome.calls(), 1u);
  EXPECT_EQ(outcome.state(), WFT_STATE_SYS_ERROR);
  EXPECT_EQ(outcome.error(), ETIMEDOUT);
  EXPECT_EQ(outcome.pool(), handlers());
  EXPECT_TRUE(captured.alive());
  go_on.done();
  returned.wait();
  EXPECT_EQ(seen, 7);
  EXPECT_TRUE(captured.is_freed());
  EXPECT_EQ(outcome.calls(), 1u);
}

// On threads of the test's own: the manual clock does not wait until these have nothing to do.
TEST_F(TimedGoTask, TimesOutInItsQueueAndItsFunctionNeverBegins) {
  ExecQueue queue;
  Executor executor;
  ASSERT_EQ(queue.init(), 0);
  ASSERT_EQ(executor.init(1), 0);
  GoOutcome outcome;
  Captured captured;
  Tally held;
  Tally opened;
  WFTaskFactory::create_go_task(&queue, &executor, [&] {
    held.add();
    EXPECT_TRUE(opened.wait_for(1));
  })->start();
  ASSERT_TRUE(held.wait_for(1));
  WFGoTask* task = WFTaskFactory::create_timedgo_task(
      5, 0, &queue, &executor, [token = captured.take()] { ADD_FAILURE() << "it has begun"; });
  task->set_callback(outcome.callback());
  task->start();
  Tally ran;
  WFTaskFactory::create_go_task(&queue, &executor, [&ran] { ran.add(); })->start();
  WFManualClock::advance(5 * kNsPerSec);
  ASSERT_EQ(outcome.calls(), 1u);
  EXPECT_EQ(outcome.error(), ETIMEDOUT);
  EXPECT_EQ(outcome.pool(), handlers());
  EXPECT_EQ(ran.count(), 0u);
  opened.add();
  EXPECT_TRUE(ran.wait_for(1)) << "what is behind it in the queue";
  EXPECT_TRUE(captured.is_freed());
  EXPECT_EQ(outcome.calls(), 1u);
}

TEST_F(TimedGoTask, TheLimitCountsFromTheDispatchNotFromTheCreation) {
  GoOutcome outcome;
  WaitGroup begun(1);
  WaitGroup go_on(1);
  WFGoTask* task = WFTaskFactory::create_timedgo_task(10, 0, "queue", [&] {
    begun.done();
    go_on.wait();
  });
  task->set_callback(outcome.callback());
  WFManualClock::advance(100 * kNsPerSec);
  SeriesWork* series =
      Workflow::create_series_work(WFTaskFactory::create_timer_task(50, 0, nullptr), nullptr);
  series->push_back(task);
  series->start();
  WFManualClock::advance(50 * kNsPerSec);
  begun.wait();
  WFManualClock::advance(10 * kNsPerSec - 1);
  EXPECT_EQ(outcome.calls(), 0u);
  go_on.done();
  ASSERT_TRUE(outcome.wait());
  EXPECT_EQ(outcome.state(), WFT_STATE_SUCCESS);
}

TEST_F(TimedGoTask, NanosecondsOutOfRangeAreInvalid) {
  for (const long nanoseconds : {-1L, 1'000'000'000L}) {
    for (const time_t seconds : {-1, 0, 1}) {
      GoOutcome outcome;
      Captured captured;
      WFGoTask* task = WFTaskFactory::create_timedgo_task(
          seconds, nanoseconds, "queue",
          [token = captured.take()] { ADD_FAILURE() << "it has begun"; });
      task->set_callback(outcome.callback());
      task->start();
      ASSERT_TRUE(outcome.wait());
      EXPECT_EQ(outcome.state(), WFT_STATE_SYS_ERROR);
      EXPECT_EQ(outcome.error(), EINVAL);
      EXPECT_EQ(outcome.pool(), handlers());
      EXPECT_TRUE(captured.is_freed());
    }
  }
}

TEST_F(TimedGoTask, AnInvalidOneInASeriesLetsTheNextRun) {
  GoOutcome outcome;
  bool after = false;
  SeriesWork* series =
      Workflow::create_series_work(WFTaskFactory::create_timer_task(0, 0, nullptr), nullptr);
  WFGoTask* task =
      WFTaskFactory::create_timedgo_task(0, -1, "queue", [] { ADD_FAILURE() << "it has begun"; });
  task->set_callback(outcome.callback());
  series->push_back(task);
  series->push_back(WFTaskFactory::create_go_task("queue", [&after] { after = true; }));
  Tally ended;
  series->set_callback(probes::counting(ended));
  series->start();
  WFManualClock::advance(0);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(outcome.error(), EINVAL);
  EXPECT_TRUE(after);
}

TEST_F(TimedGoTask, NegativeSecondsAreNoLimit) {
  GoOutcome outcome;
  WaitGroup begun(1);
  WaitGroup go_on(1);
  WFGoTask* task = WFTaskFactory::create_timedgo_task(-1, 999'999'999, "queue", [&] {
    begun.done();
    go_on.wait();
  });
  task->set_callback(outcome.callback());
  task->start();
  begun.wait();
  EXPECT_FALSE(WFManualClock::advance_to_next_deadline());
  WFManualClock::advance(1'000'000 * kNsPerSec);
  EXPECT_EQ(outcome.calls(), 0u);
  go_on.done();
  ASSERT_TRUE(outcome.wait());
  EXPECT_EQ(outcome.state(), WFT_STATE_SUCCESS);
}

TEST_F(TimedGoTask, TheLongestLimitIsOneAndNotNever) {
  GoOutcome outcome;
  WFGoTask* task = WFTaskFactory::create_timedgo_task(INT64_MAX / kNsPerSec, 0, "queue", [] {});
  task->set_callback(outcome.callback());
  task->start();
  ASSERT_TRUE(outcome.wait());
  EXPECT_EQ(outcome.state(), WFT_STATE_SUCCESS);
}

TEST_F(TimedGoTask, ALimitOfZeroIsOverAtOnce) {
  GoOutcome outcome;
  Captured captured;
  WaitGroup go_on(1);
  std::atomic<int> runs{0};
  WFGoTask* task = WFTaskFactory::create_timedgo_task(0, 0, "queue", [&, token = captured.take()] {
    runs++;
    go_on.wait();  // what begins takes longer than nothing
  });
  task->set_callback(outcome.callback());
  task->start();
  WFManualClock::advance(0);
  ASSERT_TRUE(outcome.wait());
  EXPECT_EQ(outcome.error(), ETIMEDOUT);
  EXPECT_LE(runs, 1);
  go_on.done();
  EXPECT_TRUE(captured.is_freed());
}

TEST_F(TimedGoTask, DismissedItNeverTimesOut) {
  Captured captured;
  GoOutcome outcome;
  WFGoTask* task = WFTaskFactory::create_timedgo_task(
      1, 0, "queue", [token = captured.take()] { ADD_FAILURE() << "it has begun"; });
  task->set_callback(outcome.callback());
  EXPECT_EQ(task->get_state(), WFT_STATE_UNDEFINED);
  task->dismiss();
  EXPECT_FALSE(captured.alive());
  SeriesWork* series = Workflow::create_series_work(
      WFTaskFactory::create_timedgo_task(0, -1, "queue", [] {}), nullptr);
  series->push_back(WFTaskFactory::create_timedgo_task(1, 0, "queue", [] {}));
  series->dismiss();
  EXPECT_FALSE(WFManualClock::advance_to_next_deadline());
  EXPECT_EQ(outcome.calls(), 0u);
}

TEST_F(TimedGoTask, TheSeriesGoesOnAtTheTimeout) {
  GoOutcome outcome;
  Captured captured;
  WaitGroup begun(1);
  WaitGroup go_on(1);
  Tally next;
  Tally ended;
  WFGoTask* task = WFTaskFactory::create_timedgo_task(1, 0, "queue", [&, token = captured.take()] {
    begun.done();
    go_on.wait();
  });
  task->set_callback(outcome.callback());
  SeriesWork* series = Workflow::create_series_work(task, probes::counting(ended));
  series->push_back(WFTaskFactory::create_go_task("other", [&next] { next.add(); }));
  series->start();
  begun.wait();
  WFManualClock::advance(kNsPerSec);
  EXPECT_TRUE(next.wait_for(1));
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(outcome.error(), ETIMEDOUT);
  go_on.done();
  EXPECT_TRUE(captured.is_freed());
}

// Its function must not find a series that has ended, nor leave one behind that nobody frees.
TEST_F(TimedGoTask, AfterTheTimeoutTheFunctionHasNoSeries) {
  for (const bool alone : {true, false}) {
    GoOutcome outcome;
    Captured captured;
    WaitGroup begun(1);
    WaitGroup go_on(1);
    WaitGroup returned(1);
    SeriesWork* before = nullptr;
    SeriesWork* after = nullptr;
    WFGoTask* task = WFTaskFactory::create_timedgo_task(1, 0, "queue", nullptr);
    WFTaskFactory::reset_go_task(task, [&, task, token = captured.take()] {
      if (!alone) {
        before = series_of(task);
      }
      begun.done();
      go_on.wait();
      after = series_of(task);
      returned.done();
    });
    task->set_callback(outcome.callback());
    SeriesWork* series = alone ? nullptr : Workflow::create_series_work(task, nullptr);
    if (alone) {
      task->start();
    } else {
      series->start();
    }
    begun.wait();
    WFManualClock::advance(kNsPerSec);
    ASSERT_TRUE(outcome.wait());
    go_on.done();
    returned.wait();
    EXPECT_EQ(before, series);
    EXPECT_EQ(after, nullptr);
    EXPECT_TRUE(captured.is_freed());
  }
}

TEST_F(TimedGoTask, CallbacksMayExtendTheirSeriesAfterATimeout) {
  Captured captured;
  WaitGroup begun(1);
  WaitGroup go_on(1);
  Tally extended;
  WFGoTask* task = WFTaskFactory::create_timedgo_task(1, 0, "queue", [&, token = captured.take()] {
    begun.done();
    go_on.wait();
  });
  task->set_callback([&extended](WFGoTask* done) {
    series_of(done)->push_back(
        WFTaskFactory::create_go_task("other", [&extended] { extended.add(); }));
  });
  task->start();
  begun.wait();
  WFManualClock::advance(kNsPerSec);
  EXPECT_TRUE(extended.wait_for(1));
  go_on.done();
  EXPECT_TRUE(captured.is_freed());
}

// What the function is ----------------------------------------------------------------------------

TEST_F(TimedGoTask, ResetGivesTheFunctionItsTask) {
  GoOutcome outcome;
  int seen = 0;
  WFGoTask* task = WFTaskFactory::create_timedgo_task(1, 0, "queue", nullptr);
  task->user_data = &seen;
  WFTaskFactory::reset_go_task(
      task, [](WFGoTask* self, int value) { *static_cast<int*>(self->user_data) = value; }, task,
      42);
  task->set_callback(outcome.callback());
  task->start();
  ASSERT_TRUE(outcome.wait());
  EXPECT_EQ(seen, 42);
}

TEST_F(TimedGoTask, ResetDropsWhatWasToRun) {
  GoOutcome outcome;
  Captured captured;
  bool ran = false;
  WFGoTask* task = WFTaskFactory::create_go_task(
      "queue", [token = captured.take()] { ADD_FAILURE() << "it has begun"; });
  WFTaskFactory::reset_go_task(task, [&ran] { ran = true; });
  EXPECT_FALSE(captured.alive());
  task->set_callback(outcome.callback());
  task->start();
  ASSERT_TRUE(outcome.wait());
  EXPECT_TRUE(ran);
}

TEST_F(TimedGoTask, ArgumentsAreMovedInAndReferencesPassed) {
  GoOutcome outcome;
  std::string given(1000, 'x');
  const char* const bytes = given.data();
  const char* seen = nullptr;
  int sum = 0;
  WFGoTask* task = WFTaskFactory::create_timedgo_task(
      1, 0, "queue",
      [&seen](const std::string& text, int& to) {
        seen = text.data();
        to++;
      },
      std::move(given), std::ref(sum));
  task->set_callback(outcome.callback());
  task->start();
  ASSERT_TRUE(outcome.wait());
  EXPECT_EQ(seen, bytes);
  EXPECT_EQ(sum, 1);
}
