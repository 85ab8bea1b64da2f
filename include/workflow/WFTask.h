#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cassert>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>

#include "workflow/Duration.h"
#include "workflow/SubTask.h"
#include "workflow/WFComputeTask.h"
#include "workflow/WFConnection.h"
#include "workflow/WFGenericTask.h"
#include "workflow/WFWaitingTask.h"
#include "workflow/Workflow.h"

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
    drop_unstarted();
  }

  void *user_data = nullptr;

  int get_state() const { return state_; }
  int get_error() const { return error_; }
  void set_callback(std::function<void(WFTimerTask *)> callback) {
    callback_ = std::move(callback);
  }

 protected:
  explicit WFTimerTask(std::function<void(WFTimerTask *)> &&callback)
      : callback_(std::move(callback)) {}
  ~WFTimerTask() override = default;

  SubTask *done() override {
    if (callback_) callback_(this);
    return delete_and_next();
  }

  int state_ = WFT_STATE_UNDEFINED;
  int error_ = 0;
  std::function<void(WFTimerTask *)> callback_;
};

// Runs a task again and again: `create` makes it, first when the repeater is dispatched, then each
// time the task, and what it pushed to the front of the series, is done. Null ends the repeater:
// its callback runs, SUCCESS. It also ends when its series is cancelled meanwhile, with
// SYS_ERROR/ECANCELED, or the deadline around it passes, with SYS_ERROR/ETIMEDOUT, or when the
// library stops, with ABORTED.
//
// Any number of repeats takes constant stack and memory.
class WFRepeaterTask : public WFGenericTask {
 public:
  // In `create` or before start: what to call from now on.
  void set_create(std::function<SubTask *(WFRepeaterTask *)> create) {
    next_create_ = std::move(create);
  }
  void set_callback(std::function<void(WFRepeaterTask *)> callback) {
    callback_ = std::move(callback);
  }

  WFRepeaterTask(std::function<SubTask *(WFRepeaterTask *)> create,
                 std::function<void(WFRepeaterTask *)> callback)
      : create_(std::move(create)), callback_(std::move(callback)) {}

 protected:
  ~WFRepeaterTask() override = default;

  SubTask *done() override;
  void drop_unstarted() override;

  std::function<SubTask *(WFRepeaterTask *)> create_;
  std::function<void(WFRepeaterTask *)> callback_;

 private:
  SubTask *create();

  // Takes the place of create_ before the next call: one that sets it may be running.
  std::optional<std::function<SubTask *(WFRepeaterTask *)>> next_create_;
  bool began_ = false;
};

// A task whose inside is a series of its own; done when that has ended. Cancelling the series that
// the module is in does not cancel its inside.
class WFModuleTask : public ParallelTask {
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

  // Its inside: may be extended until its last task is done. It lives until the module's callback
  // has returned.
  SeriesWork *sub_series() { return series_; }
  const SeriesWork *sub_series() const { return series_; }

  void set_callback(std::function<void(const WFModuleTask *)> callback) {
    callback_ = std::move(callback);
  }

  // `last`: dispatched after everything else of the inside; null: none.
  WFModuleTask(SubTask *first, SubTask *last, std::function<void(const WFModuleTask *)> callback);

  void dispatch() override;

 protected:
  ~WFModuleTask() override;

  SubTask *done() override;

  std::function<void(const WFModuleTask *)> callback_;

 private:
  SeriesWork *const series_;
};

// A request and its response. On the server the request has arrived when the task is given to
// `process`; the response is sent when the request's series has no other task left.
template <class REQ, class RESP>
class WFNetworkTask : public SubTask {
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

  REQ *get_req() { return &req_; }
  const REQ *get_req() const { return &req_; }
  RESP *get_resp() { return &resp_; }
  const RESP *get_resp() const { return &resp_; }

  int get_state() const { return state_; }
  int get_error() const { return error_; }
  int get_timeout_reason() const { return timeout_reason_; }

  // How many exchanges the connection carried before this one.
  long long get_task_seq() const { return task_seq_; }

  // 0, or -1 with errno: ENOTCONN without a connection, ENOBUFS when `*addrlen` is too small.
  virtual int get_peer_addr(struct sockaddr *addr, socklen_t *addrlen) const = 0;

  // Null without a connection.
  virtual WFConnection *get_connection() const = 0;

  // In ms; -1: unlimited. On the server: how long sending may take without progress, and how long
  // the connection may then stay idle (0 closes it after the reply). Set before the reply.
  void set_send_timeout(int timeout) { send_timeout_ = timeout; }
  void set_keep_alive(int timeout) { keep_alive_timeout_ = timeout; }
  // For clients.
  void set_receive_timeout(int timeout) { receive_timeout_ = timeout; }
  void set_watch_timeout(int timeout) { watch_timeout_ = timeout; }
  // The same as std::chrono::durations; a negative one: unlimited.
  void set_send_timeout(workflow::Duration timeout) { send_timeout_ = timeout.timeout_ms(); }
  void set_keep_alive(workflow::Duration timeout) { keep_alive_timeout_ = timeout.timeout_ms(); }
  void set_receive_timeout(workflow::Duration timeout) { receive_timeout_ = timeout.timeout_ms(); }
  void set_watch_timeout(workflow::Duration timeout) { watch_timeout_ = timeout.timeout_ms(); }

  // Server side, before the reply: nothing is sent and the connection is closed instead. Of
  // datagrams: nothing is sent.
  void noreply() {
    if (state_ == WFT_STATE_TOREPLY) state_ = WFT_STATE_NOREPLY;
  }

  // Server side, before the reply: sends bytes ahead of it, without waiting. Returns `size` (what
  // the socket does not take at once is buffered), or -1 with errno: ENOBUFS when more than 1 MiB
  // would be. Over UDP it is a datagram of its own, and fails with EAGAIN when there is no room.
  virtual int push(const void *buf, size_t size) = 0;

  // Server side: the peer has closed or half-closed the connection, or reset it; never known of
  // datagrams. Over TLS as well: a close_notify without an end of the connection beneath does not
  // count, as nothing is read while a request is processed. Any thread.
  virtual bool closed() const = 0;

  // Server side, in the series of the request and before its reply: `hook` is called when closed()
  // becomes true; soon, if it is. Once, on a thread of the library, beside the tasks of the series.
  // The reply waits for a hook that runs, so that task and series live meanwhile; the hook must not
  // wait for them. Another hook takes the place of one that was not called. Not called any more
  // when the reply is sent. No effect on clients.
  virtual void on_closed(std::function<void()> /*hook*/) {}

  // Server side, as above: when closed() becomes true, the timers that the series waits for, also
  // in parallels, modules and graphs inside it, end at once with ECANCELED, and so do those that it
  // starts later. The series goes on. No effect on clients.
  virtual void cancel_timers_on_closed() {}

  void set_callback(std::function<void(WFNetworkTask<REQ, RESP> *)> callback) {
    callback_ = std::move(callback);
  }
  // For clients: called when there is a connection, before the request is completed and sent on it;
  // again for each further try. It runs on a poller's thread, on another thread of the library, or,
  // when a kept connection is used, within start() on the thread that starts the task. It must not
  // wait, as it may hold up timers and connections of others, and must not end the process.
  void set_prepare(std::function<void(WFNetworkTask<REQ, RESP> *)> prepare) {
    prepare_ = std::move(prepare);
  }

 protected:
  WFNetworkTask() = default;
  ~WFNetworkTask() override = default;

  SubTask *done() override {
    if (callback_) callback_(this);
    return delete_and_next();
  }

  static constexpr int kTimeoutNotSet = -2;

  int state_ = WFT_STATE_UNDEFINED;
  int error_ = 0;
  int timeout_reason_ = TOR_NOT_TIMEOUT;
  int send_timeout_ = kTimeoutNotSet;
  int receive_timeout_ = kTimeoutNotSet;
  int keep_alive_timeout_ = kTimeoutNotSet;
  int watch_timeout_ = kTimeoutNotSet;
  long long task_seq_ = 0;
  REQ req_;
  RESP resp_;
  std::function<void(WFNetworkTask<REQ, RESP> *)> callback_;
  std::function<void(WFNetworkTask<REQ, RESP> *)> prepare_;
};
