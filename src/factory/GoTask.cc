#include "factory/GoTask.h"

#include "kernel/Runtime.h"
#include "kernel/ThreadContext.h"

namespace workflow {

void GoTask::dispatch() {
  if (!Runtime::current().compute().post(queue_, this)) {
    state_ = WFT_STATE_ABORTED;
    subtask_done();
  }
}

// On a computing thread, or on a handler when dispatch() was refused.
void GoTask::run() {
  if (state_ == WFT_STATE_UNDEFINED) {
    if (Runtime::current().stopping()) {
      state_ = WFT_STATE_ABORTED;
    } else {
      // For those who ask whether they are inside a series that they would wait for.
      ThreadContext& context = ThreadContext::current();
      context.series = joined_series();
      function_();
      context.series = nullptr;
      state_ = WFT_STATE_SUCCESS;
    }
  }
  SubTask::run();
}

}  // namespace workflow
