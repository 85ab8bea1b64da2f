#include <gtest/gtest.h>

#include <atomic>
#include <climits>
#include <string>
#include <thread>
#include <vector>

#include "TaskProbes.h"
#include "factory/CounterTask.h"
#include "workflow/WFFacilities.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;
using workflow::NamedCounterTask;

namespace {

counter_callback_t adding(Tally& tally) {
  return [&tally](WFCounterTask* task) {
    EXPECT_EQ(task->get_state(), WFT_STATE_SUCCESS);
    EXPECT_EQ(task->get_error(), 0);
    tally.add();
  };
}

// A named counter that was started and writes the letter when it ends.
void start_counter(const char* name, unsigned int target, Log& log, const char* letter,
                   Tally& ended) {
  WFTaskFactory::create_counter_task(name, target, [&log, &ended, letter](WFCounterTask*) {
    log.add(letter);
    ended.add();
  })->start();
}

}  // namespace

TEST(Counter, EndsWhenCountedToItsTarget) {
  Tally ended;
  WFCounterTask* counter = WFTaskFactory::create_counter_task(3, adding(ended));
  counter->start();
  counter->count();
  counter->count();
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  counter->count();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(Counter, CountsBeforeStartCount) {
  Tally ended;
  WFCounterTask* counter = WFTaskFactory::create_counter_task(2, adding(ended));
  counter->count();
  counter->count();
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  counter->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(Counter, TargetZeroEndsWhenStarted) {
  Tally ended;
  WFTaskFactory::create_counter_task(0, adding(ended))->start();
  WFTaskFactory::create_counter_task("name", 0, adding(ended))->start();
  EXPECT_TRUE(ended.wait_for(2));
}

TEST(Counter, LargestTargetWaits) {
  Tally ended;
  WFCounterTask* counter = WFTaskFactory::create_counter_task(UINT_MAX, adding(ended));
  counter->count();
  WFTaskFactory::create_counter_task("name", UINT_MAX, adding(ended))->start();
  EXPECT_EQ(WFTaskFactory::count_by_name("name", UINT_MAX - 1), 0);
  EXPECT_EQ(ended.count(), 0u);
  EXPECT_EQ(WFTaskFactory::count_by_name("name", UINT_MAX), 1);
  EXPECT_TRUE(ended.wait_for(1));
  counter->dismiss();
}

TEST(Counter, CountedOnAUserThreadItsCallbackRunsOnAFrameworkThread) {
  Tally ended;
  bool on_framework = false;
  WFCounterTask* counter = WFTaskFactory::create_counter_task(1, [&](WFCounterTask*) {
    on_framework = probes::on_framework_thread();
    ended.add();
  });
  counter->start();
  std::thread([counter] { counter->count(); }).join();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(on_framework);
}

TEST(Counter, CountsOfManyThreadsAndTheStartEndItOnce) {
  for (int round = 0; round < 300; round++) {
    constexpr unsigned int kThreads = 4;
    constexpr unsigned int kCounts = 10;
    Tally ended;
    WFCounterTask* counter = WFTaskFactory::create_counter_task(kThreads * kCounts, adding(ended));
    std::vector<std::jthread> threads;
    for (unsigned int i = 0; i < kThreads; i++) {
      threads.emplace_back([counter] {
        for (unsigned int j = 0; j < kCounts; j++) {
          counter->count();
        }
      });
    }
    counter->start();
    threads.clear();  // joins them
    ASSERT_TRUE(ended.wait_for(1));
    ASSERT_EQ(ended.count(), 1u);
  }
}

TEST(Counter, HoldsItsSeriesUntilItEnds) {
  Log log;
  Tally ended;
  WFCounterTask* counter =
      WFTaskFactory::create_counter_task(1, [&](WFCounterTask*) { log.add("b"); });
  SeriesWork* series =
      Workflow::create_series_work(new LogTask(&log, "a"), probes::counting(ended));
  *series << counter << new LogTask(&log, "c");
  series->start();
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  counter->count();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "abc");
}

TEST(Counter, SetCallbackReplacesTheCallback) {
  Tally ended;
  WFCounterTask* counter = WFTaskFactory::create_counter_task(0, [](WFCounterTask*) { FAIL(); });
  counter->set_callback(adding(ended));
  counter->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(NamedCounter, UnknownNameCountsNothing) {
  EXPECT_EQ(WFTaskFactory::count_by_name("nobody"), 0);
  EXPECT_EQ(WFTaskFactory::count_by_name("nobody", 7), 0);
}

TEST(NamedCounter, CountByNameReturnsHowManyReachedTheirTarget) {
  Tally ended;
  WFTaskFactory::create_counter_task("name", 2, adding(ended))->start();
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 0);
  EXPECT_EQ(WFTaskFactory::count_by_name("other"), 0);
  EXPECT_EQ(WFTaskFactory::count_by_name("name", 0), 0);
  EXPECT_EQ(ended.count(), 0u);
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 1);
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 0);
}

TEST(NamedCounter, OneCountGoesToTheOldest) {
  Log log;
  Tally ended;
  start_counter("name", 1, log, "a", ended);
  start_counter("name", 1, log, "b", ended);
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 1);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "a");
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 1);
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(log.text(), "ab");
}

TEST(NamedCounter, ManyCountsFillOneAfterTheOther) {
  Log log;
  Tally ended;
  start_counter("name", 2, log, "a", ended);
  start_counter("name", 3, log, "b", ended);
  start_counter("name", 4, log, "c", ended);
  EXPECT_EQ(WFTaskFactory::count_by_name("name", 6), 2);
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(log.sorted(), "ab");
  // One of six counts went to the third.
  EXPECT_EQ(WFTaskFactory::count_by_name("name", 2), 0);
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 1);
  ASSERT_TRUE(ended.wait_for(3));
}

TEST(NamedCounter, CountsBeyondTheLastAreDropped) {
  Log log;
  Tally ended;
  start_counter("name", 2, log, "a", ended);
  EXPECT_EQ(WFTaskFactory::count_by_name("name", 100), 1);
  ASSERT_TRUE(ended.wait_for(1));
  start_counter("name", 2, log, "b", ended);
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 0);
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 1);
  EXPECT_TRUE(ended.wait_for(2));
}

TEST(NamedCounter, CountsBeforeStartCount) {
  Tally ended;
  WFCounterTask* counter = WFTaskFactory::create_counter_task("name", 2, adding(ended));
  EXPECT_EQ(WFTaskFactory::count_by_name("name", 2), 1);
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 0);
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  counter->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(NamedCounter, IsCountedThroughItsTaskToo) {
  Tally ended;
  WFCounterTask* counter = WFTaskFactory::create_counter_task("name", 3, adding(ended));
  counter->start();
  counter->count();
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 0);
  counter->count();
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 0);
}

TEST(NamedCounter, DismissLeavesTheName) {
  Log log;
  Tally ended;
  WFCounterTask* dismissed =
      WFTaskFactory::create_counter_task("name", 1, [](WFCounterTask*) { FAIL(); });
  start_counter("name", 1, log, "b", ended);
  dismissed->dismiss();
  EXPECT_EQ(NamedCounterTask::registry().count("name"), 1u);
  EXPECT_EQ(WFTaskFactory::count_by_name("name", 5), 1);
  EXPECT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(NamedCounterTask::registry().empty());
}

TEST(NamedCounter, TargetZeroIsNotUnderTheName) {
  Tally ended;
  WFCounterTask* counter = WFTaskFactory::create_counter_task("name", 0, adding(ended));
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 0);
  counter->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(NamedCounter, OneThatItsCallbackMakesAnewIsNotCountedByTheSameCall) {
  Tally ended;
  counter_callback_t again = [&](WFCounterTask*) {
    if (ended.count() < 3) {
      WFTaskFactory::create_counter_task("name", 1, again)->start();
    }
    ended.add();
  };
  WFTaskFactory::create_counter_task("name", 1, again)->start();
  for (size_t round = 1; round <= 4; round++) {
    EXPECT_EQ(WFTaskFactory::count_by_name("name", 1000), 1);
    ASSERT_TRUE(ended.wait_for(round));
  }
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 0);
}

TEST(NamedCounter, CountedInsideAnotherCounterCallback) {
  Log log;
  Tally ended;
  start_counter("inner", 1, log, "b", ended);
  WFTaskFactory::create_counter_task("outer", 1, [&](WFCounterTask*) {
    log.add("a");
    EXPECT_EQ(WFTaskFactory::count_by_name("inner"), 1);
    ended.add();
  })->start();
  EXPECT_EQ(WFTaskFactory::count_by_name("outer"), 1);
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_TRUE(log.before('a', 'b'));
}

TEST(NamedCounter, CallbacksOfOneCallMayWaitForEachOther) {
  Tally ended;
  WFFacilities::WaitGroup group(2);
  for (int i = 0; i < 2; i++) {
    WFTaskFactory::create_counter_task("name", 1, [&](WFCounterTask*) {
      group.done();
      group.wait();
      ended.add();
    })->start();
  }
  WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask*) {
    EXPECT_EQ(WFTaskFactory::count_by_name("name", 2), 2);
    ended.add();
  })->start();
  EXPECT_TRUE(ended.wait_for(3));
}

TEST(NamedCounter, NamesAreAnyBytes) {
  const std::string names[] = {"", std::string("a\0b", 3), std::string("a\0c", 3), "\xff\xfe",
                               std::string(64 * 1024, 'x')};
  for (const std::string& name : names) {
    Tally ended;
    WFTaskFactory::create_counter_task(name, 1, adding(ended))->start();
    for (const std::string& other : names) {
      EXPECT_EQ(WFTaskFactory::count_by_name(other), other == name);
    }
    EXPECT_TRUE(ended.wait_for(1));
  }
}

TEST(NamedCounter, CountsOfManyThreadsAreExact) {
  constexpr int kThreads = 4;
  constexpr int kCounters = 1000;
  constexpr unsigned int kTarget = 3;
  Tally ended;
  for (int i = 0; i < kCounters; i++) {
    WFTaskFactory::create_counter_task("name", kTarget, adding(ended))->start();
  }
  std::atomic<int> reached{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&reached, i] {
      // Together exactly as many as needed; every second thread counts in larger steps.
      const unsigned int step = i % 2 ? 5 : 1;
      for (unsigned int left = kCounters * kTarget / kThreads; left > 0; left -= step) {
        reached += WFTaskFactory::count_by_name("name", step);
      }
    });
  }
  threads.clear();  // joins them
  EXPECT_EQ(reached, kCounters);
  EXPECT_TRUE(ended.wait_for(kCounters));
  EXPECT_TRUE(NamedCounterTask::registry().empty());
}
