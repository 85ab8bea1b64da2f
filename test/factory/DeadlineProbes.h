#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "TaskProbes.h"
#include "support/Tally.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFManualClock.h"
#include "workflow/WFTaskFactory.h"
#include "workflow/WFTimer.h"

namespace probes {

constexpr int64_t kMs = 1'000'000;

// Tasks that note how they ended, under a clock that only the test moves: a name, then + for
// SUCCESS, ! for ETIMEDOUT, - for ECANCELED, 0 for ABORTED, ? for anything else.
class DeadlineTest : public testing::Test {
 protected:
  DeadlineTest() { EXPECT_EQ(WFManualClock::install(), 0); }

  template <class Task>
  void note(const std::string& name, const Task* task) {
    const bool failed = task->get_state() == WFT_STATE_SYS_ERROR;
    const int error = task->get_error();
    const char* how = "?";
    if (task->get_state() == WFT_STATE_SUCCESS) {
      how = "+";
    } else if (task->get_state() == WFT_STATE_ABORTED) {
      how = "0";
    } else if (failed && error == ETIMEDOUT) {
      how = "!";
    } else if (failed && error == ECANCELED) {
      how = "-";
    }
    log_.add(name + how);
    ended_.add();
  }
  template <class Task>
  auto noting(const std::string& name) {
    return [this, name](Task* task) { note(name, task); };
  }

  WFTimerTask* timer(const std::string& name, int64_t ms) {
    return WFTimer::create(std::chrono::milliseconds(ms), noting<WFTimerTask>(name));
  }
  WFDeadlineTask* limited(SubTask* task, int64_t ms, const std::string& name = "D") {
    return with_deadline(task, std::chrono::milliseconds(ms), noting<WFDeadlineTask>(name));
  }
  // Starts it in a series whose end is counted, too.
  void start(SubTask* task) {
    Workflow::start_series_work(task, [this](const SeriesWork*) { series_ended_.add(); });
  }
  static void pass(int64_t ms) { WFManualClock::advance(ms * kMs); }
  bool series_ended() const { return series_ended_.wait_for(1); }
  std::string text() const { return log_.text(); }

  Log log_;
  test_support::Tally ended_;
  test_support::Tally series_ended_;
};

}  // namespace probes
