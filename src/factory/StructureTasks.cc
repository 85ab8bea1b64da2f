#include <cerrno>
#include <utility>

#include "kernel/Runtime.h"
#include "workflow/WFTask.h"

// The next task of the repeater, or null at its end.
SubTask* WFRepeaterTask::create() {
  if (workflow::Runtime::current().stopping()) {
    // A stop ends every task at once, so a `create` that does not look why would go on for ever.
    state = WFT_STATE_ABORTED;
    return nullptr;
  }
  if (const int reason = cancel_reason()) {
    // When the scope has ended, such a `create` would go on for ever, too.
    state = WFT_STATE_SYS_ERROR;
    error = reason;
    return nullptr;
  }
  if (next_create_) {
    create_ = std::move(*next_create_);
    next_create_.reset();
  }
  return create_ ? create_(this) : nullptr;
}

SubTask* WFRepeaterTask::done() {
  began_ = true;
  if (SubTask* task = create()) {
    // The repeater comes back directly after the task that it has made, however that task ends.
    return come_back_after(task);
  }
  if (callback_) {
    callback_(this);
  }
  return delete_and_next();
}

void WFRepeaterTask::drop_unstarted() {
  if (began_) {
    // The stop cancels the series of the conditionals that it aborts, and the end of a scope that
    // of those that wait in it.
    const bool stopping = workflow::Runtime::current().stopping();
    const int reason = cancel_reason();
    state = stopping ? WFT_STATE_ABORTED : WFT_STATE_SYS_ERROR;
    error = stopping ? 0 : reason != 0 ? reason : ECANCELED;
    if (callback_) {
      callback_(this);
    }
  }
  delete this;
}

WFModuleTask::WFModuleTask(SubTask* first, SubTask* last,
                           std::function<void(const WFModuleTask*)> callback)
    : TaskWithCallback(std::move(callback)),
      series_(last ? Workflow::create_series_work(first, last, nullptr)
                   : Workflow::create_series_work(first, nullptr)) {
  state = WFT_STATE_SUCCESS;
  adopt_series(series_);
}

WFModuleTask::~WFModuleTask() {
  delete_series(series_);
}

void WFModuleTask::dispatch() {
  share_scope(series_);
  workflow::RunnableList first;
  first.push_back(begin_series(series_));
  dispatch_branches(first);
}
