#pragma once

#include <cassert>
#include <chrono>
#include <functional>
#include <utility>

#include "workflow/Duration.h"
#include "workflow/SubTask.h"
#include "workflow/WFTaskState.h"
#include "workflow/Workflow.h"

// A task that contains a series with a time limit. The limit counts from the task's start.
//
// If the limit passes before the inner series has ended, whatever waits in the inner series ends
// early: its callback sees SYS_ERROR with ETIMEDOUT. The inner series then goes on, and each task
// that would have to wait from then on ends at once in the same way, without having begun. So every
// task learns of the timeout. The tasks of parallels, graphs and modules inside the series are
// included. docs/timers.md lists how each kind of task ends.
//
// The deadline task ends when the inner series has ended:
//   SUCCESS               the inner series ended in time
//   SYS_ERROR, ETIMEDOUT  the limit passed first
//   SYS_ERROR, ECANCELED  the inner series was ended early from outside: the client of the request
//                         whose series contains this task has left, or its server has stopped
//   SYS_ERROR, ENOMEM     there was no memory for the limit; tasks that would have to wait ended at
//                         once, in the same way
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

  // The inner series. It may be extended until its last task is done, and lives until the callback
  // has returned. Cancelling the series that contains this task does not cancel the inner series.
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

// Like with_deadline(task, ...), for a series that was not started and is not in a parallel. The
// returned task owns the series.
WFDeadlineTask *with_deadline(SeriesWork *series, workflow::Duration limit,
                              WFDeadlineTask::Callback callback = nullptr);

// Like those above, but the limit is a point of time, no matter when the task is started.
// time_point::max() means no limit.
WFDeadlineTask *with_deadline(SubTask *task, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback = nullptr);
WFDeadlineTask *with_deadline(SeriesWork *series, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback = nullptr);
