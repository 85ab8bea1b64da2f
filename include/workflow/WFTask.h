#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cassert>
#include <cstddef>
#include <functional>
#include <utility>

#include "workflow/SubTask.h"
#include "workflow/Workflow.h"

// How a task ended. get_error() then holds, for
//   SYS_ERROR: an errno value;  SSL_ERROR: an OpenSSL code;  DNS_ERROR: an EAI_ code;
//   TASK_ERROR: a WFT_ERR_ code (WFTaskError.h);  ABORTED: 0 or why.
enum {
  WFT_STATE_UNDEFINED = -1,
  WFT_STATE_SUCCESS = 0,
  WFT_STATE_SYS_ERROR = 1,
  WFT_STATE_ABORTED = 2,   // the library was shutting down
  WFT_STATE_TOREPLY = 3,   // server tasks: before the reply was sent
  WFT_STATE_NOREPLY = 4,   // server tasks: ended without a reply
  WFT_STATE_SSL_ERROR = 65,
  WFT_STATE_DNS_ERROR = 66,
  WFT_STATE_TASK_ERROR = 67
};

// A delay. Ends SUCCESS at its deadline, SYS_ERROR with ECANCELED (cancelled by name), EINVAL
// (nanoseconds out of range) or ENOMEM, or ABORTED (the library stops).
class WFTimerTask : public SubTask {
 public:
  void start() {
    assert(!series_of(this));
    start_alone();
  }
  void dismiss() {
    assert(!series_of(this));
    delete this;
  }

  void *user_data = nullptr;

  int get_state() const { return state_; }
  int get_error() const { return error_; }
  void set_callback(std::function<void (WFTimerTask *)> callback) {
    callback_ = std::move(callback);
  }

 protected:
  explicit WFTimerTask(std::function<void (WFTimerTask *)>&& callback)
      : callback_(std::move(callback)) {}
  ~WFTimerTask() override = default;

  SubTask *done() override {
    if (callback_)
      callback_(this);
    return delete_and_next();
  }

  int state_ = WFT_STATE_UNDEFINED;
  int error_ = 0;
  std::function<void (WFTimerTask *)> callback_;
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
    delete this;
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

// Ends when it was counted `target` times, before or after it was started.
class WFCounterTask : public WFGenericTask {
 public:
  // Any thread. An anonymous counter must not be counted more often than its target: it may be
  // gone. The last count of a started counter runs the callback, in this call when it is made on a
  // framework thread.
  virtual void count() { count_down(); }

  void set_callback(std::function<void (WFCounterTask *)> callback) {
    callback_ = std::move(callback);
  }

  WFCounterTask(unsigned int target, std::function<void (WFCounterTask *)> callback)
      : pending_(static_cast<size_t>(target) + 1), callback_(std::move(callback)) {}

 protected:
  ~WFCounterTask() override = default;

  void dispatch() override { count_down(); }
  SubTask *done() override {
    if (callback_)
      callback_(this);
    return delete_and_next();
  }

  // What is left to happen: the counts, and the dispatch as one more.
  std::atomic<size_t> pending_;
  std::function<void (WFCounterTask *)> callback_;

 private:
  void count_down() {
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      subtask_done();
  }
};

// A function to run on the computing threads. Ends SUCCESS after it returned, or ABORTED if the
// library stopped before it began. The callback runs on the computing thread.
class WFGoTask : public SubTask {
 public:
  void start() {
    assert(!series_of(this));
    start_alone();
  }
  void dismiss() {
    assert(!series_of(this));
    delete this;
  }

  void *user_data = nullptr;

  int get_state() const { return state_; }
  int get_error() const { return error_; }
  void set_callback(std::function<void (WFGoTask *)> callback) { callback_ = std::move(callback); }

 protected:
  WFGoTask() = default;
  ~WFGoTask() override = default;

  SubTask *done() override {
    if (callback_)
      callback_(this);
    return delete_and_next();
  }

  int state_ = WFT_STATE_UNDEFINED;
  int error_ = 0;
  std::function<void (WFGoTask *)> callback_;
};
