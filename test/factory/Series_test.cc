#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

TEST(Series, RunsInTheOrderOfPushBack) {
  Log log;
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "a"), nullptr);
  series->push_back(new LogTask(&log, "b"));
  *series << new LogTask(&log, "c") << new LogTask(&log, "d");
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "abcd");
}

TEST(Series, PushFrontBeforeStartGoesBehindTheFirst) {
  Log log;
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "a"), nullptr);
  series->push_back(new LogTask(&log, "d"));
  series->push_front(new LogTask(&log, "c"));
  series->push_front(new LogTask(&log, "b"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "abcd");
}

TEST(Series, PushFirstBecomesTheFirst) {
  Log log;
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "c"), nullptr);
  series->push_back(new LogTask(&log, "d"));
  series->push_first(new LogTask(&log, "b"));
  series->push_first(new LogTask(&log, "a"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "abcd");
}

TEST(Series, PushesFromACallback) {
  Log log;
  SeriesWork* series = Workflow::create_series_work(
      new LogTask(&log, "a",
                  [&log](LogTask* task) {
                    series_of(task)->push_back(new LogTask(&log, "e"));
                    series_of(task)->push_front(new LogTask(&log, "c"));
                    series_of(task)->push_front(new LogTask(&log, "b"));
                  }),
      nullptr);
  series->push_back(new LogTask(&log, "d"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "abcde");
}

TEST(Series, PushesFromAnotherThreadWhileATaskRuns) {
  Log log;
  HeldTask* held = new HeldTask(&log, "a");
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(held, probes::counting(ended));
  series->push_back(new LogTask(&log, "c"));
  series->start();
  ASSERT_TRUE(held->wait_dispatched());
  series->push_back(new LogTask(&log, "d"));
  series->push_front(new LogTask(&log, "b"));
  EXPECT_EQ(log.text(), "");
  held->release();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "abcd");
}

TEST(Series, PushesFromManyThreadsWhileTasksRunAllRun) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 2000;
  Log log;
  Tally ran;
  Tally ended;
  HeldTask* held = new HeldTask(&log);
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log), probes::counting(ended));
  // Last, so that the series lives until all have pushed, whatever it has run by then.
  series->set_last_task(held);
  series->start();
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < kTasks; j++) {
        SubTask* task = new LogTask(&log, "", [&ran](LogTask*) { ran.add(); });
        (i + j) % 2 ? series->push_back(task) : series->push_front(task);
      }
    });
  }
  threads.clear();  // joins them
  held->release();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(ran.count(), size_t{kThreads * kTasks});
}

TEST(Series, TasksNeverRunAtOnce) {
  std::atomic<int> inside{0};
  std::atomic<int> overlaps{0};
  const auto enter = [&] {
    overlaps += inside++ > 0;
    std::this_thread::yield();
    inside--;
  };
  SeriesWork* series = Workflow::create_series_work(WFTaskFactory::create_empty_task(), nullptr);
  for (int i = 0; i < 200; i++) {
    series->push_back(WFTaskFactory::create_timer_task(0u, [&](WFTimerTask*) { enter(); }));
    WFGoTask* go = WFTaskFactory::create_go_task(std::to_string(i % 3), enter);
    go->set_callback([&](WFGoTask*) { enter(); });
    series->push_back(go);
    series->push_back(WFTaskFactory::create_counter_task(0, [&](WFCounterTask*) { enter(); }));
  }
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(overlaps, 0);
}

TEST(Series, CallbacksRunOnFrameworkThreads) {
  Log log;
  Tally ended;
  std::atomic<int> elsewhere{0};
  const auto look = [&elsewhere](const void*) { elsewhere += !probes::on_framework_thread(); };
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "", look), nullptr);
  series->push_back(new LogTask(&log, "", look));
  series->set_callback([&](const SeriesWork* finished) {
    look(finished);
    ended.add();
  });
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(elsewhere, 0);
}

TEST(Series, CallbackRunsOnceAfterTheLastTask) {
  Log log;
  Tally ended;
  Workflow::start_series_work(new LogTask(&log, "a",
                                          [&log](LogTask* task) {
                                            EXPECT_FALSE(series_of(task)->is_finished());
                                            *series_of(task) << new LogTask(&log, "b");
                                          }),
                              [&](const SeriesWork* series) {
                                EXPECT_TRUE(series->is_finished());
                                EXPECT_FALSE(series->is_canceled());
                                log.add("z");
                                ended.add();
                              });
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "abz");
}

TEST(Series, SetCallbackReplacesTheCallback) {
  Log log;
  Tally ended;
  Workflow::start_series_work(
      new LogTask(&log, "",
                  [&](LogTask* task) { series_of(task)->set_callback(probes::counting(ended)); }),
      [&](const SeriesWork*) { log.add("first"); });
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "");
}

TEST(Series, ContextIsSharedByItsTasksAndItsCallback) {
  Log log;
  Tally ended;
  int context = 0;
  const auto increment = [](LogTask* task) {
    ++*static_cast<int*>(series_of(task)->get_context());
  };
  SeriesWork* series =
      Workflow::create_series_work(new LogTask(&log, "", increment), [&](const SeriesWork* s) {
        EXPECT_EQ(s->get_context(), &context);
        ended.add();
      });
  EXPECT_EQ(series->get_context(), nullptr);
  series->set_context(&context);
  series->push_back(new LogTask(&log, "", increment));
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(context, 2);
}

TEST(Series, OutsideAParallelGetInParallelIsNull) {
  Log log;
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log), nullptr);
  EXPECT_EQ(series->get_in_parallel(), nullptr);
  EXPECT_EQ(series->get_specific("anything"), nullptr);
  series->dismiss();
}

TEST(SeriesLastTask, RunsBehindWhatIsPushed) {
  Log log;
  LogTask* last = new LogTask(&log, "z");
  SeriesWork* series = Workflow::create_series_work(
      new LogTask(&log, "a", [&log](LogTask* task) { *series_of(task) << new LogTask(&log, "c"); }),
      last, nullptr);
  EXPECT_EQ(series->get_last_task(), last);
  EXPECT_EQ(series_of(last), series);
  series->push_back(new LogTask(&log, "b"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "abcz");
}

TEST(SeriesLastTask, StartSeriesWorkTakesOne) {
  Log log;
  Tally ended;
  Workflow::start_series_work(new LogTask(&log, "a"), new LogTask(&log, "z"),
                              probes::counting(ended));
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "az");
}

TEST(SeriesLastTask, IsSetFromACallback) {
  Log log;
  SeriesWork* series = Workflow::create_series_work(
      new LogTask(&log, "a",
                  [&log](LogTask* task) {
                    EXPECT_EQ(series_of(task)->get_last_task(), nullptr);
                    series_of(task)->set_last_task(new LogTask(&log, "z"));
                  }),
      nullptr);
  series->push_back(new LogTask(&log, "b"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "abz");
}

TEST(SeriesLastTask, UnsetGivesItBack) {
  Log log;
  LogTask* last = new LogTask(&log, "z");
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "a"), last, nullptr);
  series->unset_last_task();
  EXPECT_EQ(series->get_last_task(), nullptr);
  last->set_pointer(nullptr);
  last->dismiss();
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "a");
}

TEST(SeriesLastTask, MayPushMoreAndSetAnother) {
  Log log;
  LogTask* last = new LogTask(&log, "c", [&log](LogTask* task) {
    EXPECT_EQ(series_of(task)->get_last_task(), nullptr);
    series_of(task)->set_last_task(new LogTask(&log, "e"));
    series_of(task)->push_back(new LogTask(&log, "d"));
  });
  SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "a"), last, nullptr);
  series->push_back(new LogTask(&log, "b"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log.text(), "abcde");
}

TEST(SeriesDerived, IsWhatItsTasksFind) {
  Log log;
  Tally ended;
  CountedSeries* series =
      new CountedSeries(new LogTask(&log, "a",
                                    [](LogTask* task) {
                                      SeriesWork* own = series_of(task);
                                      EXPECT_EQ(own->get_specific("self"), own);
                                      EXPECT_EQ(own->get_specific("other"), nullptr);
                                      own->cancel();
                                      EXPECT_EQ(static_cast<CountedSeries*>(own)->cancels(), 1);
                                    }),
                        probes::counting(ended));
  series->push_back(new LogTask(&log, "b"));
  EXPECT_EQ(CountedSeries::alive(), 1);
  series->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(probes::all_gone());
  EXPECT_EQ(log.text(), "a");
}

TEST(SeriesDerived, IsDestroyedByDismiss) {
  Log log;
  (new CountedSeries(new LogTask(&log, "a"), nullptr))->dismiss();
  EXPECT_EQ(CountedSeries::alive(), 0);
  EXPECT_EQ(LogTask::alive(), 0);
}
