#pragma once

#include <sys/socket.h>

#include <functional>
#include <optional>
#include <utility>

#include "workflow/WFComputeTask.h"
#include "workflow/WFConnection.h"
#include "workflow/WFGenericTask.h"
#include "workflow/WFScope.h"
#include "workflow/WFTimerTask.h"
#include "workflow/WFWaitingTask.h"
#include "workflow/Workflow.h"
#include "workflow/detail/Duration.h"
#include "workflow/detail/TaskBase.h"

// Runs a task again and again. `create` creates the task. It is called when the repeater is
// dispatched, and again each time the task, and what the task pushed to the front of the series, is
// done. If it returns null, the repeater ends: its callback runs with SUCCESS. The repeater also
// ends with SYS_ERROR/ECANCELED if its series is cancelled meanwhile, with SYS_ERROR and the error
// of the scope if the scope around it ends (WFScope.h), and with ABORTED if the library stops.
//
// Any number of repeats takes constant stack and memory.
class WFRepeaterTask : public workflow::TaskWithCallback<WFRepeaterTask, WFGenericTask> {
 public:
  // Sets the function to call from now on. Allowed inside `create`, and before the start.
  void set_create(std::function<SubTask *(WFRepeaterTask *)> create) {
    next_create_ = std::move(create);
  }

  WFRepeaterTask(std::function<SubTask *(WFRepeaterTask *)> create,
                 std::function<void(WFRepeaterTask *)> callback)
      : TaskWithCallback(std::move(callback)), create_(std::move(create)) {}

 protected:
  ~WFRepeaterTask() override = default;

  SubTask *done() override;
  void drop_unstarted() override;
  ComesBack comes_back() const override { return ComesBack::kYes; }

  std::function<SubTask *(WFRepeaterTask *)> create_;

 private:
  SubTask *create();

  // Replaces create_ before its next call, not at once, because the call that sets it may be
  // running.
  std::optional<std::function<SubTask *(WFRepeaterTask *)>> next_create_;
  bool began_ = false;
};

// A task that contains a series of its own, and is done when that series has ended. Its state is
// always SUCCESS. Cancelling the series that contains the module does not cancel the inner series.
class WFModuleTask
    : public workflow::TaskWithCallback<const WFModuleTask, workflow::TaskBase<ParallelTask>> {
 public:
  // The inner series. It may be extended until its last task is done, and lives until the module's
  // callback has returned.
  SeriesWork *sub_series() { return series_; }
  const SeriesWork *sub_series() const { return series_; }

  // `last` is dispatched after everything else in the inner series. It may be null.
  WFModuleTask(SubTask *first, SubTask *last, std::function<void(const WFModuleTask *)> callback);

  void dispatch() override;

 protected:
  ~WFModuleTask() override;

 private:
  SeriesWork *const series_;
};

// A request and its response. On the server, the request has arrived when `process` gets the task,
// and the response is sent when the series of the request has no other task left.
template <class REQ, class RESP>
class WFNetworkTask : public workflow::TaskWithCallback<WFNetworkTask<REQ, RESP>> {
 public:
  REQ *get_req() { return &req_; }
  const REQ *get_req() const { return &req_; }
  RESP *get_resp() { return &resp_; }
  const RESP *get_resp() const { return &resp_; }

  int get_timeout_reason() const { return timeout_reason_; }

  // Returns the number of exchanges that the connection carried before this one.
  long long get_task_seq() const { return task_seq_; }

  // Returns 0, or -1 with errno: ENOTCONN without a connection, ENOBUFS if `*addrlen` is too small.
  virtual int get_peer_addr(struct sockaddr *addr, socklen_t *addrlen) const = 0;

  // Returns null if there is no connection.
  virtual WFConnection *get_connection() const = 0;

  // Times are in milliseconds, or any std::chrono::duration. A negative time means unlimited. On
  // the server, set these two before the reply; on a client, before the start.
  //
  // set_send_timeout(): on the server, how long sending the reply may go without progress; on a
  // client, the time for sending the whole request, by default unlimited.
  // set_keep_alive(): how long the connection may then stay idle, waiting for the next request on
  // the server, or for the next task on a client. With 0 it is closed.
  void set_send_timeout(int timeout) { send_timeout_ = workflow::Duration::timeout_ms(timeout); }
  void set_send_timeout(workflow::Duration timeout) { send_timeout_ = timeout.timeout_ms(); }
  void set_keep_alive(int timeout) {
    keep_alive_timeout_ = workflow::Duration::timeout_ms(timeout);
  }
  void set_keep_alive(workflow::Duration timeout) { keep_alive_timeout_ = timeout.timeout_ms(); }
  // For clients only, before the start. After either time the task ends with SYS_ERROR/ETIMEDOUT.
  // For chunked tasks see WFHttpChunkedTask.
  //
  // set_receive_timeout(): the time for the whole response, from the end of sending. By default it
  // is unlimited.
  // set_watch_timeout(): the time until the first byte of the response. The default is the
  // endpoint's response_timeout.
  void set_receive_timeout(int timeout) {
    receive_timeout_ = workflow::Duration::timeout_ms(timeout);
  }
  void set_receive_timeout(workflow::Duration timeout) { receive_timeout_ = timeout.timeout_ms(); }
  void set_watch_timeout(int timeout) { watch_timeout_ = workflow::Duration::timeout_ms(timeout); }
  void set_watch_timeout(workflow::Duration timeout) { watch_timeout_ = timeout.timeout_ms(); }

  // Server side, before the reply: makes the server send nothing and close the connection instead.
  // With datagrams, nothing is sent.
  void noreply() {
    if (this->state == WFT_STATE_TOREPLY) this->state = WFT_STATE_NOREPLY;
  }

  // Server side, before the reply: sends bytes ahead of the reply without waiting. Returns `size`;
  // bytes that the socket does not take at once are buffered. Returns -1 with errno: ENOBUFS if
  // more than 1 MiB would be buffered, EINVAL if a streamed reply has begun, ENOTCONN if the
  // connection is gone or the reply was sent, or the error of the socket. Over UDP the bytes are a
  // datagram of their own, and the call fails with EAGAIN when there is no room. Clients: fails
  // with ENOTSUP.
  virtual int push(const void *buf, size_t size) = 0;

  // Server side: whether the peer has closed, half-closed or reset the connection. Never true for
  // datagrams. Over TLS, too, only the end of the connection beneath counts: a close_notify without
  // it does not, because nothing is read while a request is processed. Any thread may call this.
  virtual bool closed() const = 0;

  // Server side, in the series of the request and before its reply: `hook` is called when closed()
  // becomes true, or soon if it is true already. It is called at most once, on a thread of the
  // library, concurrently with the tasks of the series. The reply waits for a running hook, so the
  // task and the series live meanwhile; the hook must not wait for them. A new hook replaces one
  // that was not called yet; a null one only does that. The hook is not called any more once the
  // reply is sent. No effect on clients.
  virtual void on_closed(std::function<void()> /*hook*/) {}

  // Server side, in the series of the request and before its reply: when closed() becomes true, the
  // scope of the request ends with ECANCELED. So everything that the series waits for ends at once,
  // of whatever kind, and so does what it would wait for later. The series goes on. No effect on
  // clients.
  virtual void cancel_on_closed() {}

  // Like cancel_on_closed(), but ends only the timers of the series, and the scopes inside it with
  // everything in them. This includes timers in parallels, modules and graphs inside the series.
  // Everything else goes on waiting.
  virtual void cancel_timers_on_closed() {}

  // Server side: the scope of the request, in which its series runs (WFScope.h). It ends with
  // ECANCELED when a bounded stop of the server reaches its limit, or when the client leaves after
  // cancel_on_closed(). Refers to no scope for clients.
  virtual WFScope scope() const { return WFScope(); }

  // Server side: the scope of the request ends with ETIMEDOUT at that time. Returns as
  // WFScope::set_deadline() does; false with EINVAL for clients.
  bool set_deadline(const WFTimerDue &due) { return scope().set_deadline(due); }

  // For clients: `prepare` is called when there is a connection, before the request is completed
  // and sent on it, and again for each further try. It runs on a poller's thread or on another
  // thread of the library; if a kept connection is used, it runs within start(), on the thread that
  // starts the task. It must not wait, because it may delay timers and connections of others, and
  // it must not end the process.
  void set_prepare(std::function<void(WFNetworkTask<REQ, RESP> *)> prepare) {
    prepare_ = std::move(prepare);
  }

 protected:
  WFNetworkTask() = default;
  ~WFNetworkTask() override = default;

  static constexpr int kTimeoutNotSet = -2;

  int timeout_reason_ = TOR_NOT_TIMEOUT;
  int send_timeout_ = kTimeoutNotSet;
  int receive_timeout_ = kTimeoutNotSet;
  int keep_alive_timeout_ = kTimeoutNotSet;
  int watch_timeout_ = kTimeoutNotSet;
  long long task_seq_ = 0;
  REQ req_;
  RESP resp_;
  std::function<void(WFNetworkTask<REQ, RESP> *)> prepare_;
};
