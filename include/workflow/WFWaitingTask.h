#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <functional>
#include <utility>

#include "workflow/WFGenericTask.h"

// Tasks that wait for what other threads bring: counts, messages, signals.
//
// All of them end when both have happened, in either order: the task was dispatched, and what it
// waits for has come. Then the callback runs on a framework thread, mostly the one that brought it.
//
// What still waits when the library stops, and nothing runs any more that could bring something,
// ends with WFT_STATE_ABORTED. Who brings something later finds the task still there, and is
// ignored. So it is with a task that a deadline has ended (WFDeadline.h): one without a name stays
// until what it waited for has come; one with a name is gone, and nobody finds it by that.

namespace workflow {

class WaitingTasks;

// The part that all of them share. Four meet in `parts_`, which is atomic:
//   the start        dispatch(): sets kStarted
//   the bringer      claim(), which only the first wins, then writes what it brings, then publish()
//   the interrupter  a bringer of an error (SubTask::interrupt())
//   the stop         abort(): only of a task that is started and not claimed
// 1. The completion belongs to the second of start and publish(), or to a successful abort().
// 2. While started and not completed, the task is known to the runtime's WaitingTasks; who owns the
//    completion takes it out there. So the stop finds only tasks that live.
// 3. A task that was aborted is never freed before its runtime: a bringer may still touch it.
// 4. One that was interrupted, and may be told by who knows nothing but its address, has two users
//    from then on: the task itself, and the last of its bringers. The second to end frees it.
class WaitingTask : public WFGenericTask {
 protected:
  // `brought`: there is nothing to wait for.
  explicit WaitingTask(bool brought = false) : parts_(brought ? kClaimed | kPublished : 0) {}
  ~WaitingTask() override = default;

  // Any thread that keeps the task alive. False: somebody was first, or the task is aborted.
  bool claim();
  // After claim(). True: the caller owns the completion, and calls complete(); false: the task may
  // be gone.
  bool publish();
  void complete();
  // complete() of each of the tasks; the list is empty then.
  static void complete_all(RunnableList &tasks);
  // On a handler, never in this call.
  void complete_elsewhere();

  // Who was told the task's address, and will not use it again, has found that claim() fails. The
  // task may be gone.
  void came_late();
  // Whether someone may do that.
  virtual bool is_told_by_address() const { return false; }

  // The start.
  void dispatch() override;

  // The task was aborted or interrupted: leaves what it waits in. On the thread that does that, or
  // starts the task.
  virtual void leave_waiting() {}

  bool is_aborted() const { return has(kAborted); }
  bool is_started() const { return has(kStarted); }

  // How done() ends, after the callback: delete_and_next(), but a task that others may still touch
  // is kept.
  SubTask *end_and_next();

  // The callback, and the end.
  template <class T>
  SubTask *call_back(T *task, std::function<void(T *)> &callback) {
    if (callback) callback(task);
    if (is_kept()) callback = nullptr;  // it may hold what others wait to be released
    return end_and_next();
  }

 private:
  friend class WaitingTasks;

  enum : unsigned {
    kStarted = 1,
    kClaimed = 2,
    kPublished = 4,
    kAborted = 8,
    kInterrupted = 16,  // with kClaimed
    kEnded = 32,        // what was interrupted: its callback has returned,
    kLate = 64          // its last bringer has come
  };
  bool has(unsigned part) const { return parts_.load(std::memory_order_acquire) & part; }
  bool is_kept() const { return has(kAborted) || (has(kInterrupted) && is_told_by_address()); }

  void interrupt(Interruption &interruption) override;
  void end_interrupted(int error) override;
  // claim(), with an error to bring.
  bool claim_for(int error);
  // By the owner of the completion.
  void leave_lists();
  void end_part(unsigned part, unsigned other);

  std::atomic<unsigned> parts_;

  // Guarded by the mutex of the list.
  WaitingTask *next_ = nullptr;
  WaitingTask *previous_ = nullptr;
  // The list of WaitingTasks that the task is in, or null. Written by start, then by the owner of
  // the completion.
  void *list_ = nullptr;
};

// Waits for one message, and where to put it.
class MessageTask : public WaitingTask {
 protected:
  explicit MessageTask(void **slot) : slot_(slot ? slot : &user_data) {}
  ~MessageTask() override = default;

  enum class Delivery {
    kRefused,  // there was a message before, or the task is aborted; nothing has changed
    kEarly,    // the coming start ends the task
    kEnds      // the caller owns the completion, and calls complete()
  };
  Delivery deliver(void *message) {
    return claim() ? claimed_delivery(message) : Delivery::kRefused;
  }
  // After claim(). kEarly: the task may be gone.
  Delivery claimed_delivery(void *message) {
    *slot_ = message;
    return publish() ? Delivery::kEnds : Delivery::kEarly;
  }
  void deliver_and_complete(void *message) {
    const Delivery delivery = deliver(message);
    if (delivery == Delivery::kEnds) complete();
    if (delivery == Delivery::kRefused) came_late();
  }

  void **const slot_;
};

}  // namespace workflow

// Ends when it was counted `target` times.
class WFCounterTask : public workflow::WaitingTask {
 public:
  // Any thread. Not more often than the target: the counter may be gone after that; only
  // count_by_name() may come too late.
  virtual void count();

  void set_callback(std::function<void(WFCounterTask *)> callback) {
    callback_ = std::move(callback);
  }

  WFCounterTask(unsigned int target, std::function<void(WFCounterTask *)> callback)
      : WaitingTask(target == 0), remaining_(target), callback_(std::move(callback)) {}

 protected:
  ~WFCounterTask() override = default;
  bool is_told_by_address() const override { return true; }

  SubTask *done() override { return call_back(this, callback_); }

  std::atomic<unsigned int> remaining_;
  std::function<void(WFCounterTask *)> callback_;
};

// Ends when a message was sent to it. The message is then in its mailbox: the one it was created
// with, else `user_data`. The first message counts.
class WFMailboxTask : public workflow::MessageTask {
 public:
  // Any thread. To an anonymous mailbox once: it may be gone after that.
  virtual void send(void *msg) { deliver_and_complete(msg); }

  void **get_mailbox() const { return slot_; }

  void set_callback(std::function<void(WFMailboxTask *)> callback) {
    callback_ = std::move(callback);
  }

  // `mailbox` lives until the callback has returned; null: `user_data` is the mailbox.
  WFMailboxTask(void **mailbox, std::function<void(WFMailboxTask *)> callback)
      : MessageTask(mailbox), callback_(std::move(callback)) {}
  explicit WFMailboxTask(std::function<void(WFMailboxTask *)> callback)
      : WFMailboxTask(nullptr, std::move(callback)) {}

 protected:
  ~WFMailboxTask() override = default;
  bool is_told_by_address() const override { return true; }

  SubTask *done() override { return call_back(this, callback_); }

  std::function<void(WFMailboxTask *)> callback_;
};

// Ends with the first message that one of its candidates submits: SUCCESS; or, when all have
// submitted null, SYS_ERROR/ENOMSG.
//
// It lives until its callback has returned and every candidate has submitted, however late. This
// also holds if it is dropped before it was dispatched: a submit then returns 0. What a candidate
// that never submits leaves behind is freed when the library ends.
class WFSelectorTask : public workflow::WaitingTask {
 public:
  // Once per candidate, from any thread; nothing of the selector may be used by that candidate
  // afterwards. 1 if `msg` was the first that is not null, else 0: then it stays the caller's.
  virtual int submit(void *msg);

  // In the callback: the message; null without one.
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
  // The task, or all of its candidates, need it no more.
  void unref();

  std::atomic<size_t> candidates_left_;
  std::atomic<int> users_;  // the task, and its candidates as one
};

// Runs another task when it was both started and signalled: that task takes its place in the
// series. The message of the signal is then in `*msgbuf`, or in the conditional's `user_data`. The
// first signal counts.
//
// It owns the task until then: dropped, dismissed or aborted, it drops the task. Aborted, ended by
// a deadline, or without memory, it cancels its series, as what follows may rely on the task.
class WFConditional : public workflow::MessageTask {
 public:
  // Any thread; once: the conditional may be gone after that. No effect on guards, and on what a
  // resource pool or a message queue gave out: these wait for a release or a post.
  virtual void signal(void *msg) { deliver_and_complete(msg); }

  // `msgbuf` lives until the task is dispatched; null: `user_data` takes the message.
  WFConditional(SubTask *task, void **msgbuf) : MessageTask(msgbuf), task_(task) {
    assert(task && !series_of(task));
  }
  explicit WFConditional(SubTask *task) : WFConditional(task, nullptr) {}

 protected:
  ~WFConditional() override;
  bool is_told_by_address() const override { return true; }

  SubTask *done() override;

  // The message has come, but the task will not run: the series was cancelled.
  virtual void message_unused(void * /*msg*/) {}

  SubTask *task_;
};
