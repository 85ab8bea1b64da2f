#include "factory/ScopeTask.h"

#include <utility>

#include "factory/Dues.h"
#include "factory/SeriesScope.h"
#include "kernel/Runtime.h"
#include "util/VirtualScheduler.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFTaskFactory.h"

namespace workflow {

ScopeTask::ScopeTask(SeriesWork* series, Callback&& callback)
    : WFScopeTask(series, new DeadlineScope(), std::move(callback)) {
  assert(!series->in_parallel_ && series->first_);
  series->in_parallel_ = this;
  SeriesScope::set(series, scope_);
}

ScopeTask::~ScopeTask() {
  delete series_;
  scope_->drop_reference();
}

void ScopeTask::dispatch() {
  int error = enter_scope(ScopeKind::kTimer);
  if (error == 0) {
    error = scope_->start(SeriesScope::of(this));
  }
  if (error != 0) {
    scope_->cancel(error);  // nothing is inside yet
  }
  extent_ = scope_->reason() == 0 ? WFScopeExtent::kPart : WFScopeExtent::kNothing;
  RunnableList first;
  first.push_back(series_->begin());
  dispatch_all(first, this);
  part_done();
}

void ScopeTask::on_cancel(int reason) {
  scope_->cancel(reason);
}

void ScopeTask::branch_done() {
  error_ = scope_->reason();
  if (error_ != 0) {
    state_ = WFT_STATE_SYS_ERROR;
  } else {
    state_ = Runtime::current().stopping() ? WFT_STATE_ABORTED : WFT_STATE_SUCCESS;
    extent_ = WFScopeExtent::kEverything;
  }
  scope_->finish();
  part_done();
}

void ScopeTask::part_done() {
  schedule_point();
  if (parts_left_.fetch_sub(1, std::memory_order_acq_rel) == 1 && leave_scope()) {
    subtask_done();
  }
}

}  // namespace workflow

using workflow::ScopeTask;
using workflow::SeriesScope;

namespace {

SeriesWork* series_with(SubTask* task) {
  return Workflow::create_series_work(task, nullptr);
}

WFScopeTask* create(SeriesWork* series, const WFTimerDue& due, WFScopeTask::Callback&& callback) {
  auto* const task = new ScopeTask(series, std::move(callback));
  task->scope().set_deadline(due);  // only stored, because the task is not started
  return task;
}

WFTimerDue within(workflow::Duration limit) {
  return std::chrono::nanoseconds(limit.ns());
}

}  // namespace

WFScope WFScopeTask::scope() const {
  scope_->add_reference();
  return WFScope(scope_);
}

WFScopeTask* WFTaskFactory::create_scope_task(SeriesWork* series, WFScopeTask::Callback callback) {
  return new ScopeTask(series, std::move(callback));
}

WFScopeTask* WFTaskFactory::create_scope_task(SubTask* task, WFScopeTask::Callback callback) {
  return new ScopeTask(series_with(task), std::move(callback));
}

WFScopeTask* WFTaskFactory::create_deadline_task(SeriesWork* series, const WFTimerDue& due,
                                                 WFScopeTask::Callback callback) {
  return create(series, due, std::move(callback));
}

WFScopeTask* WFTaskFactory::create_deadline_task(SubTask* task, const WFTimerDue& due,
                                                 WFScopeTask::Callback callback) {
  return create(series_with(task), due, std::move(callback));
}

WFDeadlineTask* with_deadline(SubTask* task, workflow::Duration limit,
                              WFDeadlineTask::Callback callback) {
  return create(series_with(task), within(limit), std::move(callback));
}

WFDeadlineTask* with_deadline(SeriesWork* series, workflow::Duration limit,
                              WFDeadlineTask::Callback callback) {
  return create(series, within(limit), std::move(callback));
}

WFDeadlineTask* with_deadline(SubTask* task, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback) {
  return create(series_with(task), deadline, std::move(callback));
}

WFDeadlineTask* with_deadline(SeriesWork* series, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback) {
  return create(series, deadline, std::move(callback));
}
