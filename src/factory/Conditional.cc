#include "workflow/WFWaitingTask.h"
#include "workflow/Workflow.h"

WFConditional::~WFConditional() {
  if (task_) {
    SubTask::drop_unstarted(task_);
  }
}

SubTask* WFConditional::done() {
  if (end_) {
    *end_ = {state, error, state == WFT_STATE_SUCCESS ? *slot_ : nullptr};
  }
  if (state == WFT_STATE_SUCCESS && !is_series_canceled()) {
    return delete_and_continue_with(std::exchange(task_, nullptr));
  }
  if (state == WFT_STATE_SUCCESS) {
    message_unused(*slot_);
  } else if (SeriesWork* series = end_ ? nullptr : joined_series()) {
    series->cancel();
  }
  SubTask::drop_unstarted(std::exchange(task_, nullptr));
  return end_and_next();
}
