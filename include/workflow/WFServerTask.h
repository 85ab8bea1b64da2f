#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "workflow/WFServerParams.h"
#include "workflow/WFTask.h"
#include "workflow/detail/ServerExchange.h"

// What a protocol adds to its server tasks. Specialise it for messages whose requests need limits
// or whose responses must be completed before they are sent.
template <class REQ, class RESP>
struct WFServerProtocol {
  // The facts about the request on which the reply depends. They are stored before the user gets
  // the request, because the user may move its content away.
  struct RequestFacts {};
  static RequestFacts facts_of(const REQ *) { return RequestFacts(); }

  static void prepare_request(REQ *request, const WFServerParams &params) {
    request->set_size_limit(params.request_size_limit);
  }
  static bool is_header_complete(const REQ *) { return true; }
  static std::string refusal(const REQ *, bool /*timed_out*/) { return std::string(); }
  // Returns the answer to a client whose reply is cut short because the server stops. It may be
  // empty.
  static std::string unavailable() { return std::string(); }
  // Returns whether the connection may be kept. May throw std::bad_alloc: then there is no reply.
  static bool prepare_reply(const RequestFacts &, RESP *, bool may_keep) { return may_keep; }
};

// The task of one request on a server, from its first byte to its reply.
template <class REQ, class RESP>
class WFServerTask : public WFNetworkTask<REQ, RESP>, public workflow::ServerExchange {
 public:
  using Process = std::function<void(WFNetworkTask<REQ, RESP> *)>;
  using Protocol = WFServerProtocol<REQ, RESP>;

  // `process` must outlive the task.
  explicit WFServerTask(const Process &process) : process_(process), processor_(*this) {}

  void dispatch() override {
    if (this->state != WFT_STATE_TOREPLY) {
      end_exchange();
      this->subtask_done();
      return;
    }
    if (is_streaming()) {
      if (const int reason = stop_stream()) {
        // An incomplete reply must not look complete.
        give_up(reason);
        end_exchange();
        this->subtask_done();
        return;
      }
      open_ = false;
      end_stream();
      return;
    }
    const bool may_keep = this->keep_alive_timeout_ != 0 && !connection_is_closing();
    bool keep = false;
    try {
      keep = Protocol::prepare_reply(facts_, &this->resp_, may_keep);
    } catch (const std::bad_alloc &) {
      give_up(ENOMEM);
      end_exchange();
      this->subtask_done();
      return;
    }
    open_ = false;
    send_reply(Reply{keep && may_keep, this->send_timeout_, this->keep_alive_timeout_});
  }

  // For WFHttpStream::begin().
  std::shared_ptr<workflow::ReplyStream> begin_stream(bool of_events) {
    if (this->state != WFT_STATE_TOREPLY || is_streaming()) {
      errno = EALREADY;
      return nullptr;
    }
    if (!can_stream()) {
      errno = EOPNOTSUPP;
      return nullptr;
    }
    if (!Protocol::can_stream(&this->resp_)) {
      errno = EINVAL;
      return nullptr;
    }
    const bool may_keep = this->keep_alive_timeout_ != 0 && !connection_is_closing();
    std::shared_ptr<workflow::ReplyStream> stream;
    try {
      const StreamForm form = Protocol::prepare_stream(facts_, &this->resp_, may_keep, of_events);
      const Reply reply = {form.keep_alive, this->send_timeout_, this->keep_alive_timeout_};
      stream = open_stream(form, of_events, reply);
    } catch (const std::bad_alloc &) {
      errno = ENOMEM;
    }
    if (!stream) give_up(errno);  // the response was changed for the stream
    return stream;
  }

  // Whether a streamed reply has begun.
  bool has_stream() const { return is_streaming(); }

  int get_peer_addr(struct sockaddr *addr, socklen_t *addrlen) const override {
    return peer_addr(addr, addrlen);
  }
  WFConnection *get_connection() const override { return user_connection(); }
  int push(const void *buf, size_t size) override {
    if (is_streaming()) {
      errno = EINVAL;  // the bytes could end up inside a chunk
      return -1;
    }
    return push_bytes(buf, size);
  }
  bool closed() const override { return peer_closed(); }
  void on_closed(std::function<void()> hook) override { call_when_closed(std::move(hook)); }
  void cancel_on_closed() override { cancel_when_closed(); }
  void cancel_timers_on_closed() override { cancel_timers_when_closed(); }
  WFScope scope() const override { return scope_of(series_of(this)); }

 protected:
  ~WFServerTask() override { end_exchange(); }

  protocol::ProtocolMessage *request() override { return &this->req_; }
  protocol::ProtocolMessage *response() override { return &this->resp_; }
  void prepare_request(const WFServerParams &params) override {
    Protocol::prepare_request(&this->req_, params);
  }
  bool is_header_complete() override { return Protocol::is_header_complete(&this->req_); }
  std::string refusal(bool timed_out) override { return Protocol::refusal(&this->req_, timed_out); }
  workflow::Runnable *begin(long long seq, int keep_alive_timeout) override {
    facts_ = Protocol::facts_of(&this->req_);
    this->task_seq_ = seq;
    this->keep_alive_timeout_ = keep_alive_timeout;
    this->state = WFT_STATE_TOREPLY;
    new Series(&processor_, this, peer(), new_scope(peer()));
    open_ = true;
    return &processor_;
  }
  SeriesWork *series() override { return series_of(this); }
  void reply_ended(int end_state, int end_error) override {
    this->state = end_state;
    this->error = end_error;
    if (end_error == ETIMEDOUT) this->timeout_reason_ = TOR_TRANSMIT_TIMEOUT;
    this->subtask_done();
  }
  void abandon() override { delete this; }

 private:
  // The first task of the series: passes the request to the user.
  class Processor final : public SubTask {
   public:
    explicit Processor(WFServerTask &task) : task_(task) {}
    void run_queued() override { series_of(this)->start(); }
    void dispatch() override {
      try {
        task_.process_(&task_);
      } catch (const std::bad_alloc &) {
        task_.give_up(ENOMEM);
      }
      subtask_done();
    }

   private:
    SubTask *done() override { return series_of(this)->pop(); }
    WFServerTask &task_;
  };

  // Keeps the connection, and with it the server, alive until the series has ended.
  class Series final : public SeriesWork {
   public:
    Series(SubTask *first, SubTask *last, workflow::ServerPeer *peer, const WFScope &scope)
        : SeriesWork(first, nullptr), peer_(peer) {
      set_last_task(last);
      use_scope(scope);
      retain(peer_);
    }

    void *get_specific(const char *key) override {
      return key == kHostKey ? host_of(peer_) : nullptr;
    }

   private:
    ~Series() override { release(peer_); }
    workflow::ServerPeer *const peer_;
  };

  // Makes the task end without a reply.
  void give_up(int reason) {
    this->state = WFT_STATE_SYS_ERROR;
    this->error = reason;
  }
  void end_exchange() {
    if (open_) {
      open_ = false;
      drop();
    }
  }

  const Process &process_;
  Processor processor_;
  typename Protocol::RequestFacts facts_ = {};
  bool open_ = false;  // begun, and neither replied nor dropped
};
