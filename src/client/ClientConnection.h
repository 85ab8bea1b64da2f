#pragma once

#include <cstdint>
#include <memory>

#include "kernel/Channel.h"
#include "workflow/ClientExchange.h"
#include "workflow/HttpMessage.h"
#include "workflow/WFConnection.h"

namespace workflow {

class ClientEndpoint;
class ClientSession;
class EarlyEnd;

// What happened to a session's try, and so whether there may be another.
struct ClientFailure {
  int state = 0;
  int error = 0;
  int timeout_reason = 0;
  bool connected = false;   // a connection was made, and agreed on TLS
  bool reused = false;      // it had carried exchanges before
  bool sent = false;        // bytes of the request may have reached the peer
  bool received = false;    // bytes of the response have come
  bool hopeless = false;    // another try would end in the same way
  bool unanswered = false;  // a datagram was sent, and nothing came back in time
};

// One connection to an endpoint: carries one exchange at a time and is kept, idle, in between. For
// datagrams it is a socket, and so a port, that carries one exchange only: what comes too late for
// it must not be taken for the next one's response.
//
// States. kConnecting, kTunneling (a proxy is asked to connect further), kHandshaking: for its
// first session. kExchanging: sends the request and receives the response, which may begin before
// all is sent; while a part of it is being delivered (paused_) nothing is read and no time limit
// passes. kIdle: nobody's; what the peer sends now, or its end, closes it. kClosing: only the
// poller's thread may close, and is asked to. kClosed: over.
//
// Threads: see Channel. Responses are parsed on the poller's thread alone; a request on an idle
// connection is written by the thread that begins it.
//
// Invariants:
// 1. session_ is set in the first four states only. Who takes it out, under C, owns its next step.
// 2. Events are edges: `readable_` stays true until a read found nothing more.
// 3. While paused_ the session stays, whatever happens: who delivers uses the exchange. resume()
// ends
//    that, once, on any thread.
// 4. A connection that is idle is in its endpoint's list, or on its way in or out of it.
class ClientConnection final : public Channel, public protocol::MessageChannel {
 public:
  // A descriptor on which connect(2) was called.
  ClientConnection(std::shared_ptr<ClientEndpoint> endpoint, Poller& poller, UniqueFd fd,
                   ClientSession* session);

  // Registers with the poller. False with errno; the caller destroys it then, and keeps the
  // session.
  bool start();
  // Of a connection that start() has refused, instead of release() for the poller.
  void discard();

  enum class Begin {
    kBegun,    // the session is the connection's now
    kNotIdle,  // any more; the session stays the caller's
    kFailed    // the request could not be sent; the session stays the caller's
  };
  // An idle connection's next session. Any thread that holds a reference.
  Begin begin(ClientSession* session, ClientFailure* failure);

  // To make room for another. Any thread that has taken it out of the endpoint's list.
  void close_idle();

  // A part of the response has been delivered: the exchange goes on. The caller has a reference.
  void resume();

  // The session, which may be gone, ends if it is here; if a part of its response is being
  // delivered, after that. Any thread.
  void interrupt(const EarlyEnd* early_end);

  // The runtime stops: the session, if any, ends as aborted. Any thread.
  void abort();
  // The runtime has stopped, and its pollers with it.
  void end_with_runtime();

  WFConnection* user() { return &user_; }
  const ClientEndpoint& endpoint() const { return *endpoint_; }

  bool is_known_to_close = false;  // guarded by the endpoint's E

 private:
  enum class State { kConnecting, kTunneling, kHandshaking, kExchanging, kIdle, kClosing, kClosed };
  enum class Step {
    kWait,
    kConnect,
    kTunnel,
    kHandshake,
    kSend,
    kRead,
    kResume,
    kStarve,
    kAbort,
    kInterrupt,
    kClose
  };

  static constexpr size_t kReadSize = 64 * 1024;
  static constexpr int kMaxSteps = 16;
  static constexpr int kMaxVectors = 64;
  // What write_now() keeps, at most, until the socket takes it.
  static constexpr size_t kMaxFeedback = size_t{1024} * 1024;

  struct User final : public WFConnection {};

  ~ClientConnection() override = default;

  void on_ready(uint32_t events, RunnableList& finished) override;
  void on_deadline(bool stopped, RunnableList& finished) override;
  void on_closing() override;
  void end() override { delete this; }
  int write_now(const void* buffer, size_t size) override;
  void restart_receive() override;

  // Poller's thread.
  void advance(RunnableList& finished);
  Step next_step();
  // Each tells whether there may be more to do.
  bool finish_connecting(RunnableList& finished);
  bool ask_proxy(RunnableList& finished);
  bool hear_proxy(RunnableList& finished);
  bool connected(RunnableList& finished);
  bool shake_hands(RunnableList& finished);
  bool read_some(RunnableList& finished);
  bool read_datagram(RunnableList& finished);
  bool feed(const char* data, size_t size, RunnableList& finished);
  bool input_ended(int error, RunnableList& finished);
  void response_continues(RunnableList& finished);
  void pause(Runnable* delivery, RunnableList& finished);
  void resumed(RunnableList& finished);
  bool continue_sending(RunnableList& finished);
  void complete(bool usable, RunnableList& finished);
  void fail(int state, int error, int timeout_reason, RunnableList& finished);
  void close();

  // Of the thread that has the session. With `expected` as the state that it has to be in still.
  Begin send_request(State expected, ClientSession* session, ClientFailure* failure);
  // Has the exchange complete its request. 0 or an errno.
  static int encode(ClientExchange* exchange, struct iovec* vectors, int* count,
                    protocol::ProtocolMessage** response);
  // The session is here now. Not 0: it shall end instead.
  int arrived(const ClientSession* session) WF_REQUIRES(mutex_);
  // Of an idle connection: whether its peer has neither spoken nor left. What has not arrived yet
  // nobody can know.
  bool is_still_idle() WF_REQUIRES(mutex_);
  ClientFailure failure_of(int state, int error, int timeout_reason) const WF_REQUIRES(mutex_);
  bool set_send_deadline() WF_REQUIRES(mutex_);
  // Something of the response has come.
  void note_bytes() WF_REQUIRES(mutex_);
  bool set_receive_deadline() WF_REQUIRES(mutex_);
  // Of a connection that closes: what write_now() was given has its time from now on.
  void limit_flushing() WF_REQUIRES(mutex_);

  const std::shared_ptr<ClientEndpoint> endpoint_;
  User user_;
  std::unique_ptr<protocol::HttpResponse> proxy_answer_;  // in kTunneling; the poller's thread

  State state_ WF_GUARDED_BY(mutex_) = State::kConnecting;
  ClientSession* session_ WF_GUARDED_BY(mutex_);
  bool readable_ WF_GUARDED_BY(mutex_) = false;
  bool writable_ WF_GUARDED_BY(mutex_) = false;
  bool aborting_ WF_GUARDED_BY(mutex_) = false;
  bool interrupted_ WF_GUARDED_BY(mutex_) = false;    // session_ shall end early
  bool out_of_memory_ WF_GUARDED_BY(mutex_) = false;  // it could not even be started
  long long exchanges_ WF_GUARDED_BY(mutex_) = 0;     // begun
  // Of the exchange.
  ClientTimes times_ WF_GUARDED_BY(mutex_);
  bool sending_ WF_GUARDED_BY(mutex_) = false;   // the socket has not taken all of the request
  bool received_ WF_GUARDED_BY(mutex_) = false;  // something
  // Byte of the response, or since the last restart_receive().
  bool awaits_first_ WF_GUARDED_BY(mutex_) = true;
  bool restarted_ WF_GUARDED_BY(mutex_) = false;
  // What write_now() was given waits for the socket: also in kIdle, and before the end of kClosing.
  bool flushing_ WF_GUARDED_BY(mutex_) = false;
  // While sending_, when that began; then, when it ended. Later by the pauses since.
  int64_t sent_ns_ WF_GUARDED_BY(mutex_) = kNever;
  // Once the request is sent: from when ClientTimes::receive counts.
  int64_t receive_ns_ WF_GUARDED_BY(mutex_) = kNever;
  bool paused_ WF_GUARDED_BY(mutex_) = false;
  bool resumed_ WF_GUARDED_BY(mutex_) = false;  // not paused_ any more, to be looked at
  int64_t paused_ns_ WF_GUARDED_BY(mutex_) = 0;
  // Constant while it receives: only the poller's thread reads and parses.
  protocol::ProtocolMessage* response_ = nullptr;
};

}  // namespace workflow
