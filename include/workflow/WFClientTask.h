#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <utility>

#include "workflow/ProtocolMessage.h"
#include "workflow/WFTask.h"
#include "workflow/WFTaskError.h"
#include "workflow/detail/ClientExchange.h"

// What a protocol adds to its client tasks. Specialise it for messages that need something else.
template <class REQ, class RESP>
struct WFClientProtocol {
  // How long a connection is kept idle for the next task, in ms, if the user does not say. By
  // default it is not kept, because only the protocol's author knows whether a connection has a
  // state between two requests.
  static constexpr int kKeepAlive = 0;

  // Completes the request before it is sent to the target, and prepares the response to receive.
  // Returns false with errno if the request cannot be sent.
  static bool prepare(const workflow::ClientTarget &, REQ *, RESP *, bool /*keep_alive*/) {
    return true;
  }
  // After a whole response: whether the connection may carry another request.
  static bool leaves_connection_usable(const REQ *, const RESP *) { return true; }
  // Whether the request may be sent twice.
  static bool is_repeatable(const REQ *) { return true; }
};

// A request to a peer and its response, from the client's side. Its states in the callback are
//   SUCCESS
//   SYS_ERROR   ETIMEDOUT with get_timeout_reason(), ECONNREFUSED, ECONNRESET, EBADMSG if the bytes
//               are not a response, EMSGSIZE if the response is too large, ...
//   SSL_ERROR   the OpenSSL code, or the negated X509_V_ERR_* of a refused certificate
//   DNS_ERROR   EAI_*
//   TASK_ERROR  WFT_ERR_*
//   ABORTED     the library stopped
// If the scope around the task ends (WFScope.h), the task ends with SYS_ERROR and the error of the
// scope, without a timeout reason: ETIMEDOUT for a deadline. The task then gives up what it waits
// for, and closes its connection, if it has one.
//
// (derivable) The user may call its functions before dispatch or in the callbacks.
template <class REQ, class RESP>
class WFClientTask : public WFNetworkTask<REQ, RESP>, public workflow::ClientExchange {
 public:
  using Task = WFNetworkTask<REQ, RESP>;
  using Protocol = WFClientProtocol<REQ, RESP>;

  WFClientTask(const workflow::ClientTarget &target, int retry_max,
               std::function<void(Task *)> callback)
      : target_(target), target_error_(target.error), retry_max_(retry_max) {
    this->keep_alive_timeout_ = Protocol::kKeepAlive;
    this->callback_ = std::move(callback);
  }
  // A task without a usable target. As soon as it is started it ends TASK_ERROR with that error, or
  // SYS_ERROR if the error is below 1000.
  WFClientTask(int target_error, std::function<void(Task *)> callback)
      : WFClientTask(workflow::ClientTarget(), 0, std::move(callback)) {
    target_error_ = target_error;
  }

  void dispatch() override {
    const bool no_target = target_error_ != 0;
    const int refused = no_target ? target_error_ : enter();
    if (refused != 0) {
      const bool is_errno = !no_target || refused < 1000;
      this->state = is_errno ? WFT_STATE_SYS_ERROR : WFT_STATE_TASK_ERROR;
      this->error = refused;
      this->timeout_reason_ = TOR_NOT_TIMEOUT;
      this->subtask_done();
      return;
    }
    begin(target_, retry_max_);
  }

  int get_peer_addr(struct sockaddr *addr, socklen_t *addrlen) const override {
    return peer_addr(addr, addrlen);
  }
  WFConnection *get_connection() const override { return user_connection(); }
  int push(const void *, size_t) override {
    errno = ENOTSUP;
    return -1;
  }
  bool closed() const override { return false; }

 protected:
  ~WFClientTask() override = default;

  // Returns whether the task goes on with another exchange instead of ending, for instance to
  // follow a redirect. Called on a thread of the library.
  virtual bool goes_on() { return false; }

  SubTask *done() override {
    if (goes_on()) return this;
    return end_task();
  }
  // The last part of done(), when the task does not go on.
  SubTask *end_task() { return Task::done(); }

  protocol::ProtocolMessage *next_request() override {
    // No byte of the response has arrived here: otherwise there would be no further try.
    if (this->prepare_) this->prepare_(this);
    const bool keep_alive = this->keep_alive_timeout_ != 0;
    return Protocol::prepare(target_, &this->req_, &this->resp_, keep_alive) ? &this->req_
                                                                             : nullptr;
  }
  protocol::ProtocolMessage *next_response() override {
    if (this->resp_.get_size_limit() == SIZE_MAX) {
      this->resp_.set_size_limit(target_.params.response_size_limit);
    }
    return &this->resp_;
  }
  workflow::ClientTimes times() const override {
    workflow::ClientTimes times;
    if (this->send_timeout_ >= -1) times.send = this->send_timeout_;
    if (this->receive_timeout_ >= -1) times.receive = this->receive_timeout_;
    if (this->watch_timeout_ >= -1) times.first_byte = this->watch_timeout_;
    times.keep_alive = this->keep_alive_timeout_;
    return times;
  }
  bool completes_at_end_of_input() override { return this->resp_.end_of_input() == 1; }
  bool leaves_connection_usable() override {
    return Protocol::leaves_connection_usable(&this->req_, &this->resp_);
  }
  bool is_repeatable() override { return Protocol::is_repeatable(&this->req_); }

  workflow::Runnable *ended(int end_state, int end_error, int timeout_reason) override {
    this->state = end_state;
    this->error = end_error;
    this->timeout_reason_ = timeout_reason;
    this->task_seq_ = sequence();
    return this->leave_scope() ? this : nullptr;
  }
  int end_reason() const override { return this->cancel_reason(); }

  workflow::ClientTarget target_;
  int target_error_;
  const int retry_max_;

 private:
  // Returns 0, or an errno value: the scope has ended, or there is no memory.
  int enter() {
    if (!this->has_scope()) return 0;
    return allow_cancel() ? this->enter_scope() : ENOMEM;
  }
  void on_cancel(int reason) override { this->cancel(reason); }
};
