#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "StackSpread.h"
#include "TaskProbes.h"
#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;
using workflow::Runtime;
using workflow::ThreadContext;

namespace {

// What a repeater's callback saw.
class Repeater : public testing::Test {
 protected:
  // Its callback writes "z".
  WFRepeaterTask* create(repeated_create_t create) {
    return WFTaskFactory::create_repeater_task(std::move(create), [this](WFRepeaterTask* task) {
      EXPECT_TRUE(probes::on_framework_thread());
      state_ = task->get_state();
      error_ = task->get_error();
      log_.add("z");
    });
  }
  // Makes a task of "a" so many times.
  WFRepeaterTask* times(int n) {
    return create([this, n](WFRepeaterTask*) mutable -> SubTask* {
      return n-- > 0 ? new LogTask(&log_, "a") : nullptr;
    });
  }
  SubTask* log(const std::string& letters) { return new LogTask(&log_, letters); }

  void expect(int state, int error) {
    EXPECT_EQ(state_, state);
    EXPECT_EQ(error_, error);
  }

  Log log_;
  int state_ = WFT_STATE_UNDEFINED;
  int error_ = -1;
};

}  // namespace

TEST_F(Repeater, CreatesBeforeEachRun) {
  int n = 3;
  EXPECT_TRUE(probes::run(create([&](WFRepeaterTask*) -> SubTask* {
    EXPECT_TRUE(probes::on_framework_thread());
    log_.add("c");
    return n-- > 0 ? log("a") : nullptr;
  })));
  EXPECT_EQ(log_.text(), "cacacacz");
  expect(WFT_STATE_SUCCESS, 0);
}

TEST_F(Repeater, StartedAlone) {
  Tally ended;
  WFRepeaterTask* task = times(3);
  task->set_callback([&](WFRepeaterTask*) { ended.add(); });
  task->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log_.text(), "aaa");
}

TEST_F(Repeater, NullAtFirstEndsItAtOnce) {
  EXPECT_TRUE(probes::run(times(0)));
  EXPECT_EQ(log_.text(), "z");
  expect(WFT_STATE_SUCCESS, 0);
}

TEST_F(Repeater, WithoutACreateEndsAtOnce) {
  EXPECT_TRUE(probes::run(create(nullptr)));
  EXPECT_EQ(log_.text(), "z");
}

TEST_F(Repeater, WithoutACallback) {
  WFRepeaterTask* task = times(2);
  task->set_callback(nullptr);
  EXPECT_TRUE(probes::run(task));
  EXPECT_EQ(log_.text(), "aa");
}

TEST_F(Repeater, SetCreateBeforeTheStart) {
  WFRepeaterTask* task = times(2);
  int n = 2;
  task->set_create([&](WFRepeaterTask*) { return n-- > 0 ? log("b") : nullptr; });
  EXPECT_TRUE(probes::run(task));
  EXPECT_EQ(log_.text(), "bbz");
}

TEST_F(Repeater, SetCreateInCreateIsForTheNextTime) {
  int n = 2;
  const auto then = [&](WFRepeaterTask*) { return n-- > 0 ? log("b") : nullptr; };
  // What the running one holds lives until it returns.
  const auto letter = std::make_shared<std::string>("a");
  EXPECT_TRUE(probes::run(create([this, then, letter](WFRepeaterTask* task) {
    task->set_create(then);
    return log(*letter);
  })));
  EXPECT_EQ(log_.text(), "abbz");
}

TEST_F(Repeater, SetCreateToNothingInCreateEndsItAfterThatTask) {
  EXPECT_TRUE(probes::run(create([this](WFRepeaterTask* task) {
    task->set_create(nullptr);
    return log("a");
  })));
  EXPECT_EQ(log_.text(), "az");
  expect(WFT_STATE_SUCCESS, 0);
}

TEST_F(Repeater, KnowsItsSeriesAndUserData) {
  int data = 0;
  SeriesWork* series = nullptr;
  WFRepeaterTask* task = create([&](WFRepeaterTask* repeater) -> SubTask* {
    EXPECT_EQ(repeater->user_data, &data);
    EXPECT_EQ(series_of(repeater), series);
    return nullptr;
  });
  task->user_data = &data;
  series = Workflow::create_series_work(task, nullptr);
  EXPECT_TRUE(probes::run(series));
}

// What the repeated task pushes -----------------------------------------------------------

TEST_F(Repeater, WhatTheRepeatedTaskPushesToTheFrontRunsBeforeTheNextRepeat) {
  int n = 2;
  SeriesWork* series =
      Workflow::create_series_work(create([&](WFRepeaterTask*) -> SubTask* {
                                     if (n-- == 0) return nullptr;
                                     return new LogTask(&log_, "a", [this](LogTask* task) {
                                       series_of(task)->push_front(log("c"));
                                       series_of(task)->push_front(log("b"));
                                     });
                                   }),
                                   nullptr);
  series->push_back(log("y"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "abcabczy");
}

TEST_F(Repeater, WhatTheRepeatedTaskPushesToTheBackRunsAfterTheRepeater) {
  int n = 2;
  SeriesWork* series = Workflow::create_series_work(
      create([&](WFRepeaterTask*) -> SubTask* {
        if (n-- == 0) return nullptr;
        return new LogTask(&log_, "a",
                           [this](LogTask* task) { series_of(task)->push_back(log("b")); });
      }),
      nullptr);
  series->push_back(log("y"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "aazybb");
}

TEST_F(Repeater, WhatCreatePushesToTheBackRunsAfterTheRepeater) {
  int n = 1;
  EXPECT_TRUE(probes::run(create([&](WFRepeaterTask* task) -> SubTask* {
    if (n-- == 0) return nullptr;
    series_of(task)->push_back(log("b"));
    return log("a");
  })));
  EXPECT_EQ(log_.text(), "azb");
}

TEST_F(Repeater, ItsCallbackMayExtendItsSeries) {
  WFRepeaterTask* task = times(1);
  task->set_callback([this](WFRepeaterTask* repeater) { *series_of(repeater) << log("b"); });
  EXPECT_TRUE(probes::run(task));
  EXPECT_EQ(log_.text(), "ab");
}

// Where it may be, and what it may repeat -------------------------------------------------

TEST_F(Repeater, RepeatsEveryKindOfTask) {
  int n = 0;
  EXPECT_TRUE(probes::run(create([&](WFRepeaterTask*) -> SubTask* {
    SeriesWork* branch;
    WFGraphTask* graph;
    int* left;
    switch (n++) {
      case 0:
        return WFTaskFactory::create_timer_task(1000u, [this](WFTimerTask*) { log_.add("a"); });
      case 1:
        return WFTaskFactory::create_go_task("queue", [this] { log_.add("b"); });
      case 2:
        branch = Workflow::create_series_work(log("c"), nullptr);
        return Workflow::create_parallel_work(&branch, 1, nullptr);
      case 3:
        graph = WFTaskFactory::create_graph_task(nullptr);
        graph->create_graph_node(log("d"));
        return graph;
      case 4:
        return WFTaskFactory::create_module_task(log("e"), nullptr);
      case 5:
        return WFTaskFactory::create_dynamic_task([this](WFDynamicTask*) { return log("f"); });
      case 6:
        left = new int(2);
        return WFTaskFactory::create_repeater_task(
            [this, left](WFRepeaterTask*) { return (*left)-- > 0 ? log("g") : nullptr; },
            [left](WFRepeaterTask*) { delete left; });
      default:
        return nullptr;
    }
  })));
  EXPECT_EQ(log_.text(), "abcdefggz");
}

TEST_F(Repeater, MayBeTheLastTaskOfASeries) {
  SeriesWork* series = Workflow::create_series_work(log("x"), times(2), nullptr);
  series->push_back(log("y"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "xyaaz");
}

// How it may end --------------------------------------------------------------------------

TEST_F(Repeater, ACancelByTheRepeatedTaskEndsIt) {
  SeriesWork* series = Workflow::create_series_work(
      create([this](WFRepeaterTask*) {
        return new LogTask(&log_, "a", [](LogTask* task) { series_of(task)->cancel(); });
      }),
      nullptr);
  series->push_back(log("!"));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "az");
  expect(WFT_STATE_SYS_ERROR, ECANCELED);
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST_F(Repeater, ACancelInCreateDropsWhatItReturns) {
  EXPECT_TRUE(probes::run(create([this](WFRepeaterTask* task) {
    series_of(task)->cancel();
    return log("!");
  })));
  EXPECT_EQ(log_.text(), "z");
  expect(WFT_STATE_SYS_ERROR, ECANCELED);
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST_F(Repeater, ACancelFromAnotherThreadEndsItAfterTheRunningTask) {
  HeldTask* held = new HeldTask(&log_, "a");
  Tally ended;
  SeriesWork* series = Workflow::create_series_work(create([&](WFRepeaterTask*) { return held; }),
                                                    probes::counting(ended));
  series->start();
  ASSERT_TRUE(held->wait_dispatched());
  series->cancel();
  EXPECT_EQ(log_.text(), "");
  held->release();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log_.text(), "az");
  expect(WFT_STATE_SYS_ERROR, ECANCELED);
}

TEST_F(Repeater, WhatItsCallbackPushesToACancelledSeriesIsDropped) {
  WFRepeaterTask* task = create([this](WFRepeaterTask*) {
    return new LogTask(&log_, "a", [](LogTask* repeated) { series_of(repeated)->cancel(); });
  });
  task->set_callback([this](WFRepeaterTask* repeater) {
    log_.add("z");
    *series_of(repeater) << log("!");
  });
  EXPECT_TRUE(probes::run(task));
  EXPECT_EQ(log_.text(), "az");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST_F(Repeater, DroppedBeforeItsTurnItHasNoCallback) {
  SeriesWork* series = Workflow::create_series_work(
      new LogTask(&log_, "a", [](LogTask* task) { series_of(task)->cancel(); }), nullptr);
  series->push_back(times(2));
  EXPECT_TRUE(probes::run(series));
  EXPECT_EQ(log_.text(), "a");
}

TEST_F(Repeater, DismissedItHasNoCallback) {
  times(2)->dismiss();
  Workflow::create_series_work(times(2), nullptr)->dismiss();
  EXPECT_EQ(log_.text(), "");
}

// The library stops while `create` would go on for ever.
TEST_F(Repeater, IsAbortedWhenTheLibraryStops) {
  for (const bool waits : {false, true}) {
    Tally begun;
    Tally aborted;
    Runtime runtime({.poller_threads = 1, .handler_threads = 1, .compute_threads = 1});
    ASSERT_TRUE(runtime.start());
    ThreadContext::current().runtime = &runtime;
    const auto start = [&] {
      Workflow::start_series_work(
          WFTaskFactory::create_repeater_task(
              [&begun, waits](WFRepeaterTask*) -> SubTask* {
                begun.add();
                if (waits) return WFTaskFactory::create_timer_task(-1, 0, nullptr);
                return WFTaskFactory::create_empty_task();
              },
              [&aborted](WFRepeaterTask* task) {
                aborted.add(task->get_state() == WFT_STATE_ABORTED && task->get_error() == 0);
              }),
          log("a"), nullptr);
    };
    start();
    EXPECT_TRUE(begun.wait_for(1));
    runtime.stop();
    EXPECT_EQ(aborted.count(), 1u);
    // Now not even the first is made.
    const size_t made = begun.count();
    start();
    EXPECT_EQ(aborted.count(), 2u);
    EXPECT_EQ(begun.count(), made);
    ThreadContext::current().runtime = nullptr;
  }
  EXPECT_EQ(log_.text(), "aaaa");
}

// A million repeats -----------------------------------------------------------------------

TEST_F(Repeater, AMillionRepeatsUseConstantStackAndOneTaskAtATime) {
  StackSpread stack;
  int n = probes::kDeep;
  int alive = 0;
  int most_alive = 0;
  EXPECT_TRUE(probes::run(create([&](WFRepeaterTask*) -> SubTask* {
    if (n-- == 0) return nullptr;
    most_alive = std::max(most_alive, ++alive);
    return new probes::NotingTask(&stack, [&alive](auto*) { alive--; });
  })));
  EXPECT_EQ(stack.notes(), probes::kDeep);
  EXPECT_LT(stack.spread(), kSpread);
  EXPECT_EQ(most_alive, 1);
}

TEST_F(Repeater, AHundredThousandRepeatsOfEachNestedRepeaterUseConstantStack) {
  StackSpread stack;
  int n = 100'000;
  EXPECT_TRUE(probes::run(create([&](WFRepeaterTask*) -> SubTask* {
    if (n-- == 0) return nullptr;
    return WFTaskFactory::create_repeater_task(
        [&stack, left = 2](WFRepeaterTask*) mutable -> SubTask* {
          return left-- > 0 ? new probes::NotingTask(&stack) : nullptr;
        },
        nullptr);
  })));
  EXPECT_EQ(stack.notes(), 200'000);
  EXPECT_LT(stack.spread(), kSpread);
}
