#pragma once

#include <cstdint>
#include <memory>

#include "client/ClientFailure.h"
#include "client/ConnectionSetup.h"
#include "client/ExchangeProgress.h"
#include "client/RequestWriter.h"
#include "client/ResponseReader.h"
#include "kernel/Channel.h"
#include "workflow/WFConnection.h"
#include "workflow/detail/ClientExchange.h"

namespace workflow {

class ClientEndpoint;
class ClientSession;
class EncodedRequest;
class SessionLocation;

// One connection to an endpoint. It carries one exchange at a time, and is kept idle in between.
// For datagrams it is a socket, with a port of its own, that carries one exchange only: a datagram
// that comes too late must not be taken for the response of the next exchange.
//
// The state machine. Only the poller's thread changes the state, where no other is named.
//
//  from         to           when
//  kConnecting  kExchanging  the setup is done, and the request of the first session is sent
//  kIdle        kExchanging  begin(), any thread: the next request is sent
//  kExchanging  kDelivering  a part of the response has come, and a handler thread delivers it
//  kDelivering  kDelivered   resume(), any thread: the poller's thread is asked to go on
//  kDelivered   kExchanging  the poller's thread goes on
//  kExchanging  kIdle        the response is whole, and the connection can be used again
//  kExchanging  kClosing     the response is whole, or no more of it is wanted
//  kIdle        kClosing     close_idle() or begin(), any thread; the peer sends or closes; the
//                            time limit for being idle passes; the runtime stops
//  kConnecting, kExchanging, kDelivered
//               kClosing     an error, a time limit, a cancel, the stop of the runtime
//  kClosing     kClosed      what follows the request is sent, or need not be sent any more
//  any          kClosed      start() has failed, any thread; end_with_runtime()
//
// In kExchanging the request is sent and the response received, which may begin before all is sent.
// In kDelivering and kDelivered nothing is read and no time limit passes. kClosing exists because
// only the poller's thread may close the connection; it has been asked to.
//
// Its parts do the work:
// ConnectionSetup prepares it, RequestWriter (the base) sends, ResponseReader receives, and
// ExchangeProgress knows the time limits.
//
// Threads: see Channel. Only the poller's thread parses responses. A request on an idle connection
// is written by the thread that begins it.
//
// Invariants, besides those of its parts:
// 1. session_ is set from kConnecting to kDelivered only, and in kClosed until resume() if the
//    runtime has stopped in kDelivering. The thread that takes it out, under mutex_, owns the
//    session and its next step.
// 2. Events are edge-triggered: `readable_` stays true until a read finds nothing more.
// 3. In kDelivering the session stays, whatever happens, because the thread that delivers uses the
//    exchange. resume() ends this, once, on any thread.
// 4. An idle connection is in its endpoint's list, or is just being put there or taken out.
class ClientConnection final : public RequestWriter {
 public:
  // `fd`: a descriptor on which connect(2) was called.
  ClientConnection(std::shared_ptr<ClientEndpoint> endpoint, Poller& poller, UniqueFd fd,
                   ClientSession* session);

  // Registers with the poller. Any thread. Returns false and sets errno on failure; the caller
  // calls discard() then, and keeps the session.
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

  bool is_known_to_close = false;  // guarded by the ClientEndpoint lock

 private:
  // The order matters: those up to kDelivered have a session, and those before kClosing, except
  // kDelivering, may fail.
  enum class State { kConnecting, kExchanging, kDelivering, kDelivered, kIdle, kClosing, kClosed };
  // What the poller's thread has to do next.
  enum class Step { kWait, kSetUp, kSend, kSendMore, kReceive, kGoOn, kFail, kClose };

  static constexpr int kMaxSteps = 16;

  struct User final : public WFConnection {};

  ~ClientConnection() override = default;

  void on_ready(uint32_t events, RunnableList& finished) override;
  void on_deadline(bool stopped, RunnableList& finished) override;
  void on_closing() override;
  void end() override { delete this; }
  void restart_receive() override;

  // Whether the table allows it.
  bool may_become(State next) const WF_REQUIRES(mutex_);
  void become(State next) WF_REQUIRES(mutex_);

  // Only on the poller's thread, up to close().
  void advance(RunnableList& finished);
  Step next_step();
  void set_up(RunnableList& finished);
  // These two return true if there may be more to do.
  bool receive(RunnableList& finished);
  bool continue_sending(RunnableList& finished);
  // The exchange may have more to send.
  void ask_for_more();
  // A part of the response has come.
  void part_came(ClientExchange* exchange, RunnableList& finished);
  // The delivery of a part is over.
  void go_on(RunnableList& finished);
  // The response is whole, or no more of it is wanted. `usable`: the connection may be used again.
  void complete(ClientExchange* exchange, bool usable, RunnableList& finished);
  void fail(const ClientFailure& failure, RunnableList& finished);
  // Why session_ has to end now. Called if aborting_ or cancel_error_ is set.
  ClientFailure early_end();
  void close();

  // Called by the thread that owns the session. Returns kNotIdle if the state is not `expected` any
  // more.
  Begin send_request(State expected, ClientSession* session, ClientFailure* failure);
  // Returns false if the exchange cannot begin. The connection has to close then.
  bool begin_exchange(ClientSession* session, EncodedRequest& request, ClientFailure* failure)
      WF_REQUIRES(mutex_);
  // The session is here now. Returns 0, or the errno value with which it must end instead.
  int arrived(const ClientSession* session) WF_REQUIRES(mutex_);
  // Whether the peer of an idle connection has neither sent something nor closed. Also true if what
  // the peer has done has not arrived yet.
  bool is_still_idle() WF_REQUIRES(mutex_);
  bool is_datagram() const;
  // The failure, with what the connection knows about how far it has come.
  ClientFailure with_facts(ClientFailure failure) const WF_REQUIRES(mutex_);
  // Sets the deadline. If there is no memory for it, the exchange ends with ENOMEM.
  void limit(int64_t deadline_ns) WF_REQUIRES(mutex_);

  const std::shared_ptr<ClientEndpoint> endpoint_;
  User user_;
  ResponseReader reader_;  // see there

  State state_ WF_GUARDED_BY(mutex_) = State::kConnecting;
  ClientSession* session_ WF_GUARDED_BY(mutex_);
  bool readable_ WF_GUARDED_BY(mutex_) = false;
  bool writable_ WF_GUARDED_BY(mutex_) = false;
  bool aborting_ WF_GUARDED_BY(mutex_) = false;
  int cancel_error_ WF_GUARDED_BY(mutex_) = 0;       // not 0: session_ has to end with it
  long long exchanges_ WF_GUARDED_BY(mutex_) = 0;    // how many have begun
  ConnectionSetup setup_ WF_GUARDED_BY(mutex_);      // in kConnecting
  ExchangeProgress progress_ WF_GUARDED_BY(mutex_);  // of the last exchange
};

}  // namespace workflow
