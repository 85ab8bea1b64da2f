#include <cassert>
#include <cerrno>

#include "workflow/WFWaitingTask.h"
#include "workflow/Workflow.h"

WFConditional::~WFConditional() {
  if (task_) {
    SubTask::drop_unstarted(task_);
  }
}

SubTask* WFConditional::done() {
  assert(task_ || end_);
  const bool granted = state == WFT_STATE_SUCCESS && !is_series_canceled();
  if (end_ && granted) {
    *end_ = {state, error, *slot_};
  } else if (end_) {
    // What was granted to a cancelled series is given back below, and by nobody else.
    const bool dropped = state == WFT_STATE_SUCCESS;
    *end_ = {dropped ? WFT_STATE_SYS_ERROR : state, dropped ? ECANCELED : error, nullptr};
  }
  if (granted && task_) return delete_and_continue_with(std::exchange(task_, nullptr));
  if (granted) return end_and_next();
  if (state == WFT_STATE_SUCCESS) {
    message_unused(*slot_);
  } else if (SeriesWork* series = end_ ? nullptr : joined_series()) {
    series->cancel();
  }
  if (task_) {
    SubTask::drop_unstarted(std::exchange(task_, nullptr));
  }
  return end_and_next();
}
