#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "StackSpread.h"
#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

namespace {

class Dynamic : public testing::Test {
 protected:
  SubTask* log(const std::string& letters) { return new LogTask(&log_, letters); }
  // Writes "c" when it creates.
  SubTask* create(std::function<SubTask*()> create) {
    return WFTaskFactory::create_dynamic_task([this, create](WFDynamicTask*) {
      EXPECT_TRUE(probes::on_framework_thread());
      log_.add("c");
      return create();
    });
  }

  Log log_;
};

}  // namespace

TEST_F(Dynamic, TheTaskItMakesTakesItsPlace) {
  SeriesWork* series = Workflow::create_series_work(log("a"), nullptr);
  series->push_back(create([this] { return log("b"); }));
  series->push_back(log("d"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "acbd");
}

TEST_F(Dynamic, MayBeTheFirstAndTheLastTask) {
  EXPECT_TRUE(probes::run(Workflow::create_series_work(
      create([this] { return log("a"); }), create([this] { return log("b"); }), nullptr)));
  EXPECT_EQ(log_.text(), "cacb");
}

TEST_F(Dynamic, CreatesNotBeforeItsTurn) {
  HeldTask* held = new HeldTask(&log_, "a");
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(held, probes::counting(ended));
  series->push_back(create([this] { return log("b"); }));
  series->start();
  ASSERT_TRUE(held->wait_dispatched());
  EXPECT_EQ(log_.text(), "");
  held->release();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log_.text(), "acb");
}

TEST_F(Dynamic, NullIsNoTask) {
  SeriesWork* series = Workflow::create_series_work(create([] { return nullptr; }), nullptr);
  series->push_back(log("a"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "ca");
}

TEST_F(Dynamic, WithoutAFunctionIsNoTask) {
  EXPECT_TRUE(probes::run(WFTaskFactory::create_dynamic_task(nullptr)));
}

TEST_F(Dynamic, StartedAlone) {
  Tally ended;
  WFTaskFactory::create_dynamic_task([&](WFDynamicTask*) {
    EXPECT_TRUE(probes::on_framework_thread());
    return new LogTask(&log_, "a", [&](LogTask* task) {
      *series_of(task) << new LogTask(&log_, "b", [&](LogTask*) { ended.add(); });
    });
  })->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log_.text(), "ab");
  EXPECT_TRUE(probes::all_gone());
}

TEST_F(Dynamic, StartedAloneReturningNull) {
  Tally ended;
  WFTaskFactory::create_dynamic_task([&](WFDynamicTask*) -> SubTask* {
    ended.add();
    return nullptr;
  })->start();
  EXPECT_TRUE(ended.wait_for(1));
}

TEST_F(Dynamic, MayReturnAParallelAGraphOrAModule) {
  SeriesWork* series = Workflow::create_series_work(
      create([this] {
        SeriesWork* branch = Workflow::create_series_work(log("a"), nullptr);
        return Workflow::create_parallel_work(&branch, 1, nullptr);
      }),
      nullptr);
  *series << create([this] {
    WFGraphTask* graph = WFTaskFactory::create_graph_task(nullptr);
    graph->create_graph_node(log("b"));
    return graph;
  }) << create([this] { return WFTaskFactory::create_module_task(log("d"), nullptr); })
          << log("e");
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "cacbcde");
}

TEST_F(Dynamic, MayReturnATimer) {
  SeriesWork* series = Workflow::create_series_work(
      create([this] {
        return WFTaskFactory::create_timer_task(1000u, [this](WFTimerTask*) { log_.add("a"); });
      }),
      nullptr);
  series->push_back(log("b"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "cab");
}

TEST_F(Dynamic, KnowsItsSeriesAndUserData) {
  int data = 0;
  SeriesWork* series = nullptr;
  WFDynamicTask* task = WFTaskFactory::create_dynamic_task([&](WFDynamicTask* self) -> SubTask* {
    EXPECT_EQ(self->user_data, &data);
    EXPECT_EQ(series_of(self), series);
    *series_of(self) << log("b");
    return log("a");
  });
  task->user_data = &data;
  series = Workflow::create_series_work(task, nullptr);
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "ab");
}

TEST_F(Dynamic, AMillionThatReturnEachOtherUseConstantStack) {
  StackSpread stack;
  int left = probes::kDeep;
  dynamic_create_t next = [&](WFDynamicTask*) -> SubTask* {
    stack.note();
    return --left > 0 ? WFTaskFactory::create_dynamic_task(next) : nullptr;
  };
  SeriesWork* series =
      Workflow::create_series_work(WFTaskFactory::create_dynamic_task(next), nullptr);
  series->push_back(log("a"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(stack.notes(), probes::kDeep);
  EXPECT_LT(stack.spread(), kSpread);
  EXPECT_EQ(log_.text(), "a");
}

TEST_F(Dynamic, AMillionThatReturnEachOtherStartedAloneUseConstantStack) {
  StackSpread stack;
  Tally ended;
  int left = probes::kDeep;
  dynamic_create_t next = [&](WFDynamicTask*) -> SubTask* {
    stack.note();
    if (--left > 0) return WFTaskFactory::create_dynamic_task(next);
    ended.add();
    return nullptr;
  };
  WFTaskFactory::create_dynamic_task(next)->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_LT(stack.spread(), kSpread);
}

// Cancelling ------------------------------------------------------------------------------

TEST_F(Dynamic, ACancelInsideDropsWhatItReturns) {
  SeriesWork* series =
      Workflow::create_series_work(WFTaskFactory::create_dynamic_task([this](WFDynamicTask* task) {
                                     series_of(task)->cancel();
                                     return log("!");
                                   }),
                                   nullptr);
  series->push_back(log("!"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST_F(Dynamic, OfACancelledSeriesCreatesNothing) {
  SeriesWork* series = Workflow::create_series_work(
      new LogTask(&log_, "a", [](LogTask* task) { series_of(task)->cancel(); }), nullptr);
  series->push_back(create([this] { return log("!"); }));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "a");
}

TEST_F(Dynamic, DismissedItCreatesNothing) {
  WFTaskFactory::create_dynamic_task([this](WFDynamicTask*) { return log("!"); })->dismiss();
  Workflow::create_series_work(create([this] { return log("!"); }), nullptr)->dismiss();
  EXPECT_EQ(log_.text(), "");
}
