#include "factory/ScopeTask.h"

#include <utility>

#include "factory/SeriesScope.h"
#include "kernel/Runtime.h"
#include "util/VirtualScheduler.h"
#include "workflow/WFDeadline.h"
#include "workflow/WFTaskFactory.h"

namespace workflow {

ScopeTask::ScopeTask(SeriesWork* series, const WFScope& scope, Callback&& callback)
    : WFScopeTask(series, scope, std::move(callback)) {
  adopt_series(series);
  SeriesScope::set(series, SeriesScope::get(scope_));
}

ScopeTask::~ScopeTask() {
  delete_series(series_);
}

void ScopeTask::dispatch() {
  DeadlineScope& scope = *SeriesScope::get(scope_);
  int reason = enter_scope(ScopeKind::kTimer);
  if (reason == 0) {
    reason = scope.start(SeriesScope::of(this));
  }
  if (reason != 0) {
    scope.cancel(reason);  // nothing is inside yet
  }
  extent_ = scope.reason() == 0 ? WFScopeExtent::kPart : WFScopeExtent::kNothing;
  SeriesScope::set_borrows(series_, borrows());
  RunnableList first;
  first.push_back(begin_series(series_));
  dispatch_all(first, this);
  part_done();
}

void ScopeTask::on_cancel(int reason) {
  SeriesScope::get(scope_)->cancel(reason);
}

void ScopeTask::branch_done() {
  error = SeriesScope::get(scope_)->finish();
  if (error != 0) {
    state = WFT_STATE_SYS_ERROR;
  } else {
    const bool stops = Runtime::current().stopping();
    state = stops ? WFT_STATE_ABORTED : WFT_STATE_SUCCESS;
    extent_ = stops ? extent_ : WFScopeExtent::kEverything;
  }
  part_done();
}

void ScopeTask::part_done() {
  schedule_point();
  if (parts_left_.fetch_sub(1, std::memory_order_acq_rel) == 1 && leave_scope()) {
    subtask_done();
  }
}

}  // namespace workflow

namespace {

WFTimerDue within(workflow::Duration limit) {
  return std::chrono::nanoseconds(limit.ns());
}

}  // namespace

WFDeadlineTask* with_deadline(SubTask* task, workflow::Duration limit,
                              WFDeadlineTask::Callback callback) {
  return WFTaskFactory::create_deadline_task(task, within(limit), std::move(callback));
}

WFDeadlineTask* with_deadline(SeriesWork* series, workflow::Duration limit,
                              WFDeadlineTask::Callback callback) {
  return WFTaskFactory::create_deadline_task(series, within(limit), std::move(callback));
}

WFDeadlineTask* with_deadline(SubTask* task, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback) {
  return WFTaskFactory::create_deadline_task(task, deadline, std::move(callback));
}

WFDeadlineTask* with_deadline(SeriesWork* series, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback) {
  return WFTaskFactory::create_deadline_task(series, deadline, std::move(callback));
}
