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

// One request and its reply as the connection sees them. It is the bridge between the tasks, which
// are templates, and the connections, which are not. For the implementation of servers.
//
// Life: the connection creates the exchange with the first byte of a request and owns it while
// receiving. With begin() it becomes a task of a series, which deletes it; the series keeps the
// connection alive. From then on it ends with exactly one call of send_reply() or drop(). Its
// destruction counts as drop().
class ServerExchange {
 public:
  struct Reply {
    bool keep_alive;         // the connection may carry another exchange
    int send_timeout;        // ms; -1: unlimited; below -1: as the server's params say
    int keep_alive_timeout;  // ms; -1: unlimited
  };

  // The form of a reply that is sent piece by piece.
  struct StreamForm {
    bool keep_alive;  // as in Reply
    bool chunked;
    bool discards;      // the reply has no body: what is written is dropped
    std::string first;  // the first bytes of the body
  };

  virtual protocol::ProtocolMessage *request() = 0;
  virtual protocol::ProtocolMessage *response() = 0;

  // Prepares the request for receiving. Called before the first byte.
  virtual void prepare_request(const WFServerParams &params) = 0;

  // While receiving: whether the part of the request that decides about the rest has arrived.
  virtual bool is_header_complete() = 0;

  // Returns what to send before the connection is closed because the request cannot be served. It
  // may be empty. If `timed_out`, the request did not arrive in time; otherwise it was malformed or
  // not allowed.
  virtual std::string refusal(bool timed_out) = 0;

  // Called when the request is complete. Returns what a handler must run; that leads to
  // send_reply() or drop(). `keep_alive_timeout` applies unless the task's user sets another; it is
  // in ms, and -1 means unlimited.
  virtual Runnable *begin(long long seq, int keep_alive_timeout) = 0;

  // For an exchange that has begun, and has neither replied nor been dropped: the series for which
  // the reply waits.
  virtual SeriesWork *series() = 0;

  // Called once after send_reply(), perhaps before it returns, when the reply has been sent or has
  // failed.
  virtual void reply_ended(int state, int error) = 0;

  // Deletes an exchange that has not begun.
  virtual void abandon() = 0;

  void set_peer(ServerPeer *peer) { peer_ = peer; }

  // The key, compared by its address, for which SeriesWork::get_specific() returns the identity of
  // the server.
  static const char kHostKey[];

 protected:
  virtual ~ServerExchange() = default;

  // Sends response(). A call of reply_ended() follows.
  void send_reply(const Reply &reply);
  // Ends the exchange without a reply: the connection is closed.
  void drop();
  // Whether the connection will not carry another exchange because the server is being stopped.
  bool connection_is_closing() const;

  int peer_addr(struct sockaddr *addr, socklen_t *addrlen) const;
  int push_bytes(const void *buf, size_t size);
  bool peer_closed() const;
  void call_when_closed(std::function<void()> hook);
  void cancel_when_closed();
  void cancel_timers_when_closed();

  // From now on the reply is sent piece by piece, its head first. Returns null with errno on
  // failure.
  std::shared_ptr<ReplyStream> open_stream(const StreamForm &form, bool of_events,
                                           const Reply &reply);
  bool can_stream() const;
  bool is_streaming() const { return stream_ != nullptr; }
  // Ends the writing of pieces. Returns 0, or the errno with which the stream had already ended.
  int stop_stream();
  // Called after stop_stream(), in place of send_reply().
  void end_stream();
  WFConnection *user_connection() const;

  ServerPeer *peer() const { return peer_; }
  static void retain(ServerPeer *peer);
  static void release(ServerPeer *peer);
  static void *host_of(ServerPeer *peer);
  // A scope for a request. Throws std::bad_alloc.
  static WFScope new_scope(ServerPeer *peer);
  // The scope in which a series runs, if any. `series` may be null.
  static WFScope scope_of(const SeriesWork *series);

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
    if (this->state_ != WFT_STATE_TOREPLY) {
      end_exchange();
      this->subtask_done();
      return;
    }
    if (is_streaming()) {
      if (const int error = stop_stream()) {
        // An incomplete reply must not look complete.
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

  // For WFHttpStream::begin(). May throw std::bad_alloc.
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
    if (!stream) give_up(errno);  // the response was changed for the stream
    return stream;
  }

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
    this->state_ = WFT_STATE_TOREPLY;
    new Series(&processor_, this, peer(), new_scope(peer()));
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
