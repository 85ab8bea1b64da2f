#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "DeadlineProbes.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFScope.h"

// Scopes as users see them. How each kind of task ends with a deadline is in the Deadline tests: a
// deadline is a scope with a time. That a scope reaches every kind is in
// server/RequestKinds_test.cc.

namespace {

using probes::DeadlineTest;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

class Scope : public DeadlineTest {
 protected:
  WFScopeTask* scoped(SubTask* task, const std::string& name = "S") {
    return WFTaskFactory::create_scope_task(task, noting<WFScopeTask>(name));
  }
};

}  // namespace

TEST_F(Scope, EndsTheStepThatWaitsAndThoseThatWouldWait) {
  WFScopeTask* task = scoped(timer("a", 1000));
  task->sub_series()->push_back(timer("b", 1000));
  const WFScope scope = task->scope();
  start(task);
  EXPECT_EQ(scope.error(), 0);
  EXPECT_TRUE(scope.cancel());
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "a-b-S-");
  EXPECT_EQ(scope.error(), ECANCELED);
  EXPECT_FALSE(scope.cancel(ETIMEDOUT));
  EXPECT_EQ(scope.error(), ECANCELED);
}

TEST_F(Scope, HasTheErrorOfTheFirstCancel) {
  WFScopeTask* task = scoped(timer("a", 1000));
  const WFScope scope = task->scope();
  start(task);
  EXPECT_TRUE(scope.cancel(ETIMEDOUT));
  EXPECT_FALSE(scope.cancel());
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "a!S!");
}

TEST_F(Scope, CountsAnErrorOfZeroAsCancelled) {
  WFScopeTask* task = scoped(timer("a", 1000));
  const WFScope scope = task->scope();
  start(task);
  EXPECT_TRUE(scope.cancel(0));
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "a-S-");
}

TEST_F(Scope, SaysHowMuchWasDone) {
  std::vector<WFScopeExtent> extents;
  const auto extent_of = [&](WFScopeTask* task) {
    extents.push_back(task->get_extent());
    ended_.add();
  };
  WFScopeTask* all =
      WFTaskFactory::create_scope_task(WFTaskFactory::create_empty_task(), extent_of);
  all->start();
  ASSERT_TRUE(ended_.wait_for(1));
  WFScopeTask* part = WFTaskFactory::create_scope_task(timer("a", 1000), extent_of);
  const WFScope scope = part->scope();
  part->start();
  EXPECT_TRUE(scope.cancel());
  ASSERT_TRUE(ended_.wait_for(3));  // with the timer
  WFScopeTask* nothing = WFTaskFactory::create_scope_task(timer("b", 1000), extent_of);
  EXPECT_TRUE(nothing->scope().cancel());
  nothing->start();
  ASSERT_TRUE(ended_.wait_for(5));
  EXPECT_EQ(extents, (std::vector{WFScopeExtent::kEverything, WFScopeExtent::kPart,
                                  WFScopeExtent::kNothing}));
}

TEST_F(Scope, HandlesOutliveTheScope) {
  WFScope scope;
  EXPECT_FALSE(scope);
  EXPECT_FALSE(scope.cancel());
  EXPECT_EQ(scope.error(), 0);
  EXPECT_EQ(scope.remaining(), nanoseconds::max());
  EXPECT_FALSE(scope.set_deadline(hours(1)));
  EXPECT_EQ(errno, EINVAL);
  WFScopeTask* task = scoped(timer("a", 10));
  scope = task->scope();
  const WFScope copy = scope;
  EXPECT_EQ(copy, scope);
  EXPECT_NE(copy, WFScope());
  start(task);
  pass(10);
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "a+S+");
  EXPECT_EQ(scope.error(), 0);
  EXPECT_FALSE(scope.set_deadline(hours(1)));
  EXPECT_EQ(errno, ECANCELED);
  EXPECT_FALSE(copy.cancel());
  EXPECT_EQ(scope.error(), 0);
  EXPECT_EQ(text(), "a+S+");
}

TEST_F(Scope, OfADismissedTaskEndsNothing) {
  WFScopeTask* task = scoped(timer("a", 10));
  const WFScope scope = task->scope();
  task->dismiss();
  scope.cancel();
  EXPECT_EQ(text(), "");
}

TEST_F(Scope, EndsWithTheScopeAroundIt) {
  WFScopeTask* inner = scoped(timer("a", 1000), "I");
  const WFScope inside = inner->scope();
  WFScopeTask* outer = scoped(inner, "O");
  const WFScope around = outer->scope();
  start(outer);
  EXPECT_TRUE(around.cancel());
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "a-I-O-");
  EXPECT_EQ(inside.error(), ECANCELED);
}

TEST_F(Scope, EndsAloneInAScope) {
  WFScopeTask* inner = scoped(timer("a", 1000), "I");
  const WFScope inside = inner->scope();
  WFScopeTask* outer = scoped(inner, "O");
  outer->sub_series()->push_back(timer("b", 10));
  const WFScope around = outer->scope();
  start(outer);
  EXPECT_TRUE(inside.cancel());
  ASSERT_TRUE(ended_.wait_for(2));
  EXPECT_EQ(around.error(), 0);
  pass(10);
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "a-I-b+O+");
}

TEST_F(Scope, ADeadlineEndsIt) {
  WFScopeTask* task = WFTaskFactory::create_deadline_task(timer("a", 1000), milliseconds(100),
                                                          noting<WFScopeTask>("D"));
  const WFScope scope = task->scope();
  EXPECT_EQ(scope.remaining(), milliseconds(100));
  pass(50);
  EXPECT_EQ(scope.remaining(), milliseconds(100));  // counts from the start
  start(task);
  pass(60);
  EXPECT_EQ(scope.remaining(), milliseconds(40));
  pass(40);
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "a!D!");
  EXPECT_EQ(scope.error(), ETIMEDOUT);
  EXPECT_EQ(scope.remaining(), nanoseconds(0));
}

TEST_F(Scope, ADeadlineCanBeMoved) {
  WFScopeTask* task = scoped(timer("a", 1000));
  const WFScope scope = task->scope();
  EXPECT_TRUE(scope.set_deadline(milliseconds(500)));  // from the start on
  start(task);
  EXPECT_TRUE(scope.set_deadline(milliseconds(100)));
  pass(60);
  EXPECT_TRUE(scope.set_deadline(milliseconds(200)));
  pass(100);
  EXPECT_EQ(scope.remaining(), milliseconds(100));
  EXPECT_EQ(text(), "");
  EXPECT_TRUE(scope.set_deadline(milliseconds(-1)));
  EXPECT_EQ(scope.remaining(), nanoseconds::max());
  pass(200);
  EXPECT_EQ(text(), "");
  EXPECT_TRUE(scope.set_deadline({milliseconds(10), WF_CLOCK_BOOTTIME}));
  EXPECT_EQ(scope.remaining(), milliseconds(10));
  pass(10);
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "a!S!");
  EXPECT_FALSE(scope.set_deadline(hours(1)));
  EXPECT_EQ(errno, ETIMEDOUT);
}

TEST_F(Scope, ADeadlineThatHasPassedEndsItAtOnce) {
  WFScopeTask* task = scoped(timer("a", 1000));
  const WFScope scope = task->scope();
  start(task);
  EXPECT_TRUE(scope.set_deadline(milliseconds(0)));
  EXPECT_EQ(scope.error(), ETIMEDOUT);
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "a!S!");
}

TEST_F(Scope, OfNestedDeadlinesTheEarliestCounts) {
  WFScopeTask* inner = limited(timer("a", 1000), 500, "I");
  const WFScope inside = inner->scope();
  WFScopeTask* outer = limited(inner, 300, "O");
  start(outer);
  EXPECT_EQ(inside.remaining(), milliseconds(300));
  EXPECT_TRUE(inside.set_deadline(milliseconds(200)));
  EXPECT_EQ(inside.remaining(), milliseconds(200));
  EXPECT_EQ(outer->scope().remaining(), milliseconds(300));
  pass(200);
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(text(), "a!I!O+");
}

TEST_F(Scope, IsKnownToTheCodeInside) {
  EXPECT_FALSE(WFScope::current());
  std::atomic<int> same{0};
  WFScope scope;
  const auto check = [&] { same += WFScope::current() == scope; };
  WFGoTask* go = WFTaskFactory::create_go_task("queue", check);
  go->set_callback([&](WFGoTask*) { check(); });
  WFScopeTask* task = scoped(go);
  task->sub_series()->push_back(
      WFTaskFactory::create_timer_task(0, [&](WFTimerTask*) { check(); }));
  scope = task->scope();
  start(task);
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(same, 3);
  EXPECT_FALSE(WFScope::current());
}

TEST_F(Scope, AFunctionThatComputesLearnsOfTheEnd) {
  test_support::Tally begun;
  std::atomic<int> error{0};
  test_support::Tally over;
  WFScopeTask* task = scoped(WFTaskFactory::create_go_task("queue", [&] {
    begun.add();
    while (WFScope::current().error() == 0) {
      std::this_thread::yield();
    }
    error = WFScope::current().error();
    over.add();
  }));
  const WFScope scope = task->scope();
  start(task);
  ASSERT_TRUE(begun.wait_for(1));
  EXPECT_TRUE(scope.cancel());
  EXPECT_TRUE(over.wait_for(1));
  EXPECT_EQ(error, ECANCELED);
  EXPECT_TRUE(series_ended());
}

TEST_F(Scope, AFunctionThatComputesIsCalledBackOnceByTheThreadThatEndsIt) {
  for (const int error : {ECANCELED, ETIMEDOUT}) {
    test_support::Tally begun;
    test_support::Tally told;
    test_support::Tally ended;
    std::thread::id told_on;
    bool told_after = false;
    test_support::Tally over;
    WFGoTask* go = WFTaskFactory::create_go_task("queue", [&] {
      const WFScope scope = WFScope::current();
      const std::stop_callback callback(scope.stop_token(), [&] {
        EXPECT_EQ(scope.error(), error);
        told_on = std::this_thread::get_id();
        told.add();
      });
      begun.add();
      EXPECT_TRUE(told.wait_for(1));
      // With ETIMEDOUT its task may be gone. The scope still says what has happened.
      EXPECT_TRUE(error != ETIMEDOUT || ended.wait_for(1));
      EXPECT_EQ(WFScope::current().error(), error);
      const std::stop_callback late(scope.stop_token(), [&] { told_after = true; });
      over.add();
    });
    WFScopeTask* task = WFTaskFactory::create_scope_task(go, [&](WFScopeTask*) { ended.add(); });
    const WFScope scope = task->scope();
    task->start();
    ASSERT_TRUE(begun.wait_for(1));
    EXPECT_TRUE(scope.cancel(error));
    EXPECT_EQ(told.count(), 1u) << "inside cancel()";
    EXPECT_EQ(told_on, std::this_thread::get_id());
    ASSERT_TRUE(over.wait_for(1));
    ASSERT_TRUE(ended.wait_for(1));
    EXPECT_EQ(told.count(), 1u);
    EXPECT_TRUE(told_after);
  }
}

// What the function has borrowed may be gone when its series goes on.
TEST_F(Scope, WaitsForAFunctionThatRunsUnlessTimeIsOver) {
  for (const int error : {ECANCELED, ETIMEDOUT}) {
    test_support::Tally begun;
    test_support::Tally go_on;
    std::atomic<bool> returned{false};
    std::atomic<bool> ended_before{false};
    test_support::Tally over;
    WFGoTask* go = WFTaskFactory::create_go_task("queue", [&] {
      begun.add();
      EXPECT_TRUE(go_on.wait_for(1));
      returned = true;
      over.add();
    });
    go->set_callback([&](WFGoTask* task) {
      ended_before = !returned;
      EXPECT_EQ(task->get_error(), error == ETIMEDOUT ? ETIMEDOUT : 0);
    });
    test_support::Tally ended;
    WFScopeTask* task = WFTaskFactory::create_scope_task(go, [&](WFScopeTask* scope_task) {
      EXPECT_EQ(scope_task->get_error(), error);
      ended.add();
    });
    const WFScope scope = task->scope();
    task->start();
    ASSERT_TRUE(begun.wait_for(1));
    EXPECT_TRUE(scope.cancel(error));
    if (error == ETIMEDOUT) {
      EXPECT_TRUE(ended.wait_for(1));
    } else {
      EXPECT_EQ(ended.count(), 0u);
    }
    go_on.add();
    ASSERT_TRUE(ended.wait_for(1));
    ASSERT_TRUE(over.wait_for(1));
    EXPECT_EQ(ended_before, error == ETIMEDOUT);
  }
}

// A cancel that reports that it ended the scope has decided the outcome of its task.
TEST_F(Scope, WhatCancelReturnsIsTrue) {
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; round++) {
    std::atomic<int> error{-1};
    test_support::Tally ended;
    WFCounterTask* last = WFTaskFactory::create_counter_task(1, nullptr);
    WFScopeTask* task = WFTaskFactory::create_scope_task(last, [&](WFScopeTask* scope_task) {
      error = scope_task->get_error();
      ended.add();
    });
    const WFScope scope = task->scope();
    task->start();
    std::thread counter([&] { last->count(); });
    const bool won = scope.cancel(EBUSY);
    counter.join();
    ASSERT_TRUE(ended.wait_for(1));
    EXPECT_EQ(won, error == EBUSY);
    EXPECT_EQ(scope.error(), error);
  }
}

TEST_F(Scope, RequestsTheStopOfItsToken) {
  std::atomic<int> calls{0};
  WFScopeTask* task = scoped(timer("a", 1000));
  const WFScope scope = task->scope();
  const std::stop_token token = scope.stop_token();
  const std::stop_callback callback(token, [&] { calls++; });
  EXPECT_TRUE(token.stop_possible());
  EXPECT_FALSE(token.stop_requested());
  start(task);
  EXPECT_TRUE(scope.cancel());
  EXPECT_TRUE(token.stop_requested());
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(scope.stop_token().stop_requested());
  EXPECT_TRUE(series_ended());
  EXPECT_FALSE(WFScope().stop_token().stop_possible());
}

TEST_F(Scope, ATokenOfAScopeThatNeverEnds) {
  std::stop_token token;
  {
    WFScopeTask* task = scoped(WFTaskFactory::create_empty_task());
    token = task->scope().stop_token();
    start(task);
    EXPECT_TRUE(series_ended());
  }
  EXPECT_FALSE(token.stop_requested());
}

TEST_F(Scope, EndsTheWaitsOfAFunction) {
  for (int kind = 0; kind < 4; kind++) {
    test_support::Tally begun;
    std::atomic<bool> ready{true};
    std::atomic<bool> broken{false};
    test_support::Tally over;
    WFFacilities::WaitGroup group(1);
    WFPromise<int> promise;
    WFFuture<int> future = promise.get_future();
    WFScopeTask* task = scoped(WFTaskFactory::create_go_task("queue", [&, kind] {
      begun.add();
      switch (kind) {
        case 0:
          group.wait();
          break;
        case 1:
          ready = group.wait_for(hours(1)) == std::future_status::ready;
          break;
        case 2:
          WFFacilities::sleep_for(hours(1));
          break;
        default:
          try {
            future.get();
          } catch (const std::future_error& error) {
            broken = error.code() == std::future_errc::broken_promise;
          }
      }
      over.add();
    }));
    const WFScope scope = task->scope();
    start(task);
    ASSERT_TRUE(begun.wait_for(1));
    if (kind % 2) {
      std::this_thread::sleep_for(milliseconds(5));  // usually it waits by now
    }
    EXPECT_TRUE(scope.cancel());
    EXPECT_TRUE(over.wait_for(1)) << kind;
    EXPECT_EQ(broken, kind == 3);
    EXPECT_EQ(ready, kind != 1);
    ASSERT_TRUE(series_ended_.wait_for(static_cast<size_t>(kind) + 1));
  }
}

TEST_F(Scope, ManyEndTogether) {
  constexpr size_t kTimers = 20'000;
  ParallelWork* all = Workflow::create_parallel_work(nullptr);
  test_support::Tally ended;
  std::atomic<size_t> cancelled{0};
  for (size_t i = 0; i < kTimers; i++) {
    all->add_series(Workflow::create_series_work(
        WFTaskFactory::create_timer_task(3600, 0,
                                         [&](WFTimerTask* task) {
                                           cancelled += task->get_error() == ECANCELED;
                                           ended.add();
                                         }),
        nullptr));
  }
  WFScopeTask* task = scoped(all);
  const WFScope scope = task->scope();
  start(task);
  EXPECT_TRUE(scope.cancel());
  EXPECT_TRUE(series_ended());
  EXPECT_EQ(ended.count(), kTimers);
  EXPECT_EQ(cancelled, kTimers);
}
