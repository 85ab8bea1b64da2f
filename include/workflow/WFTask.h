#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cassert>
#include <cstddef>
#include <functional>
#include <utility>

#include "workflow/SubTask.h"
#include "workflow/WFConnection.h"
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

// What a network task that ended with ETIMEDOUT was waiting for.
enum { TOR_NOT_TIMEOUT = 0, TOR_WAIT_TIMEOUT, TOR_CONNECT_TIMEOUT, TOR_TRANSMIT_TIMEOUT };

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
  // gone. The last count of a started counter runs the callback, mostly in this call when it is
  // made on a framework thread.
  virtual void count() { count_down(); }

  void set_callback(std::function<void(WFCounterTask *)> callback) {
    callback_ = std::move(callback);
  }

  WFCounterTask(unsigned int target, std::function<void(WFCounterTask *)> callback)
      : pending_(static_cast<size_t>(target) + 1), callback_(std::move(callback)) {}

 protected:
  ~WFCounterTask() override = default;

  void dispatch() override { count_down(); }
  SubTask *done() override {
    if (callback_) callback_(this);
    return delete_and_next();
  }

  // What is left to happen: the counts, and the dispatch as one more.
  std::atomic<size_t> pending_;
  std::function<void(WFCounterTask *)> callback_;

 private:
  void count_down() {
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) subtask_done();
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
  void set_callback(std::function<void(WFGoTask *)> callback) { callback_ = std::move(callback); }

 protected:
  WFGoTask() = default;
  ~WFGoTask() override = default;

  SubTask *done() override {
    if (callback_) callback_(this);
    return delete_and_next();
  }

  int state_ = WFT_STATE_UNDEFINED;
  int error_ = 0;
  std::function<void(WFGoTask *)> callback_;
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
    delete this;
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

  // Server side, before the reply: nothing is sent and the connection is closed instead.
  void noreply() {
    if (state_ == WFT_STATE_TOREPLY) state_ = WFT_STATE_NOREPLY;
  }

  // Server side, before the reply: sends bytes ahead of it, without waiting. Returns `size` (what
  // the socket does not take at once is buffered), or -1 with errno: ENOBUFS when more than 1 MiB
  // would be.
  virtual int push(const void *buf, size_t size) = 0;

  // Server side: the peer has closed or half-closed the connection, or reset it. Any thread.
  virtual bool closed() const = 0;

  void set_callback(std::function<void(WFNetworkTask<REQ, RESP> *)> callback) {
    callback_ = std::move(callback);
  }
  // For clients: called before the request is sent.
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
