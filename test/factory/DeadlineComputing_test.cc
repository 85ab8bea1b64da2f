// Deadlines over computations. In real time: a clock that is moved by hand waits for computations.

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <utility>

#include "support/Tally.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFGlobal.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

using std::chrono::milliseconds;
using std::chrono::seconds;
using test_support::Tally;

namespace {

class DeadlineComputing : public testing::Test {
 protected:
  DeadlineComputing() {
    WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.compute_threads = 1;
    WORKFLOW_library_init(&settings);
  }

  template <class Task>
  auto expecting(int state, int error) {
    return [this, state, error](Task* task) {
      EXPECT_EQ(task->get_state(), state);
      EXPECT_EQ(task->get_error(), error);
      ended_.add();
    };
  }
  template <class Task>
  auto expecting_timeout() {
    return expecting<Task>(WFT_STATE_SYS_ERROR, ETIMEDOUT);
  }
  WFGoTask* go(std::function<void()> function, int state, int error) {
    WFGoTask* task = WFTaskFactory::create_go_task("queue", std::move(function));
    task->set_callback(expecting<WFGoTask>(state, error));
    return task;
  }
  WFGoTask* timed_out_go(std::function<void()> function) {
    return go(std::move(function), WFT_STATE_SYS_ERROR, ETIMEDOUT);
  }
  // On the only thread that computes.
  void occupy() {
    go([this] { EXPECT_TRUE(released_.wait_for(1)); }, WFT_STATE_SUCCESS, 0)->start();
  }

  Tally ended_;
  Tally released_;
  Tally ran_;
};

}  // namespace

TEST_F(DeadlineComputing, EndsWhatWaitsInItsQueue) {
  occupy();
  with_deadline(timed_out_go([this] { ran_.add(); }), milliseconds(5),
                expecting_timeout<WFDeadlineTask>())
      ->start();
  EXPECT_TRUE(ended_.wait_for(2)) << "before it has had its turn";
  released_.add();
  EXPECT_TRUE(ended_.wait_for(3));
  go([] {}, WFT_STATE_SUCCESS, 0)->start();
  EXPECT_TRUE(ended_.wait_for(4));
  EXPECT_EQ(ran_.count(), 0u);
}

TEST_F(DeadlineComputing, DoesNotWaitForAFunctionThatRuns) {
  Tally begun;
  WFGoTask* task = timed_out_go([this, &begun] {
    begun.add();
    EXPECT_TRUE(released_.wait_for(1));
    ran_.add();
  });
  WFDeadlineTask* limit = with_deadline(task, seconds(1000), expecting_timeout<WFDeadlineTask>());
  const WFScope scope = limit->scope();
  limit->start();
  ASSERT_TRUE(begun.wait_for(1));
  EXPECT_TRUE(scope.set_deadline(milliseconds(0)));
  EXPECT_TRUE(ended_.wait_for(2));
  EXPECT_EQ(ran_.count(), 0u);
  released_.add();
  EXPECT_TRUE(ran_.wait_for(1));
}

TEST_F(DeadlineComputing, LeavesAloneWhatEndsInTime) {
  WFDeadlineTask* limit =
      with_deadline(go([this] { ran_.add(); }, WFT_STATE_SUCCESS, 0), seconds(1000),
                    expecting<WFDeadlineTask>(WFT_STATE_SUCCESS, 0));
  *limit->sub_series() << go([this] { ran_.add(); }, WFT_STATE_SUCCESS, 0);
  limit->start();
  EXPECT_TRUE(ended_.wait_for(3));
  EXPECT_EQ(ran_.count(), 2u);
}

TEST_F(DeadlineComputing, WhatComesTooLateDoesNotBegin) {
  WFTimerTask* first = WFTimer::create(seconds(1000), expecting_timeout<WFTimerTask>());
  WFDeadlineTask* limit =
      with_deadline(first, milliseconds(1), expecting_timeout<WFDeadlineTask>());
  *limit->sub_series() << timed_out_go([this] { ran_.add(); })
                       << timed_out_go([this] { ran_.add(); });
  limit->start();
  EXPECT_TRUE(ended_.wait_for(4));
  EXPECT_EQ(ran_.count(), 0u);
}

TEST_F(DeadlineComputing, TheEarlierOfTwoLimitsCounts) {
  occupy();
  const auto own_limit = [this](time_t s, long ns) {
    WFGoTask* task = WFTaskFactory::create_timedgo_task(s, ns, "queue", [this] { ran_.add(); });
    task->set_callback(expecting_timeout<WFGoTask>());
    return task;
  };
  with_deadline(own_limit(1000, 0), milliseconds(5), expecting_timeout<WFDeadlineTask>())->start();
  EXPECT_TRUE(ended_.wait_for(2));
  with_deadline(own_limit(0, 1'000'000), seconds(1000),
                expecting<WFDeadlineTask>(WFT_STATE_SUCCESS, 0))
      ->start();
  EXPECT_TRUE(ended_.wait_for(4));
  released_.add();
  EXPECT_TRUE(ended_.wait_for(5));
  EXPECT_EQ(ran_.count(), 0u);
}

TEST_F(DeadlineComputing, EndsThreadTasks) {
  using Task = WFThreadTask<int, int>;
  using Factory = WFThreadTaskFactory<int, int>;
  Tally begun;
  size_t ends = 0;
  // A function whose turn comes only after the deadline never begins: a longer one is needed then.
  for (milliseconds limit(5); begun.count() == 0; limit *= 2) {
    Task* task = Factory::create_thread_task(
        "queue",
        [this, &begun](int* in, int* out) {
          begun.add();
          EXPECT_TRUE(released_.wait_for(1));
          *out = *in;  // both are there still
          ran_.add();
        },
        expecting_timeout<Task>());
    with_deadline(task, limit, expecting_timeout<WFDeadlineTask>())->start();
    ends += 2;
    ASSERT_TRUE(ended_.wait_for(ends));
  }
  released_.add();
  EXPECT_TRUE(ran_.wait_for(1));
}

// Whichever comes first: each ends once, and the function runs at most once.
TEST_F(DeadlineComputing, MeetsTheEndOfTheFunction) {
  constexpr size_t kRounds = 3000;
  Tally all;
  for (size_t i = 0; i < kRounds; i++) {
    WFGoTask* task = WFTaskFactory::create_timedgo_task(0, 20'000, "queue", [this] { ran_.add(); });
    task->set_callback([&all](WFGoTask*) { all.add(); });
    with_deadline(task, std::chrono::microseconds(i % 50), [&all](WFDeadlineTask*) {
      all.add();
    })->start();
  }
  EXPECT_TRUE(all.wait_for(2 * kRounds));
  // A function whose task has ended without it may still run. This one begins after all others.
  go([] {}, WFT_STATE_SUCCESS, 0)->start();
  EXPECT_TRUE(ended_.wait_for(1));
  EXPECT_LE(ran_.count(), kRounds);
}
