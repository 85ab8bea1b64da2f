#pragma once

#include <cassert>

#include "workflow/SubTask.h"
#include "workflow/WFTaskState.h"
#include "workflow/Workflow.h"

// A task that completes as soon as it is dispatched. It is also the base of tasks that users write.
class WFGenericTask : public SubTask {
 public:
  void start() {
    assert(!series_of(this));
    start_alone();
  }
  void dismiss() {
    assert(!series_of(this));
    drop_unstarted();
  }

  void *user_data = nullptr;

  int get_state() const { return state; }
  int get_error() const { return error; }

  WFGenericTask() = default;

 protected:
  ~WFGenericTask() override = default;

  void dispatch() override { subtask_done(); }
  SubTask *done() override { return delete_and_next(); }

  int state = WFT_STATE_SUCCESS;
  int error = 0;
};
