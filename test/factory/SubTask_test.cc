#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

namespace {

// As users write one: straight from SubTask, with the end that the interface teaches.
class UserTask : public SubTask {
 public:
  enum Completes { kInsideDispatch, kOnAThreadOfItsOwn };

  UserTask(Completes completes, std::function<void(UserTask*)> callback)
      : completes_(completes), callback_(std::move(callback)) {}

  void dispatch() override {
    if (completes_ == kInsideDispatch) {
      subtask_done();
    } else {
      std::thread([this] { subtask_done(); }).detach();
    }
  }

 private:
  SubTask* done() override {
    SeriesWork* series = series_of(this);
    callback_(this);
    delete this;
    return series->pop();
  }

  const Completes completes_;
  const std::function<void(UserTask*)> callback_;
};

// A kind that sets its own outcome.
class FailingTask : public WFGenericTask {
 public:
  explicit FailingTask(std::function<void(FailingTask*)> callback)
      : callback_(std::move(callback)) {}

 protected:
  void dispatch() override {
    state = WFT_STATE_SYS_ERROR;
    error = EIO;
    subtask_done();
  }
  SubTask* done() override {
    callback_(this);
    return WFGenericTask::done();
  }

 private:
  const std::function<void(FailingTask*)> callback_;
};

}  // namespace

TEST(SubTask, CompletedOnAUserThreadItsCallbackRunsOnAFrameworkThread) {
  bool on_framework = false;
  EXPECT_TRUE(probes::run(new UserTask(UserTask::kOnAThreadOfItsOwn,
                                       [&](UserTask*) { on_framework = on_framework_thread(); })));
  EXPECT_TRUE(on_framework);
}

TEST(SubTask, CompletedInsideDispatchItsCallbackRunsOnAFrameworkThread) {
  bool on_framework = false;
  EXPECT_TRUE(probes::run(new UserTask(UserTask::kInsideDispatch,
                                       [&](UserTask*) { on_framework = on_framework_thread(); })));
  EXPECT_TRUE(on_framework);
}

TEST(SubTask, TheNextTaskOfTheSeriesFollows) {
  for (const auto completes : {UserTask::kInsideDispatch, UserTask::kOnAThreadOfItsOwn}) {
    Log log;
    SeriesWork* series = Workflow::create_series_work(new LogTask(&log, "a"), nullptr);
    *series << new UserTask(completes, [&](UserTask*) { log.add("b"); });
    *series << new UserTask(completes, [&](UserTask*) { log.add("c"); });
    *series << new LogTask(&log, "d");
    EXPECT_TRUE(probes::run(series));
    EXPECT_EQ(log.text(), "abcd");
  }
}

TEST(SubTask, PointerIsItsSeries) {
  Log log;
  LogTask* task = new LogTask(&log);
  EXPECT_EQ(task->get_pointer(), nullptr);
  SeriesWork* series = Workflow::create_series_work(task, nullptr);
  EXPECT_EQ(task->get_pointer(), series);
  EXPECT_EQ(series_of(task), series);
  EXPECT_EQ(&**task, series);
  series->dismiss();
}

TEST(SubTask, GenericTaskReportsTheOutcomeThatItsKindSet) {
  int state = WFT_STATE_UNDEFINED;
  int error = 0;
  EXPECT_TRUE(probes::run(new FailingTask([&](FailingTask* task) {
    state = task->get_state();
    error = task->get_error();
  })));
  EXPECT_EQ(state, WFT_STATE_SYS_ERROR);
  EXPECT_EQ(error, EIO);
}

TEST(SubTask, AnEmptyTaskHasSucceededFromTheBeginning) {
  WFEmptyTask* task = WFTaskFactory::create_empty_task();
  EXPECT_EQ(task->get_state(), WFT_STATE_SUCCESS);
  EXPECT_EQ(task->get_error(), 0);
  EXPECT_EQ(task->user_data, nullptr);
  EXPECT_EQ(series_of(task), nullptr);
  task->start();  // it ends and frees itself
}

// A task started alone makes its series only when it is asked for it.

TEST(LoneTask, IsDestroyedAfterItsCallback) {
  Log log;
  Tally ended;
  (new LogTask(&log, "a", [&](LogTask*) { ended.add(); }))->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_TRUE(probes::all_gone());
  EXPECT_EQ(log.text(), "a");
}

TEST(LoneTask, ItsSeriesInTheCallbackRunsWhatIsPushed) {
  Log log;
  Tally ended;
  WFTaskFactory::create_timer_task(0u, [&](WFTimerTask* timer) {
    SeriesWork* series = series_of(timer);
    ASSERT_NE(series, nullptr);
    EXPECT_EQ(series, series_of(timer));
    EXPECT_FALSE(series->is_finished());
    EXPECT_EQ(series->get_context(), nullptr);
    series->set_context(&log);
    series->push_back(new LogTask(&log, "b"));
    series->push_front(new LogTask(
        &log, "a", [&](LogTask* task) { EXPECT_EQ(series_of(task)->get_context(), &log); }));
    series->set_callback([&](const SeriesWork* finished) {
      EXPECT_TRUE(finished->is_finished());
      ended.add();
    });
  })->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "ab");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST(LoneTask, EveryKindHasASeriesInItsCallback) {
  Log log;
  Tally ended;
  const auto push = [&](SubTask* task) {
    *series_of(task) << new LogTask(&log, "x", [&](LogTask*) { ended.add(); });
  };
  WFTaskFactory::create_timer_task("name", 0, 1, push)->start();
  WFTaskFactory::create_counter_task(0, push)->start();
  WFTaskFactory::create_counter_task("name", 0, push)->start();
  WFGoTask* go = WFTaskFactory::create_go_task("queue", [] {});
  go->set_callback(push);
  go->start();
  (new LogTask(&log, "", push))->start();
  EXPECT_TRUE(ended.wait_for(5));
  EXPECT_TRUE(probes::all_gone());
}

TEST(LoneTask, ItsSeriesFromAnotherThreadWhileItWaits) {
  Log log;
  Tally ended;
  HeldTask* task = new HeldTask(&log, "a");
  task->start();
  ASSERT_TRUE(task->wait_dispatched());
  SeriesWork* series = series_of(task);
  ASSERT_NE(series, nullptr);
  series->push_back(new LogTask(&log, "b", [&](LogTask*) { ended.add(); }));
  task->release();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "ab");
  EXPECT_TRUE(probes::all_gone());
}

TEST(LoneTask, ThreadsThatAskForItsSeriesAtOnceGetTheSame) {
  Log log;
  for (int round = 0; round < 200; round++) {
    Tally ended;
    HeldTask* task = new HeldTask(&log);
    task->start();
    std::atomic<int> ready{0};
    SeriesWork* seen[2] = {};
    std::vector<std::jthread> threads;
    for (SeriesWork*& series : seen) {
      threads.emplace_back([&] {
        for (ready++; ready < 2;) {
        }
        series = series_of(task);
        series->push_back(new LogTask(&log, "", [&](LogTask*) { ended.add(); }));
      });
    }
    threads.clear();  // joins them
    EXPECT_EQ(seen[0], seen[1]);
    task->release();
    ASSERT_TRUE(ended.wait_for(2));
    EXPECT_TRUE(probes::all_gone());
  }
}

TEST(LoneTask, ItsSeriesCanBeCancelled) {
  Log log;
  Tally ended;
  WFTaskFactory::create_counter_task(0, [&](WFCounterTask* task) {
    SeriesWork& series = *series_of(task);
    series << new LogTask(&log, "a");
    series.set_callback(probes::counting(ended));
    series.cancel();
  })->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(log.text(), "");
  EXPECT_EQ(LogTask::alive(), 0);
}

TEST(LoneTask, DismissDestroysWithoutCallback) {
  Log log;
  (new LogTask(&log, "a"))->dismiss();
  EXPECT_EQ(LogTask::alive(), 0);
  EXPECT_EQ(log.text(), "");
}
