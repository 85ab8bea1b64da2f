#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "TaskProbes.h"
#include "factory/NamedMessageTask.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;
using workflow::NamedConditional;

namespace {

LogTask* writing_on_framework_thread(Log* log, const char* letter, Tally& ended) {
  return new LogTask(log, letter, [&ended](LogTask*) {
    EXPECT_TRUE(probes::on_framework_thread());
    ended.add();
  });
}

// Started conditionals of one name; the i-th's message goes to slots[i].
void start_conditionals(const std::string& name, Log& log, std::vector<void*>& slots,
                        Tally& ended) {
  for (void*& slot : slots) {
    WFTaskFactory::create_conditional(name, writing_on_framework_thread(&log, "t", ended), &slot)
        ->start();
  }
}

}  // namespace

TEST(Conditional, RunsItsTaskOnceStartedThenSignalled) {
  Log log;
  Tally ended;
  WFConditional* conditional =
      WFTaskFactory::create_conditional(writing_on_framework_thread(&log, "a", ended));
  conditional->start();
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  conditional->signal(nullptr);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(probes::all_gone());
  EXPECT_EQ(log.text(), "a");
}

TEST(Conditional, RunsItsTaskOnceSignalledThenStarted) {
  Log log;
  Tally ended;
  WFConditional* conditional =
      WFTaskFactory::create_conditional(writing_on_framework_thread(&log, "a", ended));
  conditional->signal(nullptr);
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  conditional->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(probes::all_gone());
  EXPECT_EQ(log.text(), "a");
}

TEST(Conditional, TheFirstSignalCounts) {
  Log log;
  Tally ended;
  void* slot = nullptr;
  WFConditional* conditional =
      WFTaskFactory::create_conditional(writing_on_framework_thread(&log, "a", ended), &slot);
  conditional->signal(&messages[1]);
  conditional->signal(&messages[2]);
  conditional->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(slot, &messages[1]);
}

TEST(Conditional, ItsMessageIsThereWhenTheTaskRuns) {
  Log log;
  void* slot = nullptr;
  void* seen = nullptr;
  WFConditional* conditional = WFTaskFactory::create_conditional(
      new LogTask(&log, "", [&](LogTask*) { seen = slot; }), &slot);
  conditional->signal(&messages[3]);
  EXPECT_TRUE(probes::run(conditional));
  EXPECT_EQ(seen, &messages[3]);
}

TEST(Conditional, WithoutABufferItsUserDataTakesTheMessage) {
  WFConditional* conditional =
      WFTaskFactory::create_conditional(WFTaskFactory::create_empty_task());
  EXPECT_EQ(conditional->user_data, nullptr);
  conditional->signal(&messages[3]);
  EXPECT_EQ(conditional->user_data, &messages[3]);
  conditional->dismiss();
}

TEST(Conditional, TakesItsTasksPlaceInTheSeries) {
  Log log;
  Tally ended;
  SeriesWork* series =
      Workflow::create_series_work(new LogTask(&log, "a"), probes::counting(ended));
  WFConditional* conditional =
      WFTaskFactory::create_conditional(new LogTask(&log, "b", [&log, series](LogTask* task) {
        EXPECT_EQ(series_of(task), series);
        series_of(task)->push_front(new LogTask(&log, "c"));
      }));
  *series << conditional << new LogTask(&log, "d");
  series->start();
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  EXPECT_EQ(log.text(), "a");
  conditional->signal(nullptr);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "abcd");
}

TEST(Conditional, AWaitingTaskInsideHoldsTheSeries) {
  Log log;
  Tally ended;
  auto* held = new HeldTask(&log, "a");
  WFConditional* conditional = WFTaskFactory::create_conditional(held);
  SeriesWork* series = Workflow::create_series_work(conditional, probes::counting(ended));
  series->push_back(new LogTask(&log, "b"));
  series->start();
  conditional->signal(nullptr);
  ASSERT_TRUE(held->wait_dispatched());
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  held->release();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "ab");
}

TEST(Conditional, NestedRunsAfterAllSignalsInAnyOrder) {
  for (int order = 0; order < 6; order++) {
    Log log;
    Tally ended;
    void* slots[3] = {};
    SubTask* task = writing_on_framework_thread(&log, "a", ended);
    std::vector<WFConditional*> nested;
    for (void*& slot : slots) {
      nested.push_back(WFTaskFactory::create_conditional(task, &slot));
      task = nested.back();
    }
    static constexpr size_t kOrders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                             {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    nested[2]->start();
    for (size_t i = 0; i < 3; i++) {
      EXPECT_EQ(ended.count(), 0u);
      nested[kOrders[order][i]]->signal(&messages[kOrders[order][i]]);
    }
    ASSERT_TRUE(ended.wait_for(1));
    for (size_t i = 0; i < 3; i++) {
      EXPECT_EQ(slots[i], &messages[i]);
    }
    EXPECT_EQ(log.text(), "a");
  }
}

TEST(Conditional, MayHoldAParallelAGraphAndAModule) {
  Log log;
  Tally ended;
  ParallelWork* parallel = Workflow::create_parallel_work(probes::counting(ended));
  parallel->add_series(Workflow::create_series_work(new LogTask(&log, "a"), nullptr));
  WFGraphTask* graph = WFTaskFactory::create_graph_task([&](WFGraphTask*) { ended.add(); });
  graph->create_graph_node(new LogTask(&log, "b"));
  WFModuleTask* module =
      WFTaskFactory::create_module_task(new LogTask(&log, "c"), probes::counting(ended));
  for (SubTask* task : {static_cast<SubTask*>(parallel), static_cast<SubTask*>(graph),
                        static_cast<SubTask*>(module)}) {
    WFConditional* conditional = WFTaskFactory::create_conditional(task);
    conditional->start();
    conditional->signal(nullptr);
  }
  ASSERT_TRUE(ended.wait_for(3));
  EXPECT_EQ(log.sorted(), "abc");
}

TEST(Conditional, DismissedItsTaskIsDropped) {
  ASSERT_TRUE(probes::all_gone());  // of the cases before
  Log log;
  WFTaskFactory::create_conditional(new LogTask(&log, "!"))->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  WFConditional* signalled = WFTaskFactory::create_conditional(new LogTask(&log, "!"));
  signalled->signal(&messages[1]);
  signalled->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  WFTaskFactory::create_conditional(WFTaskFactory::create_conditional(new LogTask(&log, "!")))
      ->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(log.text(), "");
}

TEST(Conditional, InASeriesThatIsCancelledBeforeItsTurnIsDropped) {
  Log log;
  SeriesWork* series = new CountedSeries(
      new LogTask(&log, "a", [](LogTask* task) { series_of(task)->cancel(); }), nullptr);
  WFConditional* conditional = WFTaskFactory::create_conditional(new LogTask(&log, "!"));
  conditional->signal(nullptr);
  series->push_back(conditional);
  series->push_back(WFTaskFactory::create_conditional("name", new LogTask(&log, "!")));
  EXPECT_TRUE(probes::run(series));
  EXPECT_TRUE(probes::all_gone());
  EXPECT_EQ(log.text(), "a");
  EXPECT_TRUE(NamedConditional::registry().empty());
}

TEST(Conditional, InASeriesThatIsCancelledWhileItWaitsItsTaskIsDroppedWithTheSignal) {
  Log log;
  Tally ended;
  WFConditional* conditional = WFTaskFactory::create_conditional(new LogTask(&log, "!"));
  SeriesWork* series = new CountedSeries(conditional, probes::counting(ended));
  series->push_back(new LogTask(&log, "!"));
  series->start();
  series->cancel();
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  conditional->signal(nullptr);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(probes::all_gone());
  EXPECT_EQ(log.text(), "");
}

TEST(Conditional, StartAndSignalOfTwoThreadsRunItsTaskOnce) {
  for (int round = 0; round < 2000; round++) {
    Log log;
    Tally ended;
    WFConditional* conditional =
        round % 2
            ? WFTaskFactory::create_conditional("name",
                                                writing_on_framework_thread(&log, "a", ended))
            : WFTaskFactory::create_conditional(writing_on_framework_thread(&log, "a", ended));
    std::thread signaller([conditional] { conditional->signal(nullptr); });
    conditional->start();
    signaller.join();
    ASSERT_TRUE(ended.wait_for(1));
    ASSERT_TRUE(probes::all_gone());
    ASSERT_EQ(log.text(), "a");
  }
}

TEST(NamedConditional, AnUnknownNameIsNotSignalled) {
  void* const array[] = {&messages[0]};
  EXPECT_EQ(WFTaskFactory::signal_by_name("nobody", nullptr), 0);
  EXPECT_EQ(WFTaskFactory::signal_by_name("nobody", nullptr, 5), 0);
  EXPECT_EQ(WFTaskFactory::signal_by_name("nobody", array, 1), 0);
}

TEST(NamedConditional, ASignalByNameGoesToAllOfTheName) {
  Log log;
  Tally ended;
  std::vector<void*> slots(3);
  start_conditionals("name", log, slots, ended);
  EXPECT_EQ(WFTaskFactory::signal_by_name("other", &messages[1]), 0);
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", &messages[1]), 3);
  ASSERT_TRUE(ended.wait_for(3));
  EXPECT_EQ(slots, (std::vector<void*>(3, &messages[1])));
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", &messages[1]), 0);
}

TEST(NamedConditional, ASignalByNameGoesToAtMostMaxTheOldestFirst) {
  Log log;
  Tally ended;
  std::vector<void*> slots(4);
  start_conditionals("name", log, slots, ended);
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", &messages[0], 0), 0);
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", &messages[1], 1), 1);
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", &messages[2], 2), 2);
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", &messages[3], 9), 1);
  ASSERT_TRUE(ended.wait_for(4));
  EXPECT_EQ(slots, (std::vector<void*>{&messages[1], &messages[2], &messages[2], &messages[3]}));
}

TEST(NamedConditional, OfAnArrayEachGetsItsOwn) {
  Log log;
  Tally ended;
  std::vector<void*> slots(3);
  start_conditionals("name", log, slots, ended);
  int* const array[] = {&messages[1], &messages[2], &messages[3], &messages[4]};
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", array, 2), 2);
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", array + 2, 2), 1);
  ASSERT_TRUE(ended.wait_for(3));
  EXPECT_EQ(slots, (std::vector<void*>{&messages[1], &messages[2], &messages[3]}));
}

TEST(NamedConditional, SignalledBeforeItsStartRunsAtTheStart) {
  Log log;
  Tally ended;
  WFConditional* conditional =
      WFTaskFactory::create_conditional("name", writing_on_framework_thread(&log, "a", ended));
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", &messages[1]), 1);
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", &messages[2]), 0);
  conditional->signal(&messages[3]);
  EXPECT_EQ(conditional->user_data, &messages[1]);
  EXPECT_FALSE(ended.wait_for(1, kQuiet));
  conditional->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST(NamedConditional, MayBeSignalledDirectly) {
  Log log;
  Tally ended;
  WFConditional* conditional =
      WFTaskFactory::create_conditional("name", writing_on_framework_thread(&log, "a", ended));
  conditional->start();
  conditional->signal(nullptr);
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", nullptr), 0);
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(NamedConditional::registry().empty());
}

TEST(NamedConditional, DismissLeavesTheName) {
  Log log;
  WFConditional* conditional = WFTaskFactory::create_conditional("name", new LogTask(&log, "!"));
  WFConditional* signalled = WFTaskFactory::create_conditional("other", new LogTask(&log, "!"));
  EXPECT_EQ(WFTaskFactory::signal_by_name("other", nullptr), 1);
  conditional->dismiss();
  signalled->dismiss();
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", nullptr), 0);
  EXPECT_TRUE(NamedConditional::registry().empty());
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST(NamedConditional, OneThatItsTaskMakesAnewIsNotSignalledByTheSameCall) {
  constexpr size_t kConditionals = 150;  // more than one hold of the lock takes
  Log log;
  Tally ended;
  const auto make = [&](LogTask::Callback callback) {
    WFTaskFactory::create_conditional("name", new LogTask(&log, "", std::move(callback)))->start();
  };
  for (size_t i = 0; i < kConditionals; i++) {
    make([&](LogTask*) {
      make([&](LogTask*) { ended.add(); });
      ended.add();
    });
  }
  Tally signalled;
  WFTaskFactory::create_timer_task(0, 0, [&](WFTimerTask*) {
    EXPECT_EQ(WFTaskFactory::signal_by_name("name", nullptr), int{kConditionals});
    signalled.add();
  })->start();
  ASSERT_TRUE(signalled.wait_for(1));
  ASSERT_TRUE(ended.wait_for(kConditionals));
  EXPECT_EQ(WFTaskFactory::signal_by_name("name", nullptr), int{kConditionals});
  ASSERT_TRUE(ended.wait_for(2 * kConditionals));
  EXPECT_TRUE(probes::all_gone());
}

TEST(NamedConditional, NamesAreAnyBytes) {
  const std::string names[] = {"", std::string("a\0b", 3), std::string("a\0c", 3), "\xff\xfe",
                               std::string(64 * 1024, 'x')};
  for (const std::string& name : names) {
    Log log;
    Tally ended;
    std::vector<void*> slots(1);
    start_conditionals(name, log, slots, ended);
    for (const std::string& other : names) {
      EXPECT_EQ(WFTaskFactory::signal_by_name(other, nullptr), other == name);
    }
    EXPECT_TRUE(ended.wait_for(1));
  }
}
