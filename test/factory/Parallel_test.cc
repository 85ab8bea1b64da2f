#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

TEST(Parallel, CallbackRunsAfterEverySeries) {
  Log log;
  Tally ended;
  HeldTask* held[3];
  SeriesWork* all[3];
  for (int i = 0; i < 3; i++) {
    held[i] = new HeldTask(&log, "a");
    all[i] = Workflow::create_series_work(held[i], [&](const SeriesWork*) { log.add("b"); });
  }
  Workflow::start_parallel_work(all, 3, [&](const ParallelWork*) {
    log.add("z");
    EXPECT_TRUE(probes::on_framework_thread());
    ended.add();
  });
  held[1]->release();
  held[2]->release();
  EXPECT_EQ(ended.count(), 0u);
  held[0]->release();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.sorted(), "aaabbbz");
  EXPECT_EQ(log.text().back(), 'z');
}

TEST(Parallel, BranchesReleasedByManyThreadsEndItOnce) {
  for (int round = 0; round < 200; round++) {
    Log log;
    Tally ended;
    constexpr int kBranches = 4;
    std::vector<HeldTask*> held;
    ParallelWork* parallel = Workflow::create_parallel_work(probes::counting(ended));
    for (int i = 0; i < kBranches; i++) {
      held.push_back(new HeldTask(&log, "a"));
      parallel->add_series(Workflow::create_series_work(held.back(), nullptr));
    }
    std::vector<std::jthread> threads;
    for (HeldTask* task : held) {
      threads.emplace_back([task] { task->release(); });
    }
    parallel->start();
    threads.clear();  // joins them
    ASSERT_TRUE(ended.wait_for(1));
    EXPECT_EQ(log.text(), "aaaa");
  }
}

TEST(Parallel, EmptyEndsAtOnce) {
  Tally ended;
  Workflow::create_parallel_work(probes::counting(ended))->start();
  ASSERT_TRUE(ended.wait_for(1));
  Workflow::start_parallel_work(nullptr, 0, probes::counting(ended));
  ASSERT_TRUE(ended.wait_for(2));
}

TEST(Parallel, IsATaskOfASeries) {
  Log log;
  SeriesWork* series = series_with(&log, "a");
  SeriesWork* branches[2] = {series_with(&log, "b"), series_with(&log, "b")};
  series->push_back(Workflow::create_parallel_work(branches, 2, [&](const ParallelWork* parallel) {
    log.add("c");
    series_of(parallel)->push_front(new LogTask(&log, "d"));
  }));
  series->push_back(Workflow::create_parallel_work([&](const ParallelWork*) { log.add("e"); }));
  series->push_back(new LogTask(&log, "f"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "abbcdef");
}

TEST(Parallel, Nests) {
  Log log;
  Tally ended;
  ParallelWork* inner = Workflow::create_parallel_work([&](const ParallelWork*) { log.add("c"); });
  for (int i = 0; i < 2; i++) {
    SeriesWork* branch = series_with(&log, "a");
    branch->push_back(WFTaskFactory::create_timer_task(1000u, [&](WFTimerTask*) { log.add("b"); }));
    inner->add_series(branch);
  }
  SeriesWork* around = Workflow::create_series_work(inner, nullptr);
  around->push_back(new LogTask(&log, "d"));
  SeriesWork* all[2] = {around, series_with(&log, "x")};
  Workflow::start_parallel_work(all, 2, [&](const ParallelWork*) {
    log.add("z");
    ended.add();
  });
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.sorted(), "aabbcdxz");
  EXPECT_TRUE(log.before('b', 'c'));
  EXPECT_TRUE(log.before('c', 'd'));
  EXPECT_TRUE(log.before('d', 'z'));
  EXPECT_TRUE(log.before('x', 'z'));
}

TEST(Parallel, FinishedSeriesLiveUntilItsCallbackHasReturned) {
  Log log;
  Tally ended;
  int contexts[2] = {1, 2};
  ParallelWork* parallel = Workflow::create_parallel_work([&](const ParallelWork* finished) {
    EXPECT_EQ(CountedSeries::alive(), 2);
    int sum = 0;
    for (const SeriesWork* series : *finished) {
      EXPECT_TRUE(series->is_finished());
      EXPECT_EQ(series->get_in_parallel(), finished);
      sum += *static_cast<int*>(series->get_context());
    }
    EXPECT_EQ(sum, 3);
  });
  for (int& context : contexts) {
    SeriesWork* series = new CountedSeries(new LogTask(&log, "a"), nullptr);
    series->set_context(&context);
    parallel->add_series(series);
  }
  SeriesWork* outer = Workflow::create_series_work(parallel, nullptr);
  outer->push_back(new LogTask(&log, "b", [&](LogTask*) {
    EXPECT_EQ(CountedSeries::alive(), 0);
    ended.add();
  }));
  outer->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "aab");
  EXPECT_TRUE(probes::all_gone());
}

TEST(Parallel, GivesAccessToItsSeries) {
  Log log;
  int context = 0;
  SeriesWork* first = series_with(&log, "a");
  SeriesWork* second = series_with(&log, "a");
  ParallelWork* parallel = Workflow::create_parallel_work(&first, 1, nullptr);
  parallel->add_series(second);
  const ParallelWork* read_only = parallel;
  EXPECT_EQ(parallel->size(), 2u);
  EXPECT_EQ(parallel->series_at(0), first);
  EXPECT_EQ(read_only->series_at(1), second);
  EXPECT_EQ(parallel->series_at(2), nullptr);
  EXPECT_EQ(read_only->series_at(2), nullptr);
  EXPECT_EQ(&(*parallel)[1], second);
  EXPECT_EQ(&(*read_only)[0], first);
  EXPECT_EQ(parallel->end() - parallel->begin(), 2);
  EXPECT_EQ(*parallel->begin(), first);
  EXPECT_EQ(read_only->end() - read_only->begin(), 2);
  EXPECT_EQ(first->get_in_parallel(), parallel);
  EXPECT_EQ(parallel->get_context(), nullptr);
  parallel->set_context(&context);
  EXPECT_EQ(read_only->get_context(), &context);
  parallel->dismiss();
}

TEST(Parallel, SetCallbackReplacesTheCallback) {
  Log log;
  Tally ended;
  ParallelWork* parallel =
      Workflow::create_parallel_work([&](const ParallelWork*) { log.add("!"); });
  parallel->set_callback(probes::counting(ended));
  parallel->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "");
}

TEST(Parallel, PushesInABranchPostponeItsEnd) {
  Log log;
  Tally ended;
  ParallelWork* parallel = Workflow::create_parallel_work([&](const ParallelWork*) {
    log.add("z");
    ended.add();
  });
  for (int i = 0; i < 2; i++) {
    parallel->add_series(Workflow::create_series_work(
        new LogTask(&log, "a",
                    [&log](LogTask* task) {
                      *series_of(task) << WFTaskFactory::create_timer_task(1000u, nullptr)
                                       << new LogTask(&log, "b");
                    }),
        nullptr));
  }
  parallel->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.sorted(), "aabbz");
  EXPECT_EQ(log.text().back(), 'z');
}

TEST(Parallel, CancelInABranchLeavesTheOthers) {
  Log log;
  Tally ended;
  SeriesWork* cancelled = Workflow::create_series_work(
      new LogTask(&log, "a", [](LogTask* task) { series_of(task)->cancel(); }),
      [&](const SeriesWork* series) {
        EXPECT_TRUE(series->is_canceled());
        log.add("b");
      });
  cancelled->push_back(new LogTask(&log, "!"));
  SeriesWork* other = series_with(&log, "c");
  other->push_back(new LogTask(&log, "d"));
  SeriesWork* all[2] = {cancelled, other};
  Workflow::start_parallel_work(all, 2, [&](const ParallelWork* parallel) {
    EXPECT_TRUE(parallel->series_at(0)->is_canceled());
    EXPECT_FALSE(parallel->series_at(1)->is_canceled());
    ended.add();
  });
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.sorted(), "abcd");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST(Parallel, ABranchCancelledBeforeStartOnlyRunsItsCallback) {
  Log log;
  Tally ended;
  SeriesWork* branch = Workflow::create_series_work(new LogTask(&log, "!"),
                                                    [&](const SeriesWork*) { log.add("a"); });
  branch->push_back(new LogTask(&log, "!"));
  branch->cancel();
  SeriesWork* all[2] = {branch, series_with(&log, "b")};
  Workflow::start_parallel_work(all, 2, probes::counting(ended));
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.sorted(), "ab");
}

TEST(Parallel, CancelOfTheOuterSeriesDoesNotTouchTheRunningParallel) {
  Log log;
  Tally ended;
  HeldTask* held = new HeldTask(&log, "a");
  SeriesWork* branch = Workflow::create_series_work(held, nullptr);
  branch->push_back(new LogTask(&log, "b"));
  ParallelWork* parallel =
      Workflow::create_parallel_work(&branch, 1, [&](const ParallelWork*) { log.add("c"); });
  SeriesWork* outer = Workflow::create_series_work(parallel, probes::counting(ended));
  outer->push_back(new LogTask(&log, "!"));
  outer->start();
  ASSERT_TRUE(held->wait_dispatched());
  outer->cancel();
  held->release();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "abc");
}

TEST(Parallel, AThousandTimersEndTogether) {
  Tally timers;
  Tally ended;
  ParallelWork* parallel = Workflow::create_parallel_work([&](const ParallelWork*) {
    EXPECT_EQ(timers.count(), 1000u);
    ended.add();
  });
  for (unsigned int i = 0; i < 1000; i++) {
    parallel->add_series(Workflow::create_series_work(
        WFTaskFactory::create_timer_task(i * 5, [&](WFTimerTask*) { timers.add(); }), nullptr));
  }
  parallel->start();
  EXPECT_TRUE(ended.wait_for(1));
}
