#pragma once

#include <cassert>
#include <functional>
#include <utility>

#include "workflow/SubTask.h"
#include "workflow/WFTaskState.h"

namespace workflow {

class CoAccess;

// What every kind of task offers to its users. STEP is SubTask, or ParallelTask for a task that
// contains a series.
template <class STEP = SubTask>
class TaskBase : public STEP {
 public:
  // Dispatches the task in a series of its own. Not allowed for a task that has joined a series.
  void start() {
    assert(!this->get_pointer());
    this->start_alone();
  }
  // Deletes a task that was not started and has not joined a series, and the tasks inside it,
  // without callbacks.
  void dismiss() {
    assert(!this->get_pointer());
    this->drop_unstarted();
  }

  // For the user. Mailboxes and conditionals store their message here if they have no other place.
  void *user_data = nullptr;

  // How the task has ended: a WFT_STATE_*, and what the state makes of the error (WFTaskState.h).
  // Meant for the callback.
  int get_state() const { return state; }
  int get_error() const { return error; }

 protected:
  // How done() ends, after the callback. A kind of task that others may still touch then has a
  // function of its own by this name.
  SubTask *end_and_next() { return this->delete_and_next(); }

  int state = WFT_STATE_UNDEFINED;
  int error = 0;
};

// A TaskBase with a callback. The callback gets a TASK, which is the class that derives from this.
template <class TASK, class BASE = TaskBase<>>
class TaskWithCallback : public BASE {
 public:
  using Callback = std::function<void(TASK *)>;

  // A null callback is not called.
  void set_callback(Callback callback) { callback_ = std::move(callback); }

 protected:
  TaskWithCallback() = default;
  template <class... ARGS>
  explicit TaskWithCallback(Callback &&callback, ARGS &&...args)
      : BASE(std::forward<ARGS>(args)...), callback_(std::move(callback)) {}

  SubTask *done() override {
    if (callback_) callback_(static_cast<TASK *>(this));
    return this->end_and_next();
  }

  Callback callback_;

 private:
  friend class CoAccess;  // a coroutine that waits for the task learns how it ended
};

}  // namespace workflow
