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

using workflow::DeadlineScope;
using workflow::Ref;
using workflow::ScopeTask;
using workflow::SeriesScope;

namespace {

SeriesWork* as_series(SeriesWork* series) {
  return series;
}

SeriesWork* as_series(SubTask* task) {
  return Workflow::create_series_work(task, nullptr);
}

// If memory runs out, `inside` stays the caller's: the scope and the memory of the task come first.
template <class Inside>
WFScopeTask* create(Inside* inside, const WFTimerDue& due, WFScopeTask::Callback&& callback) {
  const WFScope scope(Ref<DeadlineScope>::adopt(new DeadlineScope()));
  scope.set_deadline(due);  // only stored, because the scope is not started
  return new ScopeTask(as_series(inside), scope, std::move(callback));
}

constexpr std::chrono::nanoseconds kNoDeadline(-1);

WFTimerDue within(workflow::Duration limit) {
  return std::chrono::nanoseconds(limit.ns());
}

}  // namespace

WFScopeTask* WFTaskFactory::create_scope_task(SeriesWork* series, WFScopeTask::Callback callback) {
  return create(series, kNoDeadline, std::move(callback));
}

WFScopeTask* WFTaskFactory::create_scope_task(SubTask* task, WFScopeTask::Callback callback) {
  return create(task, kNoDeadline, std::move(callback));
}

WFScopeTask* WFTaskFactory::create_deadline_task(SeriesWork* series, const WFTimerDue& due,
                                                 WFScopeTask::Callback callback) {
  return create(series, due, std::move(callback));
}

WFScopeTask* WFTaskFactory::create_deadline_task(SubTask* task, const WFTimerDue& due,
                                                 WFScopeTask::Callback callback) {
  return create(task, due, std::move(callback));
}

WFDeadlineTask* with_deadline(SubTask* task, workflow::Duration limit,
                              WFDeadlineTask::Callback callback) {
  return create(task, within(limit), std::move(callback));
}

WFDeadlineTask* with_deadline(SeriesWork* series, workflow::Duration limit,
                              WFDeadlineTask::Callback callback) {
  return create(series, within(limit), std::move(callback));
}

WFDeadlineTask* with_deadline(SubTask* task, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback) {
  return create(task, deadline, std::move(callback));
}

WFDeadlineTask* with_deadline(SeriesWork* series, std::chrono::steady_clock::time_point deadline,
                              WFDeadlineTask::Callback callback) {
  return create(series, deadline, std::move(callback));
}
