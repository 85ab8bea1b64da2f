#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kernel/DeadlineScope.h"
#include "server/ClientWatch.h"
#include "server/LingeringInput.h"
#include "server/ReplyChannel.h"
#include "server/RequestReader.h"
#include "server/ServerPeer.h"
#include "util/UniqueFd.h"
#include "workflow/ProtocolMessage.h"
#include "workflow/WFConnection.h"
#include "workflow/WFServerTask.h"

struct WFServerParams;

namespace workflow {

class ServerConnection;

// What a connection needs from its server. The server outlives the connection.
class ServerHost {
 public:
  virtual const WFServerParams& params() const = 0;
  // Null: the connection does not use TLS.
  virtual SSL_CTX* tls_context() const = 0;
  // Whether a request for this host may come on a TLS connection that was made for another one. The
  // name is that of a HostName, perhaps empty. `context`: see enforced_context(). Calls user code,
  // on the poller's thread.
  virtual bool may_serve(const char* host, const SSL_CTX* context) = 0;
  virtual ServerExchange* new_exchange() = 0;
  // Called when the descriptor is about to be closed. No exchange begins after that. `still_runs`
  // is the scope of a request that has lost its connection while its series runs, or null. A scope
  // that is given here is given back with request_gone().
  virtual void connection_closed(ServerConnection* connection, Ref<DeadlineScope> still_runs) = 0;
  // Called for every connection, when it is about to be deleted. No series of its requests is left.
  // If a scope was given with connection_closed(), it must not be used for this connection any
  // more.
  virtual void request_gone(ServerConnection* connection) = 0;
  // The last thing that a connection does. Called on any thread.
  virtual void connection_gone(WFConnection* user) = 0;

  // The user's part of a request that has come as a datagram. Null refuses the request. What is not
  // null goes back with give_back().
  virtual WFConnection* new_user(int fd) = 0;
  virtual void give_back(WFConnection* user) = 0;
  // Called when the port is about to close: nobody may find it any more.
  virtual void port_closing() = 0;
  // The last thing that a port does.
  virtual void port_gone() = 0;

 protected:
  ~ServerHost() = default;
};

// One accepted connection: reads requests, one exchange at a time, and writes their replies in
// order. The Server lists it; its references own it (see Channel).
//
// It is a state machine. The table of its states, of what leads from one to another, and of their
// deadlines is in docs/network-internals.md, "Connections of a server". Only the poller's thread
// changes the state, with these exceptions, which any thread may call: start() leaves kReading, in
// which a connection begins; send(), drop() and cut_short() leave kProcessing; close_now() leaves
// kProcessing, kWriting and kLingering; end_with_runtime() leaves any state.
//
// Its parts do the work: RequestReader receives, ReplyChannel (the base) sends, ClientWatch knows
// what has to be notified when the client is lost, and LingeringInput throws away what comes after
// the last reply.
//
// Threads: see Channel. Only the poller's thread parses. The thread that ends the series writes the
// reply.
//
// Invariants, besides those of its parts. There is one reference for each series that has begun.
// 1. In kReading only the poller's thread uses reader_, and without mutex_. In the other states it
//    holds no request, and does not change.
// 2. Events are edge-triggered: `readable_` stays true until a read finds nothing more.
// 3. In kProcessing the exchange and its series are alive as long as mutex_ is held. The thread
//    that changes this state decides how the exchange ends. Bytes may be pushed in this state only.
class ServerConnection final : public ReplyChannel {
 public:
  // The place in one of the server's lists; guarded by the Server lock.
  struct Place {
    bool is_listed = false;
    ServerConnection* next = nullptr;
    ServerConnection* previous = nullptr;
    // Not null from the moment when it enters the list of those whose series still runs: see
    // ServerHost. While it is null the list is that of open connections.
    Ref<DeadlineScope> still_runs;
  };

  ServerConnection(ServerHost& host, Poller& poller, UniqueFd fd, WFConnection* user);

  // Registers with the poller, unless shut_down() has ended the connection already. Returns false
  // and sets errno on failure; the caller destroys the connection then.
  bool start();

  // The server stops: the connection takes no more requests. Any thread.
  void shut_down();

  // The time limit of a stop has passed: a delayed reply ends as `action` says, with `unavailable`
  // as the answer, and so does the scope of its request. Returns whether there was one that no
  // earlier call has counted. A request that has lost its connection already is not counted, but
  // its scope ends, too. Any thread.
  bool cut_short(enum WFStopAction action, const std::string& unavailable);
  // Closes the connection, even if a reply is still to be sent. Returns whether this has cut short
  // an exchange that no earlier call has counted. Any thread.
  bool close_now();

  // Since when the connection has been idle, which means that it waits for a request of which
  // nothing has come. kNever if it is not idle.
  int64_t idle_since_ns() const { return idle_since_ns_.load(std::memory_order_relaxed); }
  // Another client needs the place. The connection closes at once if it is idle, otherwise after
  // the reply. Any thread.
  void make_room();

  // The runtime and its pollers have stopped. Ends what the pollers would have ended. The
  // connection may be gone when this returns.
  void end_with_runtime();

  // MessageChannel: called by the request that is being received, on the poller's thread.
  bool serves(std::string_view authority) override;
  // ServerPeer
  void send_reply(ServerExchange* exchange, const ServerExchange::Reply& reply) override;
  void drop() override;
  bool peer_closed() const override {
    return Channel::peer_closed() || is_lost_.load(std::memory_order_acquire);
  }
  void watch_leaving(std::shared_ptr<LeaveHook> hook, OnLeaving what) override;
  int begin_stream(std::shared_ptr<ReplyStream> stream, const std::string& head,
                   int send_timeout) override;
  void end_stream(ServerExchange* exchange, const ServerExchange::Reply& reply,
                  std::string_view last) override;
  bool can_stream() const override { return true; }
  bool shutting_down() const override { return is_last_.load(std::memory_order_acquire); }
  WFConnection* user() const override { return user_; }
  ServerHost& host() const override { return host_; }

  Place place;

 private:
  // The order matters to may_become(): kReading and kLingering may follow only the states before
  // kLingering, and kClosing may follow only the states before it.
  enum class State {
    kHandshaking,
    kReading,
    kProcessing,
    kWriting,
    kLingering,
    kClosing,
    kDetached,
    kClosed
  };

  static constexpr size_t kReadSize = 64 * 1024;
  // At most this many steps in one round, so that one fast sender does not hold up the others.
  static constexpr int kMaxSteps = 16;
  static constexpr int kMaxVectors = 64;

  ~ServerConnection() override = default;

  // Channel
  void on_ready(uint32_t events, RunnableList& finished) override;
  void on_deadline(bool stopped, RunnableList& finished) override;
  void on_closing() override;
  void end() override;

  // Only on the poller's thread, up to close(). Does what can be done now; there is one function
  // for each state that the poller's thread works in. They return true if there may be more to do.
  bool step(RunnableList& finished);
  bool handshake();
  bool read(RunnableList& finished);
  bool look_for_client(RunnableList& finished);
  bool linger();

  bool feed(const char* data, size_t size, RunnableList& finished);
  void begin_request();
  void begin_exchange(RunnableList& finished);
  void refuse(bool timed_out);
  void end_receiving();
  // The socket may take more now. `to_the_end`: writes all that it takes, because the poller stops.
  void continue_writing(bool to_the_end);
  void pushing_timed_out(bool stopped, RunnableList& finished);
  // `last` is kClosed or kDetached.
  void close(State last);

  // The rest is for any thread.
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  State state() const;
  bool is_over() const WF_REQUIRES(mutex_) {
    return state_ == State::kDetached || state_ == State::kClosed;
  }
  // Whether the table allows it.
  bool may_become(State next) const WF_REQUIRES(mutex_);
  void become(State next) WF_REQUIRES(mutex_);
  // Enters kReading, or kClosing if there is no memory for the time limit.
  void wait_for_request(int64_t since_ns, int64_t timeout_ns) WF_REQUIRES(mutex_);
  // Enters kLingering. `is_sending`: see LingeringInput. `whole`: nothing that has begun was cut
  // short.
  void start_lingering(bool is_sending, bool whole = true) WF_REQUIRES(mutex_);
  // Writes the reply, or fails with `error` if that is not 0. The caller does not hold mutex_.
  void send(ServerExchange* exchange, const ServerExchange::Reply& reply, struct iovec* vectors,
            int count, int error);
  // The whole reply was written: enters the next state. Returns true if the poller should look at
  // the connection at once. `began_ns` is when the last write of the reply began. The connection
  // counts as idle from then on, so that the order in which connections became idle is the order in
  // which their clients may have seen their replies.
  bool after_reply(int64_t began_ns) WF_REQUIRES(mutex_);
  // In kWriting: gives up the rest of the reply.
  void fail_reply(int error);
  // Separates the exchange from the connection, which will carry no other one. When the exchange
  // ends it finds that it has failed with `error`. The caller enters the next state. `notice` is to
  // be freed after mutex_ is released.
  void detach(int error, ClientWatch::Notice& notice) WF_REQUIRES(mutex_);
  int send_timeout(int asked) const { return asked >= -1 ? asked : host_.params().send_timeout; }

  ServerHost& host_;
  WFConnection* const user_;
  // After one of the first two was set, the poller is asked to look. Its thread sees the flag and
  // then takes mutex_, so each thread that takes mutex_ later sees the flag, too. Release and
  // acquire are needed for is_last_ only: they publish stopping_, which shut_down() sets first and
  // read() reads last. is_lost_ is set under mutex_, and peer_closed() learns nothing else from it.
  std::atomic<bool> stopping_{false};  // the server stops
  std::atomic<bool> is_last_{false};   // takes no request after the current one
  std::atomic<bool> is_lost_{false};   // was closed before its exchange ended
  // Relaxed: it publishes nothing. When a request begins, the poller's thread has taken mutex_
  // since this was stored. The server reads it without mutex_ to choose which connection has to
  // make room, and a value that is out of date costs no more than a worse choice.
  std::atomic<int64_t> idle_since_ns_{kNever};

  State state_ WF_GUARDED_BY(mutex_) = State::kReading;
  bool readable_ WF_GUARDED_BY(mutex_) = false;
  bool keep_alive_ WF_GUARDED_BY(mutex_) = true;
  bool counted_ WF_GUARDED_BY(mutex_) = false;         // was counted as cut short
  int lost_error_ WF_GUARDED_BY(mutex_) = ECONNRESET;  // why the state is not kProcessing any more
  int idle_ms_ WF_GUARDED_BY(mutex_) = -1;             // how long to wait for the next request
  // In kProcessing and kWriting; null if it was detached. Its series owns it.
  ServerExchange* exchange_ WF_GUARDED_BY(mutex_) = nullptr;
  ClientWatch watch_ WF_GUARDED_BY(mutex_);
  // The scope of a request whose client was cut off while the series ran; otherwise null. Does not
  // change any more when the connection is closed.
  Ref<DeadlineScope> cut_off_scope_ WF_GUARDED_BY(mutex_);
  LingeringInput lingering_ WF_GUARDED_BY(mutex_);

  RequestReader reader_;     // invariant 1
  long long exchanges_ = 0;  // poller's thread only
};

}  // namespace workflow
