#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <functional>
#include <utility>

#include "workflow/detail/Ref.h"
#include "workflow/detail/WaitingTask.h"

namespace workflow {

class CoAccess;

// How a conditional has ended, and what its signal brought.
struct ConditionalEnd {
  int state = WFT_STATE_UNDEFINED;
  int error = 0;
  void *message = nullptr;
};

}  // namespace workflow

// Tasks that wait for something that other threads bring: counts, messages or signals.
//
// Each of them ends when two things have happened, in either order: the task was dispatched, and
// what it waits for has arrived. If a count, message, signal, submit, release or post ends the task
// on a thread of the library, the callback and the tasks that follow may run inside that call, so
// hold no lock that they take. If another thread makes the call, or it is release_guard_safe(),
// they run on a handler thread.
//
// When the library stops, the tasks that wait end with WFT_STATE_ABORTED at once. A thread that
// brings something to such a task later finds the task still there, and its call has no effect. A
// task without a name that a scope has ended (WFScope.h) also stays, until what it waited for has
// arrived. A task with a name is gone at once, and its name no longer leads to it.

// Ends when it was counted `target` times.
class WFCounterTask : public workflow::TaskWithCallback<WFCounterTask, workflow::WaitingTask> {
 public:
  // May be called from any thread, but not more often than `target` times, because the counter may
  // be gone after the last one. Only count_by_name() may safely come too late.
  virtual void count();

  WFCounterTask(unsigned int target, std::function<void(WFCounterTask *)> callback)
      : TaskWithCallback(std::move(callback), target == 0), remaining_(target) {}

 protected:
  ~WFCounterTask() override = default;
  bool is_known_by_address() const override { return true; }

  SubTask *done() override { return call_back(this, callback_); }

  std::atomic<unsigned int> remaining_;  // acq_rel: the last count() sees what others did
};

// Ends when a message was sent to it. Only the first message counts. It is stored in the mailbox:
// the location that was given at the creation, or else `user_data`.
class WFMailboxTask : public workflow::TaskWithCallback<WFMailboxTask, workflow::MessageTask> {
 public:
  // May be called from any thread. Call it only once for a mailbox without a name, because the task
  // may be gone after that.
  virtual void send(void *msg) { deliver_and_complete(msg); }

  void **get_mailbox() const { return slot_; }

  // `mailbox` must live until the callback has returned. If it is null, `user_data` is the mailbox.
  WFMailboxTask(void **mailbox, std::function<void(WFMailboxTask *)> callback)
      : TaskWithCallback(std::move(callback), mailbox) {}
  explicit WFMailboxTask(std::function<void(WFMailboxTask *)> callback)
      : WFMailboxTask(nullptr, std::move(callback)) {}

 protected:
  ~WFMailboxTask() override = default;
  bool is_known_by_address() const override { return true; }

  SubTask *done() override { return call_back(this, callback_); }
};

// Ends with the first message that one of its candidates submits: SUCCESS. If all of them have
// submitted null, it ends with SYS_ERROR/ENOMSG.
//
// A selector lives until its callback has returned and every candidate has submitted, however late.
// This also holds if it is dropped before it was dispatched: submit() then returns 0. If a
// candidate never submits, the selector is freed when the library ends.
class WFSelectorTask : public workflow::TaskWithCallback<WFSelectorTask, workflow::WaitingTask> {
 public:
  // Each candidate calls this once, from any thread, and must not use the selector afterwards.
  // Returns 1 if the selector ends with `msg`. Otherwise it returns 0, and the message still
  // belongs to the caller: `msg` is null, another message came first, or the selector was ended by
  // a scope, aborted or dropped before.
  virtual int submit(void *msg);

  // For the callback: the message, or null if there is none.
  void *get_message() const { return message_; }

  WFSelectorTask(size_t candidates, std::function<void(WFSelectorTask *)> callback);

 protected:
  ~WFSelectorTask() override = default;

  SubTask *done() override;
  void drop_unstarted() override;

  void *message_ = nullptr;

 private:
  void end_without_message();
  // Called when the task itself, or the last of its candidates, does not need the selector any
  // more.
  void unref();

  // Acq_rel: the last candidate, which may free the selector, sees what all others did.
  std::atomic<size_t> candidates_left_;
  workflow::RefCount users_;  // the task is one user, all its candidates together are another
};

// Runs another task, the inner one, when the conditional was both dispatched and signalled: the
// inner task then takes the place of the conditional in the series. The message of the signal is in
// `*msgbuf`, or in the conditional's `user_data`. Only the first signal counts.
//
// The conditional owns the inner task until that is dispatched. If the conditional is dropped,
// dismissed, aborted, ended by a scope, or fails for lack of memory, it drops the inner task. In
// the last three cases it also cancels its series, because what follows may rely on the inner task.
class WFConditional : public workflow::MessageTask {
 public:
  // May be called from any thread, but only once, because the conditional may be gone after that.
  // It has no effect on guards and on conditionals that a resource pool or a message queue gave
  // out: these wait for a release or a post.
  virtual void signal(void *msg) { deliver_and_complete(msg); }

  // `msgbuf` must live until the inner task is dispatched or dropped. If it is null, `user_data`
  // takes the message.
  WFConditional(SubTask *task, void **msgbuf) : MessageTask(msgbuf) { own(task); }
  explicit WFConditional(SubTask *task) : WFConditional(task, nullptr) {}

 protected:
  ~WFConditional() override;
  bool is_known_by_address() const override { return true; }

  SubTask *done() override;

  // Takes the inner task over. A kind whose constructor may throw is created without a task and
  // calls this last, so that the task still belongs to the caller if it throws.
  void own(SubTask *task) {
    assert(!task || !series_of(task));
    task_ = task;
  }

  // Called when the message has arrived but the task will not run, because the series was
  // cancelled.
  virtual void message_unused(void * /*msg*/) {}

  // The inner task. Null before own(), when done() has passed it on or dropped it, and where only a
  // coroutine waits.
  SubTask *task_ = nullptr;

 private:
  friend class workflow::CoAccess;

  // Where a coroutine that waits for this learns how it has ended. Then the coroutine decides how
  // the series goes on: a failure does not cancel it. Null if no coroutine waits.
  workflow::ConditionalEnd *end_ = nullptr;
};
