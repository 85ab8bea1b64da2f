#include "factory/DeadlineTask.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "kernel/Runtime.h"
#include "util/Time.h"
#include "util/VirtualScheduler.h"

namespace workflow {

DeadlineTask::DeadlineTask(SeriesWork* series, const DeadlineTime& time, Callback&& callback)
    : WFDeadlineTask(series, std::move(callback)), time_(time) {
  assert(!series->in_parallel_ && series->first_);
  series->in_parallel_ = this;
  scope_.attach(series);
}

DeadlineTask::~DeadlineTask() {
  delete series_;
}

void DeadlineTask::dispatch() {
  int error = enter_outer_scope();
  if (error == 0) {
    error = start_timer();
  }
  if (error != 0) {
    Interruption interruption(error);
    scope_.interrupt(interruption);  // nothing is in it yet
  }
  RunnableList first;
  first.push_back(series_->begin());
  dispatch_all(first, this);
  part_done();
}

int DeadlineTask::enter_outer_scope() {
  SeriesWork* const outer = joined_series();
  InterruptScope* scope = nullptr;
  if (outer && !outer->scope_to_enter(&scope)) {
    return ENOMEM;
  }
  const int error = scope ? scope->enter(this) : 0;
  if (error == 0) {
    outer_scope_ = scope;
  }
  return error;
}

int DeadlineTask::start_timer() {
  if (time_.ns == kNever) {
    return 0;
  }
  Poller& poller = Runtime::current().own_poller();
  const int64_t delay_ns = time_.from_start ? time_.ns : time_.ns - poller.clock().now_ns();
  if (delay_ns <= 0) {
    return ETIMEDOUT;
  }
  parts_left_.store(3, std::memory_order_relaxed);
  const Poller::Start started = poller.start_timer(&timer_, delay_ns);
  timer_started_ = started == Poller::Start::kQueued;
  if (!timer_started_) {
    parts_left_.store(2, std::memory_order_relaxed);
  }
  // When the library stops, that ends all that waits.
  return started == Poller::Start::kNoMemory ? ENOMEM : 0;
}

void DeadlineTask::branch_done() {
  error_ = scope_.error();
  if (error_ != 0) {
    state_ = WFT_STATE_SYS_ERROR;
  } else {
    state_ = Runtime::current().stopping() ? WFT_STATE_ABORTED : WFT_STATE_SUCCESS;
  }
  if (timer_started_ && Poller::cancel_timer(&timer_) == Poller::Cancel::kTaken) {
    part_done();
  }
  part_done();
}

void DeadlineTask::part_done() {
  schedule_point();
  if (parts_left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    if (outer_scope_) {
      outer_scope_->leave(this);
    }
    subtask_done();
  }
}

void DeadlineTask::Timer::left_queue(bool stopped, RunnableList& finished) {
  stopped_ = stopped;
  finished.push_back(this);
}

// On a handler: there may be much to end.
void DeadlineTask::Timer::take_turn() {
  if (!stopped_) {
    Interruption interruption(ETIMEDOUT);
    task_->scope_.interrupt(interruption);
    interruption.finish();
  }
  task_->part_done();
}

}  // namespace workflow

using workflow::DeadlineTask;
using workflow::DeadlineTime;

namespace {

DeadlineTime within(workflow::Duration limit) {
  return {.ns = limit.ns() < 0 ? workflow::kNever : limit.ns(), .from_start = true};
}

DeadlineTime at(std::chrono::steady_clock::time_point deadline) {
  const auto since_epoch = std::chrono::nanoseconds(deadline.time_since_epoch());
  return {.ns = std::max<int64_t>(since_epoch.count(), 0), .from_start = false};
}

SeriesWork* series_with(SubTask* task) {
  return Workflow::create_series_work(task, nullptr);
}

}  // namespace

WFDeadlineTask* with_deadline(SubTask* task, workflow::Duration limit,
                              WFDeadlineTask::Callback callback) {
  return new DeadlineTask(series_with(task), within(limit), std::move(callback));
}

WFDeadlineTask* with_deadline(SeriesWork* series, workflow::Duration limit,
                              WFDeadlineTask::Callback callback) {
  return new DeadlineTask(series, within(limit), std::move(callback));
}

WFDeadlineTask* with_deadline(SubTask* task, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback) {
  return new DeadlineTask(series_with(task), at(deadline), std::move(callback));
}

WFDeadlineTask* with_deadline(SeriesWork* series, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback) {
  return new DeadlineTask(series, at(deadline), std::move(callback));
}
