#pragma once

#include <cassert>

#include "workflow/SubTask.h"
#include "workflow/Workflow.h"

// How a task ended. get_error() then holds, for
//   SYS_ERROR: an errno value;  SSL_ERROR: an OpenSSL code;  DNS_ERROR: an EAI_ code;
//   TASK_ERROR: a WFT_ERR_ code (WFTaskError.h);  ABORTED: 0 or why.
enum {
  WFT_STATE_UNDEFINED = -1,
  WFT_STATE_SUCCESS = 0,
  WFT_STATE_SYS_ERROR = 1,
  WFT_STATE_ABORTED = 2,  // the library was shutting down
  WFT_STATE_TOREPLY = 3,  // server tasks: before the reply was sent
  WFT_STATE_NOREPLY = 4,  // server tasks: ended without a reply
  WFT_STATE_SSL_ERROR = 65,
  WFT_STATE_DNS_ERROR = 66,
  WFT_STATE_TASK_ERROR = 67
};

// A task that completes as soon as it is dispatched; the base of tasks that users write.
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
