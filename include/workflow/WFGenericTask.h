#pragma once

#include "workflow/Workflow.h"
#include "workflow/detail/TaskBase.h"

// A task that completes as soon as it is dispatched. It is also the base of tasks that users write.
class WFGenericTask : public workflow::TaskBase<> {
 public:
  WFGenericTask() { state = WFT_STATE_SUCCESS; }

 protected:
  ~WFGenericTask() override = default;

  void dispatch() override { subtask_done(); }
  SubTask *done() override { return delete_and_next(); }
};
