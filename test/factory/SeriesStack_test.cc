#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

// However many tasks follow each other, the stack stays where it is.

using test_support::Tally;

namespace {

constexpr int kMillion = 1'000'000;

// How far apart, per thread, the stack was when callbacks ran.
class StackSpread {
 public:
  void note() {
    // The frame, not the address of a local: sanitizers may put locals elsewhere.
    const uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    std::lock_guard<std::mutex> lock(mutex_);
    Range& range = ranges_.try_emplace(std::this_thread::get_id(), Range{here, here}).first->second;
    range.low = std::min(range.low, here);
    range.high = std::max(range.high, here);
    notes_++;
  }
  size_t spread() const {
    size_t widest = 0;
    for (const auto& [thread, range] : ranges_) {
      widest = std::max<size_t>(widest, range.high - range.low);
    }
    return widest;
  }
  int notes() const { return notes_; }

 private:
  struct Range {
    uintptr_t low;
    uintptr_t high;
  };
  std::mutex mutex_;
  std::map<std::thread::id, Range> ranges_;
  int notes_ = 0;
};

// Some nested calls without optimisation and with a sanitizer, but no call per task.
constexpr size_t kSpread = 16 * 1024;

// The bound where tasks started alone nest in the callbacks that start them: up to a limit.
constexpr size_t kNestedSpread = 256 * 1024;

class NotingTask : public WFGenericTask {
 public:
  NotingTask(StackSpread* stack, std::function<void(NotingTask*)> callback)
      : stack_(stack), callback_(std::move(callback)) {}

 protected:
  SubTask* done() override {
    stack_->note();
    if (callback_) {
      callback_(this);
    }
    return WFGenericTask::done();
  }

 private:
  StackSpread* const stack_;
  const std::function<void(NotingTask*)> callback_;
};

}  // namespace

TEST(SeriesStack, OfAMillionEmptyTasksInOneSeries) {
  StackSpread stack;
  SeriesWork* series = Workflow::create_series_work(new NotingTask(&stack, nullptr), nullptr);
  for (int i = 0; i < kMillion; i++) {
    if (i % 1000 == 999) {
      series->push_back(new NotingTask(&stack, nullptr));
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
    parallel->add_series(Workflow::create_series_work(new NotingTask(&stack, nullptr), nullptr));
  }
  // Behind another task, so that a framework thread dispatches them all.
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
