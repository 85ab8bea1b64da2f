#pragma once

#include <cassert>
#include <chrono>
#include <functional>
#include <utility>

#include "workflow/Duration.h"
#include "workflow/SubTask.h"
#include "workflow/WFTaskState.h"
#include "workflow/Workflow.h"

// A task with a series inside that has a time limit, counted from the task's start.
//
// When the time has come before the inside has ended, the task of the inside that waits ends early:
// its callback sees SYS_ERROR with ETIMEDOUT. The inside goes on from there, and what would have to
// wait from then on ends at once in the same way, without having begun. So each is told. Those of
// parallels, graphs and modules inside are a part of it. docs/timers.md says what ends how.
//
// It ends when the inside has, in time or not:
//   SUCCESS               in time
//   SYS_ERROR, ETIMEDOUT  the time came first
//   SYS_ERROR, ECANCELED  the inside was ended early from outside: the request of the series that
//                         this task is in has lost its client, or its server has stopped
//   SYS_ERROR, ENOMEM     as with ETIMEDOUT: there was no memory for the time limit
//   ABORTED               the library stopped meanwhile
class WFDeadlineTask : public ParallelTask {
 public:
  using Callback = std::function<void(WFDeadlineTask *)>;

  void start() {
    assert(!series_of(this));
    start_alone();
  }
  void dismiss() {
    assert(!series_of(this));
    drop_unstarted();
  }

  void *user_data = nullptr;

  int get_state() const { return state_; }
  int get_error() const { return error_; }

  // Its inside: may be extended until its last task is done. It lives until the callback has
  // returned. Cancelling the series that this task is in does not cancel the inside.
  SeriesWork *sub_series() { return series_; }
  const SeriesWork *sub_series() const { return series_; }

  void set_callback(Callback callback) { callback_ = std::move(callback); }

 protected:
  WFDeadlineTask(SeriesWork *series, Callback &&callback)
      : series_(series), callback_(std::move(callback)) {}
  ~WFDeadlineTask() override = default;

  SubTask *done() override {
    if (callback_) callback_(this);
    return delete_and_next();
  }

  SeriesWork *const series_;
  int state_ = WFT_STATE_UNDEFINED;
  int error_ = 0;
  Callback callback_;
};

// A task that runs `task` with a time limit, which counts from the start of the returned task. A
// negative limit means no deadline. Zero expires immediately. `task` may be a single step, a
// parallel, a graph or another deadline; of two deadlines the earlier one counts.
WFDeadlineTask *with_deadline(SubTask *task, workflow::Duration limit,
                              WFDeadlineTask::Callback callback = nullptr);

// The same for a series that was not started and is in no parallel. The returned task owns it.
WFDeadlineTask *with_deadline(SeriesWork *series, workflow::Duration limit,
                              WFDeadlineTask::Callback callback = nullptr);

// The same until a point of time, whenever the task is started; time_point::max(): no limit.
WFDeadlineTask *with_deadline(SubTask *task, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback = nullptr);
WFDeadlineTask *with_deadline(SeriesWork *series, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback = nullptr);
