#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <functional>
#include <utility>

#include "workflow/WFGenericTask.h"

// Tasks that wait for something that other threads bring: counts, messages or signals.
//
// Each of them ends when two things have happened, in either order: the task was dispatched, and
// what it waits for has arrived. Then the callback runs on a framework thread, mostly the one that
// brought it.
//
// When the library stops and nothing runs any more that could bring something, the tasks that still
// wait end with WFT_STATE_ABORTED. A thread that brings something to such a task later finds the
// task still there, and is ignored. The same holds for a task without a name that a scope has ended
// (WFScope.h): it stays until what it waited for has arrived. A task with a name is gone at once,
// and its name no longer leads to it.

namespace workflow {

class WaitingTasks;

// The part that all of them share. Four parties meet in the atomic `parts_`:
//   the start        dispatch(): sets kStarted
//   the sender      claim(), which only the first wins, then writes what it brings, then publish()
//   the canceller    a sender of an error: on_cancel(), when the scope of the task has ended
//   the stop         abort(): only for a task that is started and not claimed
// 1. The second of start and publish() owns the completion, or a successful abort() does.
// 2. While it is started and not completed, the task is in the runtime's WaitingTasks; the owner of
//    the completion removes it. So the stop finds only tasks that are alive.
// 3. A task that was aborted is never freed before its runtime, because a sender may still touch
//    it.
// 4. A task that was cancelled, and whose senders may know its address, has two users from then
//    on: the task itself, and the last of its senders. The second of them to end frees it.
class WaitingTask : public WFGenericTask {
 protected:
  // `brought`: there is nothing to wait for, as if it had been brought already.
  explicit WaitingTask(bool brought = false) : parts_(brought ? kClaimed | kPublished : 0) {}
  ~WaitingTask() override = default;

  // Any thread that keeps the task alive may call this. Returns false if another claim came first,
  // or if the task is aborted.
  bool claim();
  // Called after claim(). If it returns true, the caller owns the completion and must call
  // complete(). If it returns false, the task may be gone.
  bool publish();
  void complete();
  // Calls complete() for each of the tasks and leaves the list empty.
  static void complete_all(RunnableList &tasks);
  // Completes the task on a handler, never inside this call.
  void complete_elsewhere();

  // The last use of the task by a sender that knows only its address and whose claim() failed. The
  // task may be gone afterwards.
  void release_late();
  // Whether senders may know the task by its address alone, and so call release_late().
  virtual bool is_known_by_address() const { return false; }

  // The start.
  void dispatch() override;

  // Called when the task was aborted or cancelled: leaves the queue or name in which it waits. Runs
  // on the thread that aborts, cancels or starts the task.
  virtual void leave_waiting() {}

  bool is_aborted() const { return has(kAborted); }
  bool is_started() const { return has(kStarted); }

  // How done() ends, after the callback: as delete_and_next(), except that a task that others may
  // still touch is kept.
  SubTask *end_and_next();

  // Runs the callback and ends the task.
  template <class T>
  SubTask *call_back(T *task, std::function<void(T *)> &callback) {
    if (callback) callback(task);
    if (is_kept()) callback = nullptr;  // others may wait for what it captured to be released
    return end_and_next();
  }

 private:
  friend class WaitingTasks;

  enum : unsigned {
    kStarted = 1,
    kClaimed = 2,
    kPublished = 4,
    kAborted = 8,
    kCancelled = 16,  // always together with kClaimed
    kEnded = 32,      // of a cancelled task: its callback has returned
    kLate = 64        // of a cancelled task: its last sender has come
  };
  bool has(unsigned part) const { return parts_.load(std::memory_order_acquire) & part; }
  bool is_kept() const { return has(kAborted) || (has(kCancelled) && is_known_by_address()); }

  void on_cancel(int reason) override;
  // Like claim(), but the caller brings an error.
  bool claim_for(int error);
  // Called by the owner of the completion. Returns what leave_scope() does.
  bool leave_lists();
  void end_part(unsigned part, unsigned other);

  std::atomic<unsigned> parts_;

  // Guarded by the mutex of the list.
  WaitingTask *next_ = nullptr;
  WaitingTask *previous_ = nullptr;
  // The list of WaitingTasks that the task is in, or null. Written by the start, then by the owner
  // of the completion.
  void *list_ = nullptr;
};

// Waits for one message, and knows where to store it.
class MessageTask : public WaitingTask {
 protected:
  explicit MessageTask(void **slot) : slot_(slot ? slot : &user_data) {}
  ~MessageTask() override = default;

  enum class Delivery {
    kRefused,  // there was a message before, or the task is aborted; nothing has changed
    kEarly,    // the start that is still to come ends the task
    kEnds      // the caller owns the completion and must call complete()
  };
  Delivery deliver(void *message) {
    return claim() ? claimed_delivery(message) : Delivery::kRefused;
  }
  // Called after claim(). If it returns kEarly, the task may be gone.
  Delivery claimed_delivery(void *message) {
    *slot_ = message;
    return publish() ? Delivery::kEnds : Delivery::kEarly;
  }
  void deliver_and_complete(void *message) {
    const Delivery delivery = deliver(message);
    if (delivery == Delivery::kEnds) complete();
    if (delivery == Delivery::kRefused) release_late();
  }

  void **const slot_;
};

}  // namespace workflow

// Ends when it was counted `target` times.
class WFCounterTask : public workflow::WaitingTask {
 public:
  // May be called from any thread, but not more often than `target` times, because the counter may
  // be gone after the last one. Only count_by_name() may safely come too late.
  virtual void count();

  void set_callback(std::function<void(WFCounterTask *)> callback) {
    callback_ = std::move(callback);
  }

  WFCounterTask(unsigned int target, std::function<void(WFCounterTask *)> callback)
      : WaitingTask(target == 0), remaining_(target), callback_(std::move(callback)) {}

 protected:
  ~WFCounterTask() override = default;
  bool is_known_by_address() const override { return true; }

  SubTask *done() override { return call_back(this, callback_); }

  std::atomic<unsigned int> remaining_;
  std::function<void(WFCounterTask *)> callback_;
};

// Ends when a message was sent to it. Only the first message counts. It is stored in the mailbox:
// the location that was given at the creation, or else `user_data`.
class WFMailboxTask : public workflow::MessageTask {
 public:
  // May be called from any thread. Call it only once for a mailbox without a name, because the task
  // may be gone after that.
  virtual void send(void *msg) { deliver_and_complete(msg); }

  void **get_mailbox() const { return slot_; }

  void set_callback(std::function<void(WFMailboxTask *)> callback) {
    callback_ = std::move(callback);
  }

  // `mailbox` must live until the callback has returned. If it is null, `user_data` is the mailbox.
  WFMailboxTask(void **mailbox, std::function<void(WFMailboxTask *)> callback)
      : MessageTask(mailbox), callback_(std::move(callback)) {}
  explicit WFMailboxTask(std::function<void(WFMailboxTask *)> callback)
      : WFMailboxTask(nullptr, std::move(callback)) {}

 protected:
  ~WFMailboxTask() override = default;
  bool is_known_by_address() const override { return true; }

  SubTask *done() override { return call_back(this, callback_); }

  std::function<void(WFMailboxTask *)> callback_;
};

// Ends with the first message that one of its candidates submits: SUCCESS. If all of them have
// submitted null, it ends with SYS_ERROR/ENOMSG.
//
// A selector lives until its callback has returned and every candidate has submitted, however late.
// This also holds if it is dropped before it was dispatched: submit() then returns 0. If a
// candidate never submits, the selector is freed when the library ends.
class WFSelectorTask : public workflow::WaitingTask {
 public:
  // Each candidate calls this once, from any thread, and must not use the selector afterwards.
  // Returns 1 if `msg` was the first message that is not null. Otherwise it returns 0, and the
  // message still belongs to the caller.
  virtual int submit(void *msg);

  // For the callback: the message, or null if there is none.
  void *get_message() const { return message_; }

  void set_callback(std::function<void(WFSelectorTask *)> callback) {
    callback_ = std::move(callback);
  }

  WFSelectorTask(size_t candidates, std::function<void(WFSelectorTask *)> callback);

 protected:
  ~WFSelectorTask() override = default;

  SubTask *done() override;
  void drop_unstarted() override;

  void *message_ = nullptr;
  std::function<void(WFSelectorTask *)> callback_;

 private:
  void end_without_message();
  // Called when the task itself, or the last of its candidates, does not need the selector any
  // more.
  void unref();

  std::atomic<size_t> candidates_left_;
  std::atomic<int> users_;  // the task is one user, all its candidates together are another
};

// Runs another task when it was both started and signalled: that task takes its place in the
// series. The message of the signal is then in `*msgbuf`, or in the conditional's `user_data`. Only
// the first signal counts.
//
// The conditional owns the task until then. If the conditional is dropped, dismissed or aborted, it
// drops the task. If it is aborted, ended by a scope, or fails without memory, it also cancels its
// series, because what follows may rely on the task.
class WFConditional : public workflow::MessageTask {
 public:
  // May be called from any thread, but only once, because the conditional may be gone after that.
  // It has no effect on guards and on conditionals that a resource pool or a message queue gave
  // out: these wait for a release or a post.
  virtual void signal(void *msg) { deliver_and_complete(msg); }

  // `msgbuf` must live until the task is dispatched. If it is null, `user_data` takes the message.
  WFConditional(SubTask *task, void **msgbuf) : MessageTask(msgbuf), task_(task) {
    assert(task && !series_of(task));
  }
  explicit WFConditional(SubTask *task) : WFConditional(task, nullptr) {}

 protected:
  ~WFConditional() override;
  bool is_known_by_address() const override { return true; }

  SubTask *done() override;

  // Called when the message has arrived but the task will not run, because the series was
  // cancelled.
  virtual void message_unused(void * /*msg*/) {}

  SubTask *task_;
};
