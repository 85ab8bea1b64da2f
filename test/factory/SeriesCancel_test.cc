#include <gtest/gtest.h>

#include <thread>

#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

namespace {

// A parallel of two series with a task each; its callback and those of its series write "!".
ParallelWork* forbidden_parallel(Log* log) {
  const auto cry = [log](const auto*) { log->add("!"); };
  ParallelWork* parallel = Workflow::create_parallel_work(cry);
  parallel->add_series(new CountedSeries(new LogTask(log, "!"), cry));
  parallel->add_series(Workflow::create_series_work(new LogTask(log, "!"), cry));
  return parallel;
}

}  // namespace

TEST(SeriesCancel, BeforeStartNothingRunsButTheCallback) {
  Log log;
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "a"), new LogTask(&log, "z"),
                                                    [&](const SeriesWork* s) {
                                                      EXPECT_TRUE(s->is_canceled());
                                                      EXPECT_TRUE(probes::on_framework_thread());
                                                      EXPECT_EQ(LogTask::alive(), 0);
                                                      ended.add();
                                                    });
  series->push_back(new LogTask(&log, "b"));
  EXPECT_FALSE(series->is_canceled());
  series->cancel();
  EXPECT_TRUE(series->is_canceled());
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "");
}

TEST(SeriesCancel, InACallbackDropsTheRest) {
  Log log;
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "a"), new LogTask(&log, "z"),
                                                    [&](const SeriesWork*) {
                                                      log.add("s");
                                                      EXPECT_EQ(LogTask::alive(), 0);
                                                      ended.add();
                                                    });
  series->push_back(new LogTask(&log, "b", [&log](LogTask* task) {
    series_of(task)->push_back(new LogTask(&log, "x"));
    series_of(task)->cancel();
    series_of(task)->push_back(new LogTask(&log, "y"));
    series_of(task)->cancel();
  }));
  series->push_back(new LogTask(&log, "c"));
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "abs");
}

TEST(SeriesCancel, InTheCallbackOfItsOnlyTask) {
  Log log;
  EXPECT_TRUE(
      probes::run(new LogTask(&log, "a", [](LogTask* task) { series_of(task)->cancel(); })));
  EXPECT_EQ(log.text(), "a");
}

TEST(SeriesCancel, InTheSeriesCallbackChangesNothing) {
  Log log;
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "a"), nullptr);
  series->set_callback([&](const SeriesWork* finished) {
    const_cast<SeriesWork*>(finished)->cancel();
    ended.add();
  });
  series->push_back(new LogTask(&log, "b"));
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "ab");
}

TEST(SeriesCancel, FromAnotherThreadTheRunningTaskEndsFirst) {
  Log log;
  Tally ended;
  HeldTask* held = new HeldTask(&log, "a");
  SeriesWork* series = Workflow::create_series_work(held, probes::counting(ended));
  series->push_back(new LogTask(&log, "b"));
  series->start();
  ASSERT_TRUE(held->wait_dispatched());
  series->cancel();
  EXPECT_EQ(ended.count(), 0u);
  EXPECT_EQ(LogTask::alive(), 2);
  held->release();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "a");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST(SeriesCancel, RacesWithARunningSeries) {
  for (int round = 0; round < 500; round++) {
    Log log;
    Tally series_ended;
    Tally ended;
    HeldTask* gate = new HeldTask(&log);
    HeldTask* other = new HeldTask(&log);
    SeriesWork* series = Workflow::create_series_work(gate, probes::counting(series_ended));
    for (int i = 0; i < 20; i++) {
      series->push_back(new LogTask(&log, "x"));
    }
    // In a parallel, so that the series lives until it has been cancelled, finished or not.
    SeriesWork* all[2] = {series, Workflow::create_series_work(other, nullptr)};
    Workflow::start_parallel_work(all, 2, probes::counting(ended));
    ASSERT_TRUE(gate->wait_dispatched());
    std::thread canceller([series] { series->cancel(); });
    gate->release();
    canceller.join();
    ASSERT_TRUE(series_ended.wait_for(1));
    EXPECT_EQ(LogTask::alive(), 1);
    other->release();
    ASSERT_TRUE(ended.wait_for(1));
    EXPECT_EQ(series_ended.count(), 1u);
  }
}

TEST(SeriesCancel, DestroysUndispatchedParallelsRecursively) {
  Log log;
  Tally ended;
  ParallelWork* outer = forbidden_parallel(&log);
  SeriesWork* branch = Workflow::create_series_work(forbidden_parallel(&log), nullptr);
  branch->push_back(forbidden_parallel(&log));
  branch->set_last_task(new LogTask(&log, "!"));
  outer->add_series(branch);
  SeriesWork* series = Workflow::create_series_work(
      new LogTask(&log, "a", [](LogTask* task) { series_of(task)->cancel(); }),
      probes::counting(ended));
  series->push_back(outer);
  EXPECT_EQ(LogTask::alive(), 8);
  EXPECT_EQ(CountedSeries::alive(), 3);
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "a");
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(CountedSeries::alive(), 0);
}

TEST(SeriesCancel, DestroyedNamedTasksLeaveTheirNames) {
  Log log;
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(
      new LogTask(&log, "a", [](LogTask* task) { series_of(task)->cancel(); }),
      [&](const SeriesWork*) {
        EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 0);
        EXPECT_EQ(WFTaskFactory::count_by_name("name", 100), 0);
        ended.add();
      });
  series->push_back(WFTaskFactory::create_timer_task("name", 0, 0, [](WFTimerTask*) { FAIL(); }));
  series->push_back(WFTaskFactory::create_counter_task("name", 1, [](WFCounterTask*) { FAIL(); }));
  series->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(SeriesDismiss, DestroysAllTasksWithoutCallbacks) {
  Log log;
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "!"), new LogTask(&log, "!"),
                                                    [&](const SeriesWork*) { log.add("!"); });
  series->push_back(new LogTask(&log, "!"));
  series->push_front(new LogTask(&log, "!"));
  series->push_first(new LogTask(&log, "!"));
  EXPECT_EQ(LogTask::alive(), 5);
  series->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(log.text(), "");
}

TEST(SeriesDismiss, IsRecursive) {
  Log log;
  ParallelWork* parallel = forbidden_parallel(&log);
  parallel->add_series(new CountedSeries(forbidden_parallel(&log), nullptr));
  SeriesWork* series = Workflow::create_series_work(forbidden_parallel(&log), parallel, nullptr);
  series->push_back(forbidden_parallel(&log));
  EXPECT_EQ(LogTask::alive(), 8);
  EXPECT_EQ(CountedSeries::alive(), 5);
  series->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(CountedSeries::alive(), 0);
  EXPECT_EQ(log.text(), "");
}

TEST(SeriesDismiss, OfAParallelIsRecursive) {
  Log log;
  ParallelWork* parallel = forbidden_parallel(&log);
  parallel->add_series(Workflow::create_series_work(forbidden_parallel(&log), nullptr));
  parallel->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(CountedSeries::alive(), 0);
  EXPECT_EQ(log.text(), "");
}

TEST(SeriesDismiss, NamedTasksLeaveTheirNames) {
  SeriesWork* series =
      Workflow::create_series_work(WFTaskFactory::create_timer_task("name", 0, 0, nullptr),
                                   WFTaskFactory::create_counter_task("name", 1, nullptr), nullptr);
  series->dismiss();
  EXPECT_EQ(WFTaskFactory::cancel_by_name("name"), 0);
  EXPECT_EQ(WFTaskFactory::count_by_name("name"), 0);
}

TEST(SeriesDismiss, AMillionTasksUseConstantStack) {
  SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_empty_task(), nullptr);
  for (int i = 0; i < 1'000'000; i++) {
    series->push_back(WFTaskFactory::create_empty_task());
  }
  series->dismiss();
}
