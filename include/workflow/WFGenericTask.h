#pragma once

#include <utility>

#include "workflow/Workflow.h"
#include "workflow/detail/TaskBase.h"

class WFGenericTask;

namespace workflow {

// Hears of the end of a task: a coroutine that waits for it.
class TaskEndObserver {
 public:
  // Called once, when the task gives up its place in its series: its state and error are final.
  // `is_whole`: the task is still there as a whole, and not only what WFGenericTask has of it.
  virtual void task_ends(WFGenericTask *task, bool is_whole) = 0;

 protected:
  ~TaskEndObserver() = default;
};

}  // namespace workflow

// A task that completes as soon as it is dispatched. It is also the base of tasks that users write.
class WFGenericTask : public workflow::TaskBase<> {
 public:
  WFGenericTask() { state = WFT_STATE_SUCCESS; }

 protected:
  // A done() may also end with `delete this` and what the series has next.
  ~WFGenericTask() override { tell(false); }

  void dispatch() override { subtask_done(); }
  SubTask *done() override { return delete_and_next(); }

  SubTask *delete_and_next() {
    tell(true);
    return SubTask::delete_and_next();
  }
  SubTask *end_and_next() { return delete_and_next(); }

  // Tells the coroutine that waits for this task, if any, that it ends. For a task whose object
  // outlives its end: others may free it before the coroutine looks.
  void tell(bool is_whole) {
    if (observer_) std::exchange(observer_, nullptr)->task_ends(this, is_whole);
  }

 private:
  friend class workflow::CoAccess;

  workflow::TaskEndObserver *observer_ = nullptr;
};
