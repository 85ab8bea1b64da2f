#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "StackSpread.h"
#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

namespace {

class Module : public testing::Test {
 protected:
  SubTask* log(const std::string& letters, LogTask::Callback callback = nullptr) {
    return new LogTask(&log_, letters, std::move(callback));
  }
  // Its callback writes "z".
  WFModuleTask* create(SubTask* first, SubTask* last = nullptr) {
    const auto callback = [this](const WFModuleTask* module) {
      EXPECT_TRUE(probes::on_framework_thread());
      EXPECT_TRUE(module->sub_series()->is_finished());
      log_.add("z");
    };
    return last ? WFTaskFactory::create_module_task(first, last, callback)
                : WFTaskFactory::create_module_task(first, callback);
  }

  Log log_;
};

}  // namespace

TEST_F(Module, RunsItsInsideThenItsCallback) {
  WFModuleTask* module = create(log("a"));
  module->sub_series()->push_back(log("b"));
  *module->sub_series() << log("c");
  EXPECT_TRUE(probes::run(module));
  EXPECT_EQ(log_.text(), "abcz");
}

TEST_F(Module, StartedAlone) {
  Tally ended;
  WFModuleTask* module = create(log("a"));
  module->set_callback([&](const WFModuleTask*) { ended.add(); });
  module->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log_.text(), "a");
}

TEST_F(Module, TheLastTaskRunsLast) {
  WFModuleTask* module = create(log("a"), log("y"));
  module->sub_series()->push_back(log("b"));
  EXPECT_TRUE(probes::run(module));
  EXPECT_EQ(log_.text(), "abyz");
}

TEST_F(Module, TasksOfItsInsideExtendIt) {
  WFModuleTask* module = create(log("a",
                                    [this](LogTask* task) {
                                      series_of(task)->push_back(log("c", [this](LogTask* pushed) {
                                        *series_of(pushed) << log("d");
                                      }));
                                      series_of(task)->push_front(log("b"));
                                    }),
                                log("y"));
  EXPECT_TRUE(probes::run(module));
  EXPECT_EQ(log_.text(), "abcdyz");
}

TEST_F(Module, ItsInsideIsASeriesOfItsOwn) {
  SeriesWork* inside = nullptr;
  SeriesWork* outside = nullptr;
  WFModuleTask* module = create(log("a", [&](LogTask* task) { inside = series_of(task); }));
  EXPECT_EQ(module->sub_series()->get_in_parallel(), module);
  module->set_callback([&](const WFModuleTask* task) {
    EXPECT_EQ(task->sub_series(), inside);
    outside = series_of(task);
  });
  SeriesWork* series = Workflow::create_series_work(module, nullptr);
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(outside, series);
  EXPECT_NE(inside, outside);
}

TEST_F(Module, ItsInsideHasACallbackThatRunsBeforeTheModules) {
  WFModuleTask* module = create(log("a"));
  module->sub_series()->set_callback([this](const SeriesWork*) { log_.add("y"); });
  EXPECT_TRUE(probes::run(module));
  EXPECT_EQ(log_.text(), "ayz");
}

TEST_F(Module, ItsCallbackReadsTheContextOfItsInside) {
  int context = 7;
  WFModuleTask* module =
      create(log("a", [&](LogTask* task) { series_of(task)->set_context(&context); }));
  module->set_callback([&](const WFModuleTask* task) {
    EXPECT_EQ(task->sub_series()->get_context(), &context);
    log_.add("z");
  });
  EXPECT_TRUE(probes::run(module));
  EXPECT_EQ(log_.text(), "az");
}

TEST_F(Module, ItsCallbackMayExtendTheOuterSeries) {
  WFModuleTask* module = create(log("a"));
  module->set_callback([this](const WFModuleTask* task) { *series_of(task) << log("b"); });
  EXPECT_TRUE(probes::run(module));
  EXPECT_EQ(log_.text(), "ab");
}

TEST_F(Module, WithoutACallback) {
  EXPECT_TRUE(probes::run(WFTaskFactory::create_module_task(log("a"), nullptr)));
  EXPECT_EQ(log_.text(), "a");
}

// Where it may be -------------------------------------------------------------------------

TEST_F(Module, NestsAHundredDeep) {
  SubTask* task = log("a");
  for (int i = 0; i < 100; i++) {
    task = create(task);
  }
  EXPECT_TRUE(probes::run(task));
  EXPECT_EQ(log_.text(), "a" + std::string(100, 'z'));
}

TEST_F(Module, AMillionInOneSeriesUseConstantStack) {
  probes::StackSpread stack;
  int left = probes::kDeep;
  const auto next = [&](WFRepeaterTask*) -> SubTask* {
    return left-- > 0
               ? WFTaskFactory::create_module_task(WFTaskFactory::create_empty_task(),
                                                   [&stack](const WFModuleTask*) { stack.note(); })
               : nullptr;
  };
  EXPECT_TRUE(probes::run(WFTaskFactory::create_repeater_task(next, nullptr)));
  EXPECT_EQ(stack.notes(), probes::kDeep);
  EXPECT_LT(stack.spread(), probes::kSpread);
}

// Cancelling ------------------------------------------------------------------------------

TEST_F(Module, CancelOfItsInsideDropsTheRestOfThat) {
  WFModuleTask* module =
      create(log("a", [](LogTask* task) { series_of(task)->cancel(); }), log("!"));
  module->sub_series()->push_back(log("!"));
  module->sub_series()->set_callback([this](const SeriesWork* inside) {
    EXPECT_TRUE(inside->is_canceled());
    log_.add("y");
  });
  SeriesWork* series = Workflow::create_series_work(module, nullptr);
  series->push_back(log("b"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "ayzb");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST_F(Module, CancelOfItsInsideBeforeTheStartDropsAllOfThat) {
  WFModuleTask* module = create(log("!"), log("!"));
  module->sub_series()->set_callback([this](const SeriesWork*) { log_.add("y"); });
  module->sub_series()->cancel();
  EXPECT_TRUE(probes::run(module));
  EXPECT_EQ(log_.text(), "yz");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST_F(Module, CancelOfItsInsideFromAnotherThread) {
  HeldTask* held = new HeldTask(&log_, "a");
  WFModuleTask* module = create(held);
  SeriesWork* inside = module->sub_series();
  inside->push_back(log("!"));
  Tally ended;
  Workflow::start_series_work(module, probes::counting(ended));
  ASSERT_TRUE(held->wait_dispatched());
  inside->cancel();
  held->release();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log_.text(), "az");
}

TEST_F(Module, CancelOfTheOuterSeriesLeavesTheRunningInside) {
  HeldTask* held = new HeldTask(&log_, "a");
  WFModuleTask* module = create(held);
  module->sub_series()->push_back(log("b"));
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(module, probes::counting(ended));
  series->push_back(log("!"));
  series->start();
  ASSERT_TRUE(held->wait_dispatched());
  series->cancel();
  held->release();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log_.text(), "abz");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST_F(Module, CancelOfTheOuterSeriesBeforeItsTurnDropsItWithItsInside) {
  SeriesWork* series = Workflow::create_series_work(
      log("a", [](LogTask* task) { series_of(task)->cancel(); }), nullptr);
  series->push_back(create(log("!"), log("!")));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "a");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST_F(Module, DismissedItFreesItsInsideWithoutCallbacks) {
  WFModuleTask* module = create(create(log("!")), log("!"));
  module->sub_series()->push_back(log("!"));
  module->sub_series()->set_callback([this](const SeriesWork*) { log_.add("!"); });
  EXPECT_EQ(LogTask::alive(), 3);
  module->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(log_.text(), "");
}
