#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <utility>

#include "workflow/ClientExchange.h"
#include "workflow/ProtocolMessage.h"
#include "workflow/WFTask.h"
#include "workflow/WFTaskError.h"

namespace workflow {

// Has an interruption end the exchange early.
void interrupt_exchange(Interruption &interruption, ClientExchange &exchange);

}  // namespace workflow

// What a protocol adds to its client tasks. Specialise it for messages that differ.
template <class REQ, class RESP>
struct WFClientProtocol {
  // How long a connection stays idle for the next task, in ms, where the user does not say: what a
  // connection means between two requests only the protocol's author knows.
  static constexpr int kKeepAlive = 0;

  // Completes the request before it is sent to that target, and readies the response for it. False
  // with errno: it cannot be sent.
  static bool prepare(const workflow::ClientTarget &, REQ *, RESP *, bool /*keep_alive*/) {
    return true;
  }
  // After a whole response: may the connection carry another request?
  static bool leaves_connection_usable(const REQ *, const RESP *) { return true; }
  // May it be sent twice?
  static bool is_repeatable(const REQ *) { return true; }
};

// A request to a peer and its response, from the client's side. States beside those of a callback
// that ran: SUCCESS, SYS_ERROR (ETIMEDOUT with get_timeout_reason(), ECONNREFUSED, ECONNRESET,
// EBADMSG for a response that is none, EMSGSIZE for one that is too large, ...), SSL_ERROR (the
// OpenSSL code, or the X509_V_ERR_* of a refused certificate, negated), DNS_ERROR (EAI_*),
// TASK_ERROR (WFT_ERR_*), ABORTED. Where a deadline around it passes (WFDeadline.h) it is SYS_ERROR
// with ETIMEDOUT, and no timeout reason: whatever it waits for is given up, and the connection, if
// it has one, is closed.
//
// (derivable) The user's calls come before dispatch or in the callbacks.
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
  // One that cannot go anywhere: it ends TASK_ERROR with that error as soon as it is started, or
  // SYS_ERROR for one below 1000.
  WFClientTask(int target_error, std::function<void(Task *)> callback)
      : WFClientTask(workflow::ClientTarget(), 0, std::move(callback)) {
    target_error_ = target_error;
  }

  void dispatch() override {
    const int refused = target_error_ != 0 ? target_error_ : allow_interrupt();
    if (refused != 0) {
      this->state_ = refused < 1000 ? WFT_STATE_SYS_ERROR : WFT_STATE_TASK_ERROR;
      this->error_ = refused;
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

  // Whether the task goes on, with another exchange, instead of ending: a redirect, for instance.
  // On a framework thread.
  virtual bool goes_on() { return false; }

  SubTask *done() override {
    if (goes_on()) return this;
    return end_task();
  }
  // The end of done(): nothing goes on.
  SubTask *end_task() { return Task::done(); }

  protocol::ProtocolMessage *next_request() override {
    // Nothing has come for the response yet: then there would be no further try.
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

  workflow::Runnable *ended(int state, int error, int timeout_reason) override {
    const int interrupted = this->leave_scope();
    this->state_ = interrupted != 0 ? int{WFT_STATE_SYS_ERROR} : state;
    this->error_ = interrupted != 0 ? interrupted : error;
    this->timeout_reason_ = interrupted != 0 ? int{TOR_NOT_TIMEOUT} : timeout_reason;
    this->task_seq_ = sequence();
    return this;
  }

  workflow::ClientTarget target_;
  int target_error_;
  const int retry_max_;

 private:
  // Not 0: there is no time left, or no memory.
  int allow_interrupt() {
    if (!this->has_scope()) return 0;
    return allow_early_end() ? this->enter_scope() : ENOMEM;
  }
  void interrupt(workflow::Interruption &interruption) override {
    workflow::interrupt_exchange(interruption, *this);
  }
};
