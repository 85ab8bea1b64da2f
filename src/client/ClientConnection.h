#pragma once

#include <cstdint>
#include <memory>

#include "kernel/Channel.h"
#include "workflow/HttpMessage.h"
#include "workflow/WFConnection.h"
#include "workflow/detail/ClientExchange.h"

namespace workflow {

class ClientEndpoint;
class ClientSession;
class SessionLocation;

// How a try of a session has failed. This decides whether there may be another try.
struct ClientFailure {
  int state = 0;
  int error = 0;
  int timeout_reason = 0;
  bool connected = false;   // a connection was made, and agreed on TLS
  bool reused = false;      // the connection had carried exchanges before
  bool sent = false;        // bytes of the request may have reached the peer
  bool received = false;    // bytes of the response have come
  bool hopeless = false;    // another try would end in the same way
  bool unanswered = false;  // a datagram was sent, and nothing came back in time
};

// One connection to an endpoint. It carries one exchange at a time, and is kept idle in between.
// For datagrams it is a socket, with a port of its own, that carries one exchange only: a datagram
// that comes too late must not be taken for the response of the next exchange.
//
// States:
// - kConnecting, kTunneling (a proxy is asked to connect further) and kHandshaking: the connection
//   is being made for its first session.
// - kExchanging: sends the request and receives the response, which may begin before all is sent.
//   While a part of the response is being delivered (paused_), nothing is read and no time limit
//   passes.
// - kIdle: has no session. If the peer sends something or closes, the connection closes.
// - kClosing: has to be closed. Only the poller's thread may do that, and has been asked to.
// - kClosed: the connection is over.
//
// Threads: see Channel. Only the poller's thread parses responses. A request on an idle connection
// is written by the thread that begins it.
//
// Invariants:
// 1. session_ is set in the first four states only. The thread that takes it out, under C, owns the
//    session and its next step.
// 2. Events are edge-triggered: `readable_` stays true until a read finds nothing more.
// 3. While paused_ is set the session stays, whatever happens, because the thread that delivers
//    uses the exchange. resume() ends the pause, once, on any thread.
// 4. An idle connection is in its endpoint's list, or is just being put there or taken out.
class ClientConnection final : public Channel, public protocol::MessageChannel {
 public:
  // `fd`: a descriptor on which connect(2) was called.
  ClientConnection(std::shared_ptr<ClientEndpoint> endpoint, Poller& poller, UniqueFd fd,
                   ClientSession* session);

  // Registers with the poller. Returns false and sets errno on failure; the caller destroys the
  // connection then, and keeps the session.
  bool start();
  // Ends a connection whose start() has failed. Gives up the poller's reference.
  void discard();

  enum class Begin {
    kBegun,    // the session is the connection's now
    kNotIdle,  // the connection is in use or closes; the session stays the caller's
    kFailed    // the request could not be sent; the session stays the caller's
  };
  // Begins the next session of an idle connection. Any thread that holds a reference.
  Begin begin(ClientSession* session, ClientFailure* failure);

  // Closes an idle connection to make room for another. Any thread that has taken the connection
  // out of the endpoint's list.
  void close_idle();

  // Goes on with the exchange after a part of the response was delivered. The caller holds a
  // reference.
  void resume();

  // If the session of that location is here, it ends with `reason`; if a part of its response is
  // being delivered, after that. Any thread.
  void cancel(const SessionLocation& location, int reason);

  // The runtime stops: the session, if there is one, ends as aborted. Any thread.
  void abort();
  // The runtime and its pollers have stopped: ends the session, if there is one, as aborted.
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
    kFailForMemory,
    kAbort,
    kCancel,
    kClose
  };

  static constexpr size_t kReadSize = 64 * 1024;
  static constexpr int kMaxSteps = 16;
  static constexpr int kMaxVectors = 64;
  // At most this many bytes are kept for write_now() until the socket takes them.
  static constexpr size_t kMaxFeedback = size_t{1024} * 1024;

  struct User final : public WFConnection {};

  ~ClientConnection() override = default;

  void on_ready(uint32_t events, RunnableList& finished) override;
  void on_deadline(bool stopped, RunnableList& finished) override;
  void on_closing() override;
  void end() override { delete this; }
  int write_now(const void* buffer, size_t size) override;
  void restart_receive() override;

  // Only on the poller's thread, up to close().
  void advance(RunnableList& finished);
  Step next_step();
  int cancel_error();
  // These return true if there may be more to do.
  bool finish_connecting(RunnableList& finished);
  bool send_proxy_request(RunnableList& finished);
  bool read_proxy_reply(RunnableList& finished);
  bool connected(RunnableList& finished);
  bool handshake(RunnableList& finished);
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

  // Called by the thread that owns the session. Returns kNotIdle if the state is not `expected` any
  // more.
  Begin send_request(State expected, ClientSession* session, ClientFailure* failure);
  // Has the exchange complete its request. Returns 0 or an errno.
  static int encode(ClientExchange* exchange, struct iovec* vectors, int* count,
                    protocol::ProtocolMessage** response);
  // The session is here now. Returns 0, or the errno value with which it must end instead.
  int arrived(const ClientSession* session) WF_REQUIRES(mutex_);
  // Whether the peer of an idle connection has neither sent something nor closed. It may have done
  // so if that has not arrived yet.
  bool is_still_idle() WF_REQUIRES(mutex_);
  ClientFailure failure_of(int state, int error, int timeout_reason) const WF_REQUIRES(mutex_);
  bool set_send_deadline() WF_REQUIRES(mutex_);
  // Called when bytes of the response have come.
  void note_bytes() WF_REQUIRES(mutex_);
  bool set_receive_deadline() WF_REQUIRES(mutex_);
  // The connection closes: sets the time limit for sending the rest of what write_now() was given.
  void limit_flushing() WF_REQUIRES(mutex_);

  const std::shared_ptr<ClientEndpoint> endpoint_;
  User user_;
  std::unique_ptr<protocol::HttpResponse> proxy_reply_;  // in kTunneling; poller's thread only

  State state_ WF_GUARDED_BY(mutex_) = State::kConnecting;
  ClientSession* session_ WF_GUARDED_BY(mutex_);
  bool readable_ WF_GUARDED_BY(mutex_) = false;
  bool writable_ WF_GUARDED_BY(mutex_) = false;
  bool aborting_ WF_GUARDED_BY(mutex_) = false;
  int cancel_error_ WF_GUARDED_BY(mutex_) = 0;        // not 0: session_ has to end with it
  bool out_of_memory_ WF_GUARDED_BY(mutex_) = false;  // start() could not set a time limit
  long long exchanges_ WF_GUARDED_BY(mutex_) = 0;     // how many have begun
  // The following belong to the exchange.
  ClientTimes times_ WF_GUARDED_BY(mutex_);
  bool sending_ WF_GUARDED_BY(mutex_) = false;   // the socket has not taken all of the request
  bool received_ WF_GUARDED_BY(mutex_) = false;  // bytes of the response have come
  // No byte of the response has come yet, or none since the last restart_receive().
  bool awaits_first_ WF_GUARDED_BY(mutex_) = true;
  bool restarted_ WF_GUARDED_BY(mutex_) = false;
  // Bytes that write_now() was given wait for the socket. May be true in kIdle and kClosing, too.
  bool flushing_ WF_GUARDED_BY(mutex_) = false;
  // While sending_ is true, the time at which sending began; afterwards, the time at which it
  // ended. Each pause moves it forward by its length.
  int64_t sent_ns_ WF_GUARDED_BY(mutex_) = kNever;
  // Once the request is sent: when the time limit ClientTimes::receive began.
  int64_t receive_ns_ WF_GUARDED_BY(mutex_) = kNever;
  bool paused_ WF_GUARDED_BY(mutex_) = false;
  bool resumed_ WF_GUARDED_BY(mutex_) = false;   // the poller's thread has yet to handle a resume()
  int64_t paused_ns_ WF_GUARDED_BY(mutex_) = 0;  // when the last pause began
  // Constant while the connection receives. Only the poller's thread reads and parses.
  protocol::ProtocolMessage* response_ = nullptr;
};

}  // namespace workflow
