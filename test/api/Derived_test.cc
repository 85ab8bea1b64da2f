// Classes that programs derive from series, parallels, pools and queues, with the constructors and
// protected members that the interface promises.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/Tally.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFMessageQueue.h"
#include "workflow/WFResourcePool.h"
#include "workflow/WFTaskFactory.h"

namespace {

using test_support::Tally;
using F = WFTaskFactory;

// A task whose done() knows nothing of series: it returns what it was given, or null.
class BareTask : public SubTask {
 public:
  explicit BareTask(std::function<SubTask*()> function = [] { return nullptr; })
      : function_(std::move(function)) {
    alive_++;
  }
  ~BareTask() override { alive_--; }

  void dispatch() override { subtask_done(); }
  static int alive() { return alive_; }

 protected:
  SubTask* done() override {
    SubTask* next = function_();
    delete this;
    return next;
  }

 private:
  inline static std::atomic<int> alive_{0};
  const std::function<SubTask*()> function_;
};

// A BareTask that a thread of its own ends.
class BareThreadTask final : public BareTask {
 public:
  using BareTask::BareTask;
  void dispatch() override {
    std::thread([this] { subtask_done(); }).detach();
  }
};

// As tasks in a series end.
class AskingTask final : public BareTask {
 public:
  using BareTask::BareTask;

 protected:
  SubTask* done() override {
    SeriesWork* series = series_of(this);
    BareTask::done();
    return series->pop();
  }
};

// Pushes a task to its series, but does not ask that for the next one.
class PushingTask final : public BareTask {
 public:
  PushingTask(std::function<SubTask*()> function, SubTask* pushed)
      : BareTask(std::move(function)), pushed_(pushed) {}

 protected:
  SubTask* done() override {
    series_of(this)->push_back(pushed_);
    return BareTask::done();
  }

 private:
  SubTask* const pushed_;
};

// Keeps its tasks in an array of its own, which it fills in after its base is made.
class OwnParallelTask final : public ParallelTask {
 public:
  OwnParallelTask(const std::vector<SubTask*>& tasks, std::function<void()> callback)
      : ParallelTask(array_, tasks.size()), callback_(std::move(callback)) {
    std::copy(tasks.begin(), tasks.end(), array_);
  }

 protected:
  SubTask* done() override {
    SeriesWork* series = series_of(this);
    callback_();
    delete this;
    return series->pop();
  }

 private:
  SubTask* array_[100];
  const std::function<void()> callback_;
};

class OwnParallelWork final : public ParallelWork {
 public:
  OwnParallelWork(SeriesWork* const all[], size_t n, parallel_callback_t&& function)
      : ParallelWork(all, n, std::move(function)) {
    context = this;
  }

 protected:
  SubTask* done() override {
    if (callback) {
      callback(this);
      callback = nullptr;
    }
    return ParallelWork::done();
  }
};

class OwnSeries final : public SeriesWork {
 public:
  OwnSeries(SubTask* first, series_callback_t&& function) : SeriesWork(first, std::move(function)) {
    context = this;
    callback = [inner = std::move(callback)](const SeriesWork* series) {
      inner(series);
      inner(series);
    };
  }
};

// The resource given back first is the first taken.
class FifoPool final : public WFResourcePool {
 public:
  FifoPool(void* const* resources, size_t n) : WFResourcePool(resources, n) {}

  long count() {
    std::lock_guard<std::mutex> lock(data.mutex);
    return data.value;
  }

 protected:
  void push(void* resource) override {
    // Behind those that are there.
    std::copy(data.res + data.index, data.res + kSize, data.res + data.index - 1);
    data.index--;
    data.res[kSize - 1] = resource;
  }

 private:
  static constexpr size_t kSize = 3;
};

class LifoQueue final : public WFMessageQueue {
 protected:
  void* pop() override {
    void* newest = data.messages.back();
    data.messages.pop_back();
    return newest;
  }
};

class DerivedParallelTask : public testing::Test {
 protected:
  // Starts a parallel of these, and waits for its end and that of its series.
  bool run(const std::vector<SubTask*>& tasks) {
    Tally ended;
    auto* parallel = new OwnParallelTask(tasks, [&] {
      at_end_ = steps_;
      ended.add();
    });
    Workflow::start_series_work(parallel, [&ended](const SeriesWork*) { ended.add(); });
    return ended.wait_for(2);
  }
  std::function<SubTask*()> step(SubTask* next = nullptr) {
    return [this, next] {
      steps_++;
      return next;
    };
  }

  std::atomic<int> steps_{0};
  int at_end_ = -1;
};

TEST_F(DerivedParallelTask, EndsWhenEverySubtaskHas) {
  for (int round = 0; round < 100; round++) {
    steps_ = 0;
    ASSERT_TRUE(
        run({new BareTask(step()), new BareThreadTask(step()), new BareThreadTask(step())}));
    ASSERT_EQ(at_end_, 3);
  }
  EXPECT_EQ(BareTask::alive(), 0);
}

TEST_F(DerivedParallelTask, WithoutSubtasksEndsAtOnce) {
  EXPECT_TRUE(run({}));
  EXPECT_EQ(at_end_, 0);
}

TEST_F(DerivedParallelTask, ASubtaskMayReturnWhatFollowsIt) {
  BareTask* third = new BareThreadTask(step());
  BareTask* second = new BareTask(step(third));
  ASSERT_TRUE(run({new BareThreadTask(step(second)), new BareTask(step())}));
  EXPECT_EQ(at_end_, 4);
  EXPECT_EQ(BareTask::alive(), 0);
}

TEST_F(DerivedParallelTask, ASubtaskMayReturnTheFirstTaskOfASeries) {
  ASSERT_TRUE(run({new BareTask([this] {
    WFTimerTask* timer = F::create_timer_task(1000u, [this](WFTimerTask*) { steps_++; });
    Workflow::create_series_work(timer, [this](const SeriesWork*) { steps_++; });
    return timer;
  })}));
  EXPECT_EQ(at_end_, 2);
}

TEST_F(DerivedParallelTask, SubtasksOfTheLibraryMayGoOnInTheirSeries) {
  WFTimerTask* timer = F::create_timer_task(0u, [this](WFTimerTask* task) {
    steps_++;
    *series_of(task) << F::create_timer_task(1000u, [this](WFTimerTask*) { steps_++; });
  });
  WFGoTask* timed = F::create_timedgo_task(10, 0, "queue", [this] { steps_++; });
  WFDynamicTask* dynamic = F::create_dynamic_task([this](WFDynamicTask*) -> SubTask* {
    return F::create_timer_task(1000u, [this](WFTimerTask*) { steps_++; });
  });
  ASSERT_TRUE(run({timer, timed, dynamic}));
  EXPECT_EQ(at_end_, 4);
}

TEST_F(DerivedParallelTask, ASubtaskMayAskItsSeriesForTheNextTask) {
  // Its branch counts once: the parallel waits for the other one.
  WFTimerTask* timer = F::create_timer_task(10'000u, [this](WFTimerTask*) { steps_++; });
  ASSERT_TRUE(run({new AskingTask(step()), timer}));
  EXPECT_EQ(at_end_, 2);
  EXPECT_EQ(BareTask::alive(), 0);
}

TEST_F(DerivedParallelTask, WhatABareSubtaskPushedRunsAfterIt) {
  ASSERT_TRUE(run({new PushingTask(step(), new AskingTask(step()))}));
  EXPECT_EQ(at_end_, 2);
  EXPECT_EQ(BareTask::alive(), 0);
}

TEST_F(DerivedParallelTask, SeriesEndBeforeIt) {
  std::vector<SubTask*> firsts;
  for (int i = 0; i < 3; i++) {
    SubTask* first = F::create_timer_task(1000u, [this](WFTimerTask*) { steps_++; });
    SeriesWork* series =
        Workflow::create_series_work(first, [this](const SeriesWork*) { steps_++; });
    series->push_back(F::create_go_task("queue", [this] { steps_++; }));
    firsts.push_back(first);
  }
  ASSERT_TRUE(run(firsts));
  EXPECT_EQ(at_end_, 9);
}

TEST_F(DerivedParallelTask, ADeadlineAroundItEndsWhatItsSubtasksWaitFor) {
  Tally ended;
  std::vector<int> errors;
  std::mutex mutex;
  const auto note = [&](WFTimerTask* task) {
    std::lock_guard<std::mutex> lock(mutex);
    errors.push_back(task->get_error());
  };
  WFTimerTask* bare = F::create_timer_task(1000, 0, note);
  WFTimerTask* first = F::create_timer_task(1000, 0, note);
  Workflow::create_series_work(first, nullptr);
  auto* parallel = new OwnParallelTask({bare, first}, [] {});
  with_deadline(parallel, std::chrono::milliseconds(1), [&ended](WFDeadlineTask*) {
    ended.add();
  })->start();
  ASSERT_TRUE(ended.wait_for(1));
  EXPECT_EQ(errors, std::vector<int>({ETIMEDOUT, ETIMEDOUT}));
}

TEST(DerivedParallelWork, TakesSeriesAndHasItsMembers) {
  Tally ended;
  SeriesWork* all[3];
  for (SeriesWork*& series : all) {
    series = Workflow::create_series_work(F::create_empty_task(),
                                          [&ended](const SeriesWork*) { ended.add(); });
  }
  ParallelWork* parallel = new OwnParallelWork(all, 3, [&ended](const ParallelWork* work) {
    EXPECT_EQ(work->get_context(), work);
    EXPECT_EQ(work->size(), 3u);
    ended.add();
  });
  EXPECT_EQ(parallel->series_at(2), all[2]);
  parallel->start();
  ASSERT_TRUE(ended.wait_for(4));
}

TEST(DerivedSeries, HasCallbackAndContext) {
  Tally ended;
  SeriesWork* series = new OwnSeries(F::create_empty_task(), [&ended](const SeriesWork* work) {
    EXPECT_EQ(work->get_context(), work);
    ended.add();
  });
  series->start();
  EXPECT_TRUE(ended.wait_for(2));
}

TEST(DerivedPool, UsesItsData) {
  int things[3];
  void* const resources[] = {&things[0], &things[1], &things[2]};
  FifoPool pool(resources, 3);
  std::vector<void*> taken;
  Tally ended;
  const auto take = [&] {
    WFConditional* conditional =
        pool.get(F::create_timer_task(0u, [&ended](WFTimerTask*) { ended.add(); }));
    conditional->start();
  };
  EXPECT_EQ(pool.count(), 3);
  take();
  take();
  ASSERT_TRUE(ended.wait_for(2));
  EXPECT_EQ(pool.count(), 1);
  // One of the first order is left; those given back come after it, in their order.
  pool.post(&things[1]);
  pool.post(&things[2]);
  EXPECT_EQ(pool.count(), 3);
  for (size_t i = 0; i < 3; i++) {
    void* slot = nullptr;
    pool.get(F::create_timer_task(0u, [&ended](WFTimerTask*) { ended.add(); }), &slot)->start();
    ASSERT_TRUE(ended.wait_for(3 + i));
    taken.push_back(slot);
  }
  EXPECT_EQ(taken, std::vector<void*>({&things[0], &things[1], &things[2]}));
  take();
  take();
  EXPECT_EQ(pool.count(), -2);
  pool.post(&things[0]);
  ASSERT_TRUE(ended.wait_for(6));
  EXPECT_EQ(pool.count(), -1);
  pool.post(&things[1]);
  ASSERT_TRUE(ended.wait_for(7));
  EXPECT_EQ(pool.count(), 0);
}

TEST(DerivedQueue, UsesItsData) {
  int messages[3];
  LifoQueue queue;
  for (int& message : messages) {
    queue.post(&message);
  }
  Tally ended;
  for (size_t i = 0; i < 3; i++) {
    void* slot = nullptr;
    queue.get(F::create_timer_task(0u, [&ended](WFTimerTask*) { ended.add(); }), &slot)->start();
    ASSERT_TRUE(ended.wait_for(i + 1));
    EXPECT_EQ(slot, &messages[2 - i]);
  }
}

}  // namespace
