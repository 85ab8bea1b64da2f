#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include "workflow/ProtocolMessage.h"
#include "workflow/WFServerParams.h"
#include "workflow/WFTask.h"

namespace workflow {

class LeaveHook;
class ReplyStream;
class ServerPeer;

// One request and its reply as the connection sees them; the bridge between the tasks, which are
// templates, and the connections, which are not. For the implementation of servers.
//
// Life: the connection makes it with the first byte of a request and owns it while receiving. With
// begin() it becomes a task of a series, which deletes it; the series keeps the connection alive.
// From then on it ends in exactly one of send_reply(), drop() (destruction included).
class ServerExchange {
 public:
  struct Reply {
    bool keep_alive;         // the connection may carry another exchange
    int send_timeout;        // ms; -1: unlimited; less: the server's
    int keep_alive_timeout;  // ms; -1: unlimited
  };

  // Of a reply that is sent piece by piece.
  struct StreamForm {
    bool keep_alive;  // as above
    bool chunked;
    bool discards;      // there is no body
    std::string first;  // of the body
  };

  virtual protocol::ProtocolMessage *request() = 0;
  virtual protocol::ProtocolMessage *response() = 0;

  // Before the first byte.
  virtual void prepare_request(const WFServerParams &params) = 0;

  // While receiving: the part of the request that decides about the rest has arrived.
  virtual bool is_header_complete() = 0;

  // What to send before closing when the request cannot be served; perhaps nothing. `timed_out`:
  // it did not arrive in time, else it was not understood.
  virtual std::string refusal(bool timed_out) = 0;

  // The request is complete. Returns what a handler shall run; it leads to send_reply() or drop().
  // `keep_alive_timeout`: what applies unless the task's user sets another; ms, -1: unlimited.
  virtual Runnable *begin(long long seq, int keep_alive_timeout) = 0;

  // Begun, and neither replied nor dropped: what the reply waits for.
  virtual SeriesWork *series() = 0;

  // The reply has left or failed. Called once after send_reply(), perhaps before it returns.
  virtual void reply_ended(int state, int error) = 0;

  // Deletes an exchange that was not begun.
  virtual void abandon() = 0;

  void set_peer(ServerPeer *peer) { peer_ = peer; }

  // What SeriesWork::get_specific answers with the server's identity, for this very pointer.
  static const char kHostKey[];

 protected:
  virtual ~ServerExchange() = default;

  // Sends response(). `reply_ended` follows.
  void send_reply(const Reply &reply);
  // Ends the exchange without a reply: the connection is closed.
  void drop();
  // The connection will not carry another exchange: the server is being stopped.
  bool connection_is_closing() const;

  int peer_addr(struct sockaddr *addr, socklen_t *addrlen) const;
  int push_bytes(const void *buf, size_t size);
  bool peer_closed() const;
  void call_when_closed(std::function<void()> hook);
  void end_timers_when_closed();

  // The reply is sent piece by piece from now on, its head first. Null with errno.
  std::shared_ptr<ReplyStream> open_stream(const StreamForm &form, bool of_events,
                                           const Reply &reply);
  bool can_stream() const;
  bool is_streaming() const { return stream_ != nullptr; }
  // Nothing more is written. 0, or the errno with which it was over before.
  int stop_stream();
  // After that, and instead of send_reply().
  void end_stream();
  WFConnection *user_connection() const;

  ServerPeer *peer() const { return peer_; }
  static void retain(ServerPeer *peer);
  static void release(ServerPeer *peer);
  static void *host_of(ServerPeer *peer);

 private:
  ServerPeer *peer_ = nullptr;
  std::shared_ptr<LeaveHook> leave_hook_;
  std::shared_ptr<ReplyStream> stream_;
  Reply stream_reply_ = {};
};

}  // namespace workflow

// What a protocol adds to its server tasks. Specialise it for messages whose requests need limits
// or whose responses must be completed before they are sent.
template <class REQ, class RESP>
struct WFServerProtocol {
  // What a reply depends on, noted before the user gets the request: it may be moved away.
  struct RequestFacts {};
  static RequestFacts facts_of(const REQ *) { return RequestFacts(); }

  static void prepare_request(REQ *request, const WFServerParams &params) {
    request->set_size_limit(params.request_size_limit);
  }
  static bool is_header_complete(const REQ *) { return true; }
  static std::string refusal(const REQ *, bool /*timed_out*/) { return std::string(); }
  // What a client gets whose reply is cut short as the server stops; perhaps nothing.
  static std::string unavailable() { return std::string(); }
  // Returns whether the connection may be kept. Throws std::bad_alloc: there will be no reply.
  static bool prepare_reply(const RequestFacts &, RESP *, bool may_keep) { return may_keep; }
};

// The task of one request on a server, from its first byte to its reply.
template <class REQ, class RESP>
class WFServerTask : public WFNetworkTask<REQ, RESP>, public workflow::ServerExchange {
 public:
  using Process = std::function<void(WFNetworkTask<REQ, RESP> *)>;
  using Protocol = WFServerProtocol<REQ, RESP>;

  // `process` outlives the task.
  explicit WFServerTask(const Process &process) : process_(process), processor_(*this) {}

  void dispatch() override {
    if (this->state_ != WFT_STATE_TOREPLY) {
      end_exchange();
      this->subtask_done();
      return;
    }
    if (is_streaming()) {
      if (const int error = stop_stream()) {
        // It must not look whole.
        give_up(error);
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

  // For WFHttpStream::begin(). Throws std::bad_alloc.
  std::shared_ptr<workflow::ReplyStream> begin_stream(bool of_events) {
    if (this->state_ != WFT_STATE_TOREPLY || is_streaming()) {
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
    const StreamForm form = Protocol::prepare_stream(facts_, &this->resp_, may_keep, of_events);
    const Reply reply = {form.keep_alive, this->send_timeout_, this->keep_alive_timeout_};
    auto stream = open_stream(form, of_events, reply);
    if (!stream) give_up(errno);  // the response is not what it was
    return stream;
  }

  int get_peer_addr(struct sockaddr *addr, socklen_t *addrlen) const override {
    return peer_addr(addr, addrlen);
  }
  WFConnection *get_connection() const override { return user_connection(); }
  int push(const void *buf, size_t size) override {
    if (is_streaming()) {
      errno = EINVAL;  // it would be in the middle of a chunk
      return -1;
    }
    return push_bytes(buf, size);
  }
  bool closed() const override { return peer_closed(); }
  void on_closed(std::function<void()> hook) override { call_when_closed(std::move(hook)); }
  void cancel_timers_on_closed() override { end_timers_when_closed(); }

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
    this->state_ = WFT_STATE_TOREPLY;
    new Series(&processor_, this, peer());
    open_ = true;
    return &processor_;
  }
  SeriesWork *series() override { return series_of(this); }
  void reply_ended(int state, int error) override {
    this->state_ = state;
    this->error_ = error;
    if (error == ETIMEDOUT) this->timeout_reason_ = TOR_TRANSMIT_TIMEOUT;
    this->subtask_done();
  }
  void abandon() override { delete this; }

 private:
  // The first task of the series: gives the request to the user.
  class Processor final : public SubTask {
   public:
    explicit Processor(WFServerTask &task) : task_(task) {}
    void take_turn() override { series_of(this)->start(); }
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

  // Keeps the connection, and so the server, until the series has ended.
  class Series final : public SeriesWork {
   public:
    Series(SubTask *first, SubTask *last, workflow::ServerPeer *peer)
        : SeriesWork(first, nullptr), peer_(peer) {
      set_last_task(last);
      allow_interrupt();
      retain(peer_);
    }

    void *get_specific(const char *key) override {
      return key == kHostKey ? host_of(peer_) : nullptr;
    }

   private:
    ~Series() override { release(peer_); }
    workflow::ServerPeer *const peer_;
  };

  // There will be no reply.
  void give_up(int error) {
    this->state_ = WFT_STATE_SYS_ERROR;
    this->error_ = error;
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
