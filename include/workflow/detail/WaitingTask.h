#pragma once

#include <atomic>
#include <functional>

#include "workflow/WFGenericTask.h"

namespace workflow {

class WaitingTasks;

// The base of all tasks that wait for another thread: counters, mailboxes, selectors and
// conditionals. docs/task-internals.md explains the rules and the races. Four parties meet in the
// atomic `parts_`:
//   the dispatch     dispatch() sets kStarted.
//   the sender       calls claim(), which only the first caller wins. Then it writes what it
//                    brings, and calls publish().
//   the canceller    acts as a sender of an error: on_cancel(), when the scope of the task has
//                    ended.
//   the stop         WaitingTasks::abort() ends only tasks that are started and not claimed.
//
// 1. The second of dispatch() and publish() owns the completion, unless the stop has aborted the
//    task: then the stop owns it.
// 2. While it is started and not completed, the task is in the runtime's WaitingTasks; the owner of
//    the completion removes it. So the stop finds only tasks that are alive.
// 3. A task that was aborted is never freed before its runtime, because a sender may still touch
//    it.
// 4. A task that was cancelled, and whose senders may know its address, has two users from then
//    on: the task itself, and the last of its senders. The second of them to end frees it.
class WaitingTask : public WFGenericTask {
 protected:
  // If `brought` is true, there is nothing to wait for, as if it had been brought already.
  explicit WaitingTask(bool brought = false) : parts_(brought ? kClaimed | kPublished : 0) {}
  ~WaitingTask() override = default;

  // Any thread that keeps the task alive may call this. Returns false if another claim came first,
  // or if the task is aborted.
  bool claim();
  // Called after claim(). If it returns true, the caller owns the completion and must call
  // complete(). If it returns false, the task may be gone.
  bool publish();

  enum class Arrival {
    kRefused,  // claim() would have returned false
    kEarly,    // the dispatch that is still to come ends the task, which may be gone
    kEnds      // the caller owns the completion and must call complete()
  };
  // Does what claim() and publish() do, in one step, for a sender that has nothing to write between
  // them.
  Arrival claim_and_publish();
  void complete();
  // Calls complete() for each of the tasks and leaves the list empty.
  static void complete_all(RunnableList &tasks);
  // Completes the task on a handler thread, never inside this call.
  void complete_elsewhere();
  // Appends the task to the list, unless a canceller still uses the task and is going to post it.
  // Whoever has the list posts it to the handlers.
  void complete_elsewhere(RunnableList &posted);

  // The last use of the task by a sender that knows only its address and whose claim() failed. The
  // task may be gone afterwards.
  void release_late();
  // Whether senders may know the task by its address alone, and so call release_late().
  virtual bool is_known_by_address() const { return false; }

  void dispatch() override;

  // Called when the task was aborted or cancelled: leaves the queue or name in which it waits. Runs
  // on the thread that aborts, cancels or starts the task.
  virtual void leave_waiting() {}

  bool is_aborted() const { return has(kAborted); }
  // Whether claim() would fail.
  bool is_claimed() const { return has(kClaimed | kAborted); }
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
    kEnded = 32,      // the callback of a task that is parked has returned
    kLate = 64        // the last sender of a cancelled task has come
  };
  bool has(unsigned part) const { return parts_.load(std::memory_order_acquire) & part; }
  bool is_kept() const { return has(kAborted) || (has(kCancelled) && is_known_by_address()); }

  void on_cancel(int reason) override;
  // Does what claim() does, for a caller that brings an error.
  bool claim_for(int error);
  // Called by the owner of the completion. Returns what leave_scope() does.
  bool leave_lists();
  void end_part(unsigned part, unsigned other);

  // Changes are acq_rel and loads acquire. So the owner of the completion sees what the dispatch
  // did before kStarted and what the sender brought before kPublished, and whoever frees the task
  // sees what its other user did. There are two exceptions. A load that only prepares a
  // compare-and-swap is relaxed. And a dispatch that finds kPublished loads and stores, both
  // relaxed, instead of a read-modify-write: no part is lost, because no other thread sets one that
  // is not set already. A late claim() sets kClaimed, which is set; the stop and on_cancel() see it
  // and do nothing; kEnded and kLate need kCancelled, and a task that was not dispatched has not
  // been in a scope.
  std::atomic<unsigned> parts_;

  // Guarded by the mutex of the list.
  WaitingTask *next_ = nullptr;
  WaitingTask *previous_ = nullptr;
  // The list of WaitingTasks that the task is in, or null. Written by dispatch(), then by the owner
  // of the completion.
  void *list_ = nullptr;
};

// Waits for one message, and knows where to store it.
class MessageTask : public WaitingTask {
 protected:
  explicit MessageTask(void **slot) : slot_(slot ? slot : &user_data) {}
  ~MessageTask() override = default;

  enum class Delivery {
    kRefused,  // there was a message before, or the task is aborted or cancelled; nothing has
               // changed
    kEarly,    // the dispatch that is still to come ends the task
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
