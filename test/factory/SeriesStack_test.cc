#include <gtest/gtest.h>

#include <functional>

#include "StackSpread.h"
#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

// However many tasks follow each other, the stack stays where it is.

using namespace probes;
using test_support::Tally;

namespace {

constexpr int kMillion = probes::kDeep;

}  // namespace

TEST(SeriesStack, OfAMillionEmptyTasksInOneSeries) {
  StackSpread stack;
  SeriesWork* series = Workflow::create_series_work(new NotingTask(&stack), nullptr);
  for (int i = 0; i < kMillion; i++) {
    if (i % 1000 == 999) {
      series->push_back(new NotingTask(&stack));
    } else {
      series->push_back(WFTaskFactory::create_empty_task());
    }
  }
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(stack.notes(), 1 + kMillion / 1000);
  EXPECT_LT(stack.spread(), kSpread);
}

TEST(SeriesStack, OfASeriesThatExtendsItselfAMillionTimes) {
  StackSpread stack;
  int left = kMillion;
  std::function<void(NotingTask*)> extend = [&](NotingTask* task) {
    if (--left > 0) {
      series_of(task)->push_back(new NotingTask(&stack, extend));
    }
  };
  EXPECT_TRUE(probes::run(new NotingTask(&stack, extend)));
  EXPECT_EQ(stack.notes(), kMillion);
  EXPECT_LT(stack.spread(), kSpread);
}

TEST(SeriesStack, OfALoneTaskWhoseSeriesExtendsItselfAMillionTimes) {
  StackSpread stack;
  Tally ended;
  int left = kMillion;
  std::function<void(WFCounterTask*)> extend = [&](WFCounterTask* task) {
    stack.note();
    if (--left > 0) {
      *series_of(task) << WFTaskFactory::create_counter_task(0, extend);
    } else {
      ended.add();
    }
  };
  WFTaskFactory::create_counter_task(0, extend)->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_LT(stack.spread(), kSpread);
}

TEST(SeriesStack, OfAMillionTimersWithoutADelayInOneSeries) {
  StackSpread stack;
  Tally ended;
  int left = kMillion;
  std::function<void(WFTimerTask*)> extend = [&](WFTimerTask* task) {
    stack.note();
    if (--left > 0) {
      *series_of(task) << WFTaskFactory::create_timer_task(0, 0, extend);
    } else {
      ended.add();
    }
  };
  WFTaskFactory::create_timer_task(0, 0, extend)->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(stack.notes(), kMillion);
  EXPECT_LT(stack.spread(), kSpread);
}

TEST(SeriesStack, OfAMillionTimersWithoutADelayStartedInTheCallbackOfTheOneBefore) {
  StackSpread stack;
  Tally ended;
  int left = kMillion;
  std::function<void(WFTimerTask*)> next = [&](WFTimerTask*) {
    stack.note();
    if (--left > 0) {
      WFTaskFactory::create_timer_task(0, 0, next)->start();
    } else {
      ended.add();
    }
  };
  WFTaskFactory::create_timer_task(0, 0, next)->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(stack.notes(), kMillion);
  EXPECT_LT(stack.spread(), kSpread);
}

TEST(SeriesStack, OfAMillionParallelsOfOneEmptyTaskEach) {
  StackSpread stack;
  int left = kMillion;
  std::function<void(const ParallelWork*)> extend = [&](const ParallelWork* finished) {
    stack.note();
    if (--left > 0) {
      SeriesWork* branch =
          Workflow::create_series_work(WFTaskFactory::create_empty_task(), nullptr);
      series_of(finished)->push_back(Workflow::create_parallel_work(&branch, 1, extend));
    }
  };
  EXPECT_TRUE(probes::run(Workflow::create_parallel_work(extend)));
  EXPECT_EQ(stack.notes(), kMillion);
  EXPECT_LT(stack.spread(), kSpread);
}

TEST(SeriesStack, OfAHundredThousandParallelsWaitingInOneSeries) {
  StackSpread stack;
  SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_empty_task(), nullptr);
  for (int i = 0; i < 100'000; i++) {
    SeriesWork* branches[2];
    for (SeriesWork*& branch : branches) {
      branch = Workflow::create_series_work(WFTaskFactory::create_empty_task(), nullptr);
    }
    series->push_back(
        Workflow::create_parallel_work(branches, 2, [&](const ParallelWork*) { stack.note(); }));
  }
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(stack.notes(), 100'000);
  EXPECT_LT(stack.spread(), kSpread);
}

TEST(SeriesStack, OfAParallelWithAHundredThousandBranches) {
  StackSpread stack;
  ParallelWork* parallel = Workflow::create_parallel_work(nullptr);
  for (int i = 0; i < 100'000; i++) {
    parallel->add_series(Workflow::create_series_work(new NotingTask(&stack), nullptr));
  }
  // Behind another task, so that a thread of the library dispatches them all.
  SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_empty_task(), nullptr);
  series->push_back(parallel);
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(stack.notes(), 100'000);
  EXPECT_LT(stack.spread(), kSpread);
}

TEST(SeriesStack, OfAMillionLoneTasksEachStartedByTheOneBefore) {
  StackSpread stack;
  Tally ended;
  int left = kMillion;
  std::function<void(WFCounterTask*)> start_next = [&](WFCounterTask*) {
    stack.note();
    if (--left > 0) {
      WFTaskFactory::create_counter_task(0, start_next)->start();
    } else {
      ended.add();
    }
  };
  WFTaskFactory::create_counter_task(0, start_next)->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_LT(stack.spread(), kNestedSpread);
}

TEST(SeriesStack, OfAHundredThousandCountersEachCountedByTheOneBefore) {
  constexpr int kCounters = 100'000;
  StackSpread stack;
  Tally ended;
  WFCounterTask* next = nullptr;
  for (int i = 0; i < kCounters; i++) {
    WFCounterTask* counter = WFTaskFactory::create_counter_task(1, [&, next](WFCounterTask*) {
      stack.note();
      if (next) {
        next->count();
      } else {
        ended.add();
      }
    });
    counter->start();
    next = counter;
  }
  next->count();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(stack.notes(), kCounters);
  EXPECT_LT(stack.spread(), kNestedSpread);
}
