#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/Tally.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFGlobal.h"

// With one handler thread, a callback that waits for another callback would wait for ever if its
// thread were not lent.

using test_support::kPatience;
using test_support::Tally;

namespace {

class Lending : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    struct WFGlobalSettings settings = GLOBAL_SETTINGS_DEFAULT;
    settings.poller_threads = 1;
    settings.handler_threads = 1;
    settings.compute_threads = 1;
    WORKFLOW_library_init(&settings);
  }

  // Runs the function in a callback and waits until it has returned.
  static bool run_in_callback(std::function<void()> function) {
    Tally ended;
    WFTaskFactory::create_timer_task(0u, [&](WFTimerTask*) {
      function();
      ended.add();
    })->start();
    return ended.wait_for(1);
  }
};

// Waits `depth` callbacks deep: each waits for the one that it starts.
void nest(int depth) {
  if (depth == 0) return;
  WFFacilities::WaitGroup group(1);
  WFTaskFactory::create_timer_task(0u, [&group, depth](WFTimerTask*) {
    nest(depth - 1);
    group.done();
  })->start();
  group.wait();
}

using Function = std::function<void()>;

// A task that ends at once and calls the function in its callback.
SubTask* task_of(Function function) {
  return WFTaskFactory::create_counter_task(
      0, [function = std::move(function)](WFCounterTask*) { function(); });
}

// A branch or node for each function, and a callback that counts.
SubTask* parallel_of(const std::vector<Function>& functions, Tally& ended) {
  ParallelWork* parallel =
      Workflow::create_parallel_work([&ended](const ParallelWork*) { ended.add(); });
  for (const Function& function : functions) {
    parallel->add_series(Workflow::create_series_work(task_of(function), nullptr));
  }
  return parallel;
}
SubTask* graph_of(const std::vector<Function>& functions, Tally& ended) {
  WFGraphTask* graph = WFTaskFactory::create_graph_task([&ended](WFGraphTask*) { ended.add(); });
  WFGraphNode& root = graph->create_graph_node(WFTaskFactory::create_empty_task());
  for (const Function& function : functions) {
    root.precede(graph->create_graph_node(task_of(function)));
  }
  return graph;
}

void start(SubTask* task) {
  Workflow::start_series_work(task, nullptr);
}

// One function waits for the other; the first of them is the one that waits, or the last.
std::vector<Function> waiting_pair(const Function& wait, const Function& wake, bool waits_first) {
  return waits_first ? std::vector<Function>{wait, wake} : std::vector<Function>{wake, wait};
}

// In a callback, runs siblings of which one waits for the other, in both orders.
void siblings_wait(SubTask* (*make)(const std::vector<Function>&, Tally&)) {
  for (const bool waits_first : {true, false}) {
    Tally ended;
    WFFacilities::WaitGroup group(1);
    start(task_of([&] {
      start(make(waiting_pair([&] { group.wait(); }, [&] { group.done(); }, waits_first), ended));
    }));
    ASSERT_TRUE(ended.wait_for(1));
  }
}

// One of two branches waits for the other. Inside that one there are two such branches again.
void nest_branches(int depth, bool waits_first) {
  if (depth == 0) return;
  WFFacilities::WaitGroup sibling(1);
  WFFacilities::WaitGroup parallel(1);
  ParallelWork* work =
      Workflow::create_parallel_work([&parallel](const ParallelWork*) { parallel.done(); });
  const auto inner = [&sibling, depth, waits_first] {
    nest_branches(depth - 1, waits_first);
    sibling.done();
  };
  for (const Function& function :
       waiting_pair([&sibling] { sibling.wait(); }, inner, waits_first)) {
    work->add_series(Workflow::create_series_work(task_of(function), nullptr));
  }
  work->start();
  parallel.wait();
}

}  // namespace

TEST_F(Lending, ACallbackWaitsForAnotherCallback) {
  EXPECT_TRUE(run_in_callback([] {
    WFFacilities::WaitGroup group(1);
    WFTaskFactory::create_timer_task(1000u, [&group](WFTimerTask*) { group.done(); })->start();
    group.wait();
  }));
}

TEST_F(Lending, ACallbackSleeps) {
  EXPECT_TRUE(run_in_callback([] { WFFacilities::usleep(1000); }));
}

TEST_F(Lending, ACallbackWaitsForAFuture) {
  EXPECT_TRUE(run_in_callback([] {
    WFPromise<int> promise;
    WFFuture<int> future = promise.get_future();
    WFTaskFactory::create_counter_task("name", 1, [&promise](WFCounterTask*) {
      promise.set_value(1);
    })->start();
    WFTaskFactory::create_timer_task(1000u, [](WFTimerTask*) {
      WFTaskFactory::count_by_name("name");
    })->start();
    EXPECT_EQ(future.get(), 1);
  }));
}

TEST_F(Lending, ACallbackWaitsWithALimitForAnotherCallback) {
  EXPECT_TRUE(run_in_callback([] {
    WFFacilities::WaitGroup group(1);
    WFTaskFactory::create_timer_task(1000u, [&group](WFTimerTask*) { group.done(); })->start();
    EXPECT_EQ(group.wait(60'000), std::future_status::ready);
  }));
}

TEST_F(Lending, ACallbackWaitsForAGoTaskThatWaitsForACallback) {
  EXPECT_TRUE(run_in_callback([] {
    WFFacilities::WaitGroup outer(1);
    WFFacilities::go("queue", [&outer] {
      WFFacilities::WaitGroup inner(1);
      WFTaskFactory::create_timer_task(0u, [&inner](WFTimerTask*) { inner.done(); })->start();
      inner.wait();
      outer.done();
    });
    outer.wait();
  }));
}

TEST_F(Lending, AGoTaskWaitsForAnotherOfItsQueue) {
  Tally ended;
  WFFacilities::go("queue", [&ended] {
    WFFacilities::WaitGroup group(1);
    WFFacilities::go("queue", [&group] { group.done(); });
    group.wait();
    ended.add();
  });
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_F(Lending, AGoTaskSleepsWhileOthersRun) {
  Tally ran;
  Tally ended;
  size_t ran_meanwhile = 0;
  WFFacilities::go("queue", [&] {
    // Until the other has run, but not for ever: were the thread not lent, it would run last.
    for (int i = 0; i < 600 && ran.count() == 0; i++) {
      WFFacilities::usleep(100'000);
    }
    ran_meanwhile = ran.count();
    ended.add();
  });
  WFFacilities::go("queue", [&ran] { ran.add(); });
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(ran_meanwhile, 1u);
}

TEST_F(Lending, CallbacksWaitFiftyDeep) {
  EXPECT_TRUE(run_in_callback([] { nest(50); }));
}

TEST_F(Lending, AHundredCallbacksSleepSideBySide) {
  // One after the other they would take twenty seconds.
  Tally ended;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; i++) {
    WFTaskFactory::create_timer_task(0u, [&ended](WFTimerTask*) {
      WFFacilities::usleep(200'000);
      ended.add();
    })->start();
  }
  ASSERT_TRUE(ended.wait_for(100));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST_F(Lending, TheNextTaskOfTheSeriesFollowsAfterAWait) {
  std::string order;
  Tally ended;
  SeriesWork* series =
      Workflow::create_series_work(WFTaskFactory::create_timer_task(0u,
                                                                    [&order](WFTimerTask*) {
                                                                      WFFacilities::usleep(1000);
                                                                      order += "a";
                                                                    }),
                                   [&ended](const SeriesWork*) { ended.add(); });
  series->push_back(WFTaskFactory::create_counter_task(0, [&order](WFCounterTask*) {
    WFFacilities::usleep(1000);
    order += "b";
  }));
  series->push_back(WFTaskFactory::create_timer_task(0u, [&order](WFTimerTask*) { order += "c"; }));
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(order, "abc");
}

// What a thread has left to do when it blocks: handlers do it -----------------------------

TEST_F(Lending, ABranchWaitsForItsSibling) {
  siblings_wait(parallel_of);
}

TEST_F(Lending, ANodeWaitsForItsSibling) {
  siblings_wait(graph_of);
}

TEST_F(Lending, ABranchOfAParallelStartedByTheApplicationWaitsForItsSibling) {
  for (const bool waits_first : {true, false}) {
    Tally ended;
    WFFacilities::WaitGroup group(1);
    start(parallel_of(waiting_pair([&] { group.wait(); }, [&] { group.done(); }, waits_first),
                      ended));
    ASSERT_TRUE(ended.wait_for(1));
  }
}

TEST_F(Lending, ABranchWaitsForAFutureOfItsSibling) {
  for (const bool waits_first : {true, false}) {
    Tally ended;
    WFPromise<int> promise;
    WFFuture<int> future = promise.get_future();
    start(task_of([&] {
      start(parallel_of(waiting_pair([&] { EXPECT_EQ(future.get(), 7); },
                                     [&] { promise.set_value(7); }, waits_first),
                        ended));
    }));
    ASSERT_TRUE(ended.wait_for(1));
  }
}

TEST_F(Lending, ABranchSleepsUntilItsSiblingHasRun) {
  for (const bool waits_first : {true, false}) {
    Tally ended;
    std::atomic<bool> woken{false};
    const auto sleep = [&] {
      // But not for ever: a test that hangs tells less.
      for (int i = 0; i < 6000 && !woken; i++) {
        WFFacilities::usleep(10'000);
      }
      EXPECT_TRUE(woken);
    };
    start(task_of([&] {
      start(parallel_of(waiting_pair(
                            sleep, [&] { woken = true; }, waits_first),
                        ended));
    }));
    ASSERT_TRUE(ended.wait_for(1));
  }
}

TEST_F(Lending, ABranchWaitsForAllOfAHundredSiblings) {
  Tally ended;
  WFFacilities::WaitGroup group(100);
  std::vector<Function> functions{[&] { group.wait(); }};
  functions.resize(101, [&] { group.done(); });
  start(task_of([&] { start(parallel_of(functions, ended)); }));
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_F(Lending, AHundredBranchesWaitForTheLast) {
  Tally ended;
  WFFacilities::WaitGroup group(1);
  std::vector<Function> functions(100, [&] { group.wait(); });
  functions.push_back([&] { group.done(); });
  start(task_of([&] { start(parallel_of(functions, ended)); }));
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_F(Lending, EachBranchWaitsForTheNext) {
  constexpr size_t kBranches = 40;
  Tally ended;
  std::vector<std::unique_ptr<WFFacilities::WaitGroup>> groups;
  std::vector<Function> functions;
  for (size_t i = 0; i < kBranches; i++) {
    groups.push_back(std::make_unique<WFFacilities::WaitGroup>(1));
    functions.push_back([&groups, i] {
      if (i + 1 < kBranches) groups[i + 1]->wait();
      groups[i]->done();
    });
  }
  start(task_of([&] { start(parallel_of(functions, ended)); }));
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_F(Lending, BranchesWaitFortyDeep) {
  for (const bool waits_first : {true, false}) {
    EXPECT_TRUE(run_in_callback([waits_first] { nest_branches(40, waits_first); }));
  }
}

TEST_F(Lending, ABranchOfAnInnerParallelWaitsForABranchOfTheOuter) {
  for (const bool waits_first : {true, false}) {
    for (int depth = 1; depth <= 40; depth++) {
      Tally ended;
      WFFacilities::WaitGroup group(1);
      SubTask* task = task_of([&] { group.wait(); });
      for (int i = 0; i < depth; i++) {
        SeriesWork* branches[] = {
            Workflow::create_series_work(task, nullptr),
            Workflow::create_series_work(WFTaskFactory::create_empty_task(), nullptr)};
        task = Workflow::create_parallel_work(branches, 2, nullptr);
      }
      SeriesWork* branches[] = {
          Workflow::create_series_work(task, nullptr),
          Workflow::create_series_work(task_of([&] { group.done(); }), nullptr)};
      if (!waits_first) std::swap(branches[0], branches[1]);
      SubTask* outer = Workflow::create_parallel_work(
          branches, 2, [&ended](const ParallelWork*) { ended.add(); });
      start(task_of([outer] { start(outer); }));
      ASSERT_TRUE(ended.wait_for(1)) << depth;
    }
  }
}

TEST_F(Lending, ANodeOfAnInnerGraphWaitsForWhatFollowsANodeOfTheOuter) {
  Tally ended;
  WFFacilities::WaitGroup group(1);
  WFGraphTask* outer = WFTaskFactory::create_graph_task([&ended](WFGraphTask*) { ended.add(); });
  WFGraphTask* inner = WFTaskFactory::create_graph_task(nullptr);
  WFCounterTask* counter = WFTaskFactory::create_counter_task(1, nullptr);
  inner->create_graph_node(task_of([&group, counter] {
    counter->count();  // makes the follower ready, on this thread
    group.wait();
  }));
  WFGraphNode& counts = outer->create_graph_node(counter);
  outer->create_graph_node(inner);
  counts.precede(outer->create_graph_node(task_of([&group] { group.done(); })));
  start(task_of([outer] { start(outer); }));
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_F(Lending, BranchesWaitOnManyThreadsAtOnce) {
  constexpr size_t kThreads = 4;
  constexpr size_t kRounds = 50;
  Tally ended;
  std::vector<std::jthread> threads;
  std::deque<WFFacilities::WaitGroup> groups;
  for (size_t i = 0; i < kThreads * kRounds; i++) {
    groups.emplace_back(1);
  }
  for (size_t t = 0; t < kThreads; t++) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kRounds; i++) {
        WFFacilities::WaitGroup& group = groups[t * kRounds + i];
        const auto make = i % 3 ? parallel_of : graph_of;
        SubTask* task =
            make(waiting_pair([&] { group.wait(); }, [&] { group.done(); }, i % 2 == 0), ended);
        if (t % 2) {
          start(task);
        } else {
          WFFacilities::go("queue", [task] { start(task); });
        }
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_TRUE(ended.wait_for(kThreads * kRounds));
}

TEST_F(Lending, OneOfTheCountersThatACallbackCountsWaitsForTheNext) {
  WFFacilities::WaitGroup group(1);
  Tally ended;
  for (const bool waits : {true, false}) {
    WFTaskFactory::create_counter_task("counters", 1, [&, waits](WFCounterTask*) {
      waits ? group.wait() : group.done();
      ended.add();
    })->start();
  }
  start(task_of([] { EXPECT_EQ(WFTaskFactory::count_by_name("counters", 2), 2); }));
  EXPECT_TRUE(ended.wait_for(2));
}

TEST_F(Lending, OneOfManyCountersThatACallbackCountsWaitsForTheLast) {
  constexpr unsigned int kCounters = 200;  // more than are taken from their name at once
  WFFacilities::WaitGroup group(1);
  Tally ended;
  for (unsigned int i = 1; i <= kCounters; i++) {
    WFTaskFactory::create_counter_task("counters", 1, [&, i](WFCounterTask*) {
      if (i == 1) group.wait();
      if (i == kCounters) group.done();
      ended.add();
    })->start();
  }
  start(task_of([] { EXPECT_EQ(WFTaskFactory::count_by_name("counters", kCounters), 200); }));
  EXPECT_TRUE(ended.wait_for(kCounters));
}

TEST_F(Lending, OneOfTheMailboxesThatACallbackSendsToWaitsForTheNext) {
  WFFacilities::WaitGroup group(1);
  Tally ended;
  for (const bool waits : {true, false}) {
    WFTaskFactory::create_mailbox_task("mailboxes", [&, waits](WFMailboxTask*) {
      waits ? group.wait() : group.done();
      ended.add();
    })->start();
  }
  start(task_of([] { EXPECT_EQ(WFTaskFactory::send_by_name("mailboxes", nullptr), 2); }));
  EXPECT_TRUE(ended.wait_for(2));
}

TEST_F(Lending, OneOfTheTasksThatACallbackSignalsWaitsForTheNext) {
  WFFacilities::WaitGroup group(1);
  Tally ended;
  for (const bool waits : {true, false}) {
    start(WFTaskFactory::create_conditional("conditionals", task_of([&, waits] {
                                              waits ? group.wait() : group.done();
                                              ended.add();
                                            })));
  }
  start(task_of([] { EXPECT_EQ(WFTaskFactory::signal_by_name("conditionals", nullptr), 2); }));
  EXPECT_TRUE(ended.wait_for(2));
}

// The only computing thread waits in them for what the next function brings; and unlike the pool of
// callbacks that of functions never grows by itself.
TEST_F(Lending, AFunctionBlocksBetweenBeginAndEnd) {
  std::promise<void> brought;
  Tally ended;
  WFTaskFactory::create_go_task("waits", [&] {
    WFGlobal::sync_operation_begin();
    const int cookie = WFGlobal::sync_operation_begin();
    WFGlobal::sync_operation_end(cookie);
    EXPECT_EQ(brought.get_future().wait_for(kPatience), std::future_status::ready);
    WFGlobal::sync_operation_end();
    ended.add();
  })->start();
  WFTaskFactory::create_go_task("brings", [&] { brought.set_value(); })->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_F(Lending, AFunctionWaitsForAFutureOfTheStandardLibrary) {
  for (const bool with_limit : {false, true}) {
    std::promise<int> brought;
    Tally ended;
    WFTaskFactory::create_go_task("waits", [&] {
      WFFuture<int> future(brought.get_future());
      if (with_limit) {
        EXPECT_EQ(future.wait_for(std::chrono::hours::max()), std::future_status::ready);
      }
      EXPECT_EQ(future.get(), 42);
      ended.add();
    })->start();
    WFTaskFactory::create_go_task("brings", [&] { brought.set_value(42); })->start();
    ASSERT_TRUE(ended.wait_for(1));
  }
}

// Nor is anything lost by an end too many, or on a thread that is not the library's.
TEST_F(Lending, BeginAndEndHaveNoEffectOnOtherThreads) {
  WFGlobal::sync_operation_begin();
  EXPECT_TRUE(run_in_callback([] {}));
  WFGlobal::sync_operation_end();
  WFGlobal::sync_operation_end();
  EXPECT_TRUE(run_in_callback([] { WFGlobal::sync_operation_end(); }));
  EXPECT_TRUE(run_in_callback([] {}));
}
