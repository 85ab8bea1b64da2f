#pragma once

#include "workflow/Workflow.h"
#include "workflow/detail/TaskBase.h"

// A delay, made by WFTimer or WFTaskFactory. WFTimer.h lists the ways in which it can end.
class WFTimerTask : public workflow::TaskWithCallback<WFTimerTask> {
 protected:
  using TaskWithCallback::TaskWithCallback;
  ~WFTimerTask() override = default;
};
