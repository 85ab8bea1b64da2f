#include <cerrno>

#include "factory/WaitingTasks.h"
#include "util/VirtualScheduler.h"
#include "workflow/WFWaitingTask.h"

using workflow::WaitingTasks;

WFSelectorTask::WFSelectorTask(size_t candidates, std::function<void(WFSelectorTask*)> callback)
    : TaskWithCallback(std::move(callback)),
      candidates_left_(candidates),
      users_(candidates == 0 ? 1 : 2) {
  if (candidates == 0) {
    end_without_message();
  }
}

int WFSelectorTask::submit(void* msg) {
  const bool wins = msg && claim();
  if (wins) {
    message_ = msg;
    if (publish()) {
      complete();
    }
  }
  workflow::schedule_point();
  if (candidates_left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    end_without_message();
    unref();
  }
  return wins;
}

// Does nothing if there is a winner.
void WFSelectorTask::end_without_message() {
  if (claim()) {
    state = WFT_STATE_SYS_ERROR;
    error = ENOMSG;
    if (publish()) {
      complete();
    }
  }
}

SubTask* WFSelectorTask::done() {
  if (callback_) {
    callback_(this);
  }
  tell(true);
  const Place after = place();
  drop_unstarted();
  return after.next();
}

void WFSelectorTask::drop_unstarted() {
  callback_ = nullptr;
  // From now on no candidate can win, because its message would be lost.
  claim();
  // The runtime keeps this task as long as candidates may still come.
  WaitingTasks::current().park(this);
  unref();
}

void WFSelectorTask::unref() {
  workflow::schedule_point();
  if (users_.drop()) {
    WaitingTasks::remove(this);
    delete this;
  }
}
