// The series of a task that was started alone and comes back: it is made when somebody asks for it,
// perhaps while another task runs in the place of that task.

#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <utility>

#include "TaskProbes.h"
#include "workflow/WFTaskFactory.h"

using namespace probes;
using test_support::Tally;

namespace {

class LateSeries : public testing::Test {
 protected:
  // Starts a repeater alone. Its callback writes "z".
  void start(std::function<SubTask*()> create) {
    repeater_ = WFTaskFactory::create_repeater_task(
        [create = std::move(create)](WFRepeaterTask*) { return create(); },
        [this](WFRepeaterTask* task) {
          error_ = task->get_error();
          log_.add("z");
          if (at_end_) at_end_();
        });
    repeater_->start();
  }
  // The first task of the repeater, which writes "a", waits until end() is called. The second one
  // writes "b".
  void start_and_hold() {
    held_ = new HeldTask(&log_, "a");
    start([this]() -> SubTask* {
      creates_++;
      if (creates_ == 1) return held_;
      return creates_ == 2 ? log("b") : nullptr;
    });
    ASSERT_TRUE(held_->wait_dispatched());
  }
  // Lets the first task end, and waits until the series has ended, too.
  void end(SeriesWork* series) {
    tell_end(series);
    held_->release();
    wait_for_end();
  }
  void tell_end(SeriesWork* series) { series->set_callback(probes::counting(ended_)); }
  void wait_for_end() {
    ASSERT_TRUE(ended_.wait_for(1));
    EXPECT_EQ(LogTask::alive(), 0);
  }
  SubTask* log(const char* letters) { return new LogTask(&log_, letters); }

  Log log_;
  Tally ended_;
  HeldTask* held_ = nullptr;
  WFRepeaterTask* repeater_ = nullptr;
  std::function<void()> at_end_;
  int creates_ = 0;
  int error_ = -1;
};

}  // namespace

TEST_F(LateSeries, IsOneForTheTaskThatWaitsAndTheTaskThatRuns) {
  start_and_hold();
  SeriesWork* const series = series_of(repeater_);
  EXPECT_EQ(series_of(held_), series);
  EXPECT_EQ(series_of(repeater_), series);
  end(series);
  EXPECT_EQ(log_.text(), "abz");
}

TEST_F(LateSeries, IsOneAlsoIfTheTaskThatRunsIsAskedFirst) {
  start_and_hold();
  SeriesWork* const series = series_of(held_);
  EXPECT_EQ(series_of(repeater_), series);
  EXPECT_EQ(series_of(held_), series);
  end(series);
  EXPECT_EQ(log_.text(), "abz");
}

TEST_F(LateSeries, ACancelDropsTheTaskThatWaits) {
  start_and_hold();
  SeriesWork* const series = series_of(repeater_);
  series->cancel();
  end(series);
  EXPECT_EQ(log_.text(), "az");
  EXPECT_EQ(error_, ECANCELED);
  EXPECT_EQ(creates_, 1);
}

TEST_F(LateSeries, ACancelHoldsIfTheTaskThatRunsIsAskedLater) {
  start_and_hold();
  SeriesWork* const series = series_of(repeater_);
  series->cancel();
  EXPECT_TRUE(series_of(held_)->is_canceled());
  end(series);
  EXPECT_EQ(log_.text(), "az");
  EXPECT_EQ(error_, ECANCELED);
  EXPECT_EQ(creates_, 1);
}

TEST_F(LateSeries, ACancelIsSeenByTheTaskThatRuns) {
  start([this] {
    return WFTaskFactory::create_dynamic_task([this](WFDynamicTask*) {
      tell_end(series_of(repeater_));
      series_of(repeater_)->cancel();
      return log("!");
    });
  });
  wait_for_end();
  EXPECT_EQ(log_.text(), "z");
  EXPECT_EQ(error_, ECANCELED);
}

TEST_F(LateSeries, WhatIsPushedToItsFrontPrecedesTheTaskThatWaits) {
  start_and_hold();
  SeriesWork* const series = series_of(repeater_);
  series->push_back(log("d"));
  series->push_front(log("c"));
  end(series);
  EXPECT_EQ(log_.text(), "acbzd");
}

// Who asks cannot know that the repeater does not wait.

TEST_F(LateSeries, WhatTheTaskPushesWhileItRunsFollowsIt) {
  start([this]() -> SubTask* {
    if (++creates_ == 2) {
      SeriesWork* const series = series_of(repeater_);
      tell_end(series);
      series->push_back(log("d"));
      series->push_front(log("c"));
    }
    return creates_ < 4 ? log("b") : nullptr;
  });
  wait_for_end();
  EXPECT_EQ(log_.text(), "bbbzcd");
}

TEST_F(LateSeries, WhatTheCallbackOfTheTaskPushesFollowsIt) {
  at_end_ = [this] {
    SeriesWork* const series = series_of(repeater_);
    tell_end(series);
    series->push_back(log("d"));
    series->push_front(log("c"));
  };
  start([this]() -> SubTask* { return creates_++ == 0 ? log("b") : nullptr; });
  wait_for_end();
  EXPECT_EQ(log_.text(), "bzcd");
}
