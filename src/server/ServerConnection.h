#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/ClientWatch.h"
#include "server/ReplyChannel.h"
#include "server/RequestReader.h"
#include "server/ServerPeer.h"
#include "util/UniqueFd.h"
#include "workflow/ProtocolMessage.h"
#include "workflow/WFConnection.h"
#include "workflow/WFServerTask.h"

struct WFServerParams;

namespace workflow {

class Server;

class ServerConnection;

// What a connection needs from its server. The server outlives the connection.
class ServerHost {
 public:
  virtual const WFServerParams& params() const = 0;
  // Null: the connection does not use TLS.
  virtual SSL_CTX* tls_context() const = 0;
  virtual ServerExchange* new_exchange() = 0;
  // Called when the descriptor is about to be closed. No exchange begins after that.
  virtual void connection_closed(ServerConnection* connection) = 0;
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
// order.
//
// Its one state machine. The deadline, where there is one, is that of the last column.
//
// | state        | meaning                            | goes on to              | deadline |
// |--------------|------------------------------------|-------------------------|---------------------|
// | kHandshaking | the TLS handshake is under way     | kReading: it is done    |
// ssl_accept_timeout  | |              |                                    | kLingering: refused
// |                     | | kReading     | waits for a request, or receives   | kProcessing: it is
// | header, body, idle  | |              | one                                |   whole |
// (RequestReader)     | |              |                                    | kLingering: refused
// |                     | | kProcessing  | its series runs; nothing is read,  | kReading: replied
// | pushed bytes,       | |              | so a client cannot run ahead       | kWriting,
// kLingering    | heartbeat           | | kWriting     | the socket has taken only a part   |
// kReading, kLingering:   | send_timeout        | |              | of the reply |   all was sent |
// | | kLingering   | has shut down its side, and throws | kParted: server stops   | linger_timeout
// | |              | away what the client still sends   |                         | | | kClosing |
// has to be closed; the poller's     | kClosed                 |                     | | | thread
// was asked to                |                         |                     | | kParted      |
// over; its socket may live on       |                         |                     | | kClosed |
// over                               |                         |                     |
//
// - Every state before kClosing goes on to kClosing when its deadline passes, when a deadline
// cannot
//   be set, or when sending fails. In kReading, a request that comes too late may be answered
//   first.
// - kReading and kLingering end in kClosed when the client has closed the connection.
// - A reply is followed by kReading if the connection is kept, otherwise by kLingering: so the
//   client gets the last bytes of the reply instead of a reset (RFC 9112, 9.6).
// - A server that stops takes no request. kHandshaking goes on to kClosing, and kReading to
// kParted.
//   So does kLingering, as soon as it is known whether the client is sending. kParted leaves the
//   socket to a LingeringSocket if the client may be in the middle of sending, or has not
//   acknowledged the whole reply yet.
// - end_with_runtime() goes from any state to kClosed.
//
// Threads: see Channel. Only the poller's thread parses, and only it leaves kHandshaking and
// kReading. The thread that ends the series writes the reply. Any thread may leave kProcessing,
// kWriting and kLingering, under C.
//
// Its parts: ReplyChannel sends, RequestReader receives, ClientWatch knows who is to be told that
// the client is lost.
//
// Invariants, besides those of Channel. There is one reference for each series that has begun.
// 1. In kReading only the poller's thread uses reader_, without C. In kProcessing and kWriting it
//    holds no request, and nobody changes it.
// 2. Events are edge-triggered: `readable_` stays true until a read finds nothing more.
// 3. In kProcessing the exchange and its series are alive as long as C is held. The thread that
//    changes this state decides how the exchange ends.
class ServerConnection final : public ReplyChannel,
                               public ServerPeer,
                               public protocol::MessageChannel {
 public:
  // The place in the server's list of open connections; guarded by the server's S.
  struct Place {
    bool is_listed = false;
    ServerConnection* next = nullptr;
    ServerConnection* previous = nullptr;
  };

  ServerConnection(ServerHost& host, Poller& poller, UniqueFd fd, WFConnection* user);

  // Registers with the poller, unless shut_down() has ended the connection already. Returns false
  // and sets errno on failure; the caller destroys the connection then.
  bool start();

  // The server stops: the connection takes no more requests. Any thread.
  void shut_down();

  // The time limit of a stop has passed: a delayed reply ends as `action` says, with `unavailable`
  // as the answer, and so does the scope of its request. Returns whether there was one that no
  // earlier call has counted. Any thread.
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

  // ServerPeer
  void send_reply(ServerExchange* exchange, const ServerExchange::Reply& reply) override;
  void drop() override;
  int push(const void* buffer, size_t size) override;
  int peer_addr(struct sockaddr* address, socklen_t* length) const override {
    return Channel::peer_addr(address, length);
  }
  bool peer_closed() const override {
    return Channel::peer_closed() || is_lost_.load(std::memory_order_acquire);
  }
  void watch_leaving(std::shared_ptr<LeaveHook> hook, OnLeaving what) override;
  int begin_stream(std::shared_ptr<ReplyStream> stream, const std::string& head,
                   int send_timeout) override;
  void end_stream(ServerExchange* exchange, const ServerExchange::Reply& reply,
                  std::string_view last) override;
  size_t unsent() const override;
  bool can_stream() const override { return true; }
  void set_heartbeat(int ms) override;
  bool shutting_down() const override { return is_last_.load(std::memory_order_acquire); }
  WFConnection* user() const override { return user_; }
  ServerHost& host() const override { return host_; }
  void retain() override { Channel::retain(); }
  void release() override { Channel::release(); }

  Place place;

 private:
  enum class State {
    kHandshaking,
    kReading,
    kProcessing,
    kWriting,
    kLingering,
    kClosing,
    kParted,
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
  // MessageChannel: called by the message that is being received, on the poller's thread.
  int write_now(const void* buffer, size_t size) override;

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
  ssize_t read_to_discard(char* buffer, size_t size) WF_REQUIRES(mutex_);
  // The socket may take more now. `to_the_end`: writes all that it takes, because the poller stops.
  void continue_writing(bool to_the_end);
  void continue_pushing(bool to_the_end);
  void pushing_timed_out(bool stopped, RunnableList& finished);
  // `last`: kClosed or kParted.
  void close(State last);

  // The rest is for any thread.
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  State state() const;
  bool is_over() const WF_REQUIRES(mutex_) {
    return state_ == State::kParted || state_ == State::kClosed;
  }
  // Returns false and sets errno on failure.
  bool begin(SSL_CTX* context) WF_REQUIRES(mutex_);
  // Enters kReading, or kClosing if there is no memory for the time limit.
  void wait_for_request(int64_t since_ns, int64_t timeout_ns) WF_REQUIRES(mutex_);
  // Enters kLingering. `is_sending`: the client may be in the middle of sending, because something
  // has come that is not a part of a request that was processed. `whole`: nothing that has begun
  // was cut short.
  void start_lingering(bool is_sending, bool whole = true) WF_REQUIRES(mutex_);
  // Writes the reply, or fails with `error` if that is not 0. C must not be held.
  void send(ServerExchange* exchange, const ServerExchange::Reply& reply, struct iovec* vectors,
            int count, int error);
  // Writes the reply, or leaves the rest of it to the poller in kWriting: then returns EAGAIN.
  int write_reply(const ServerExchange::Reply& reply, struct iovec* vectors, int count, bool* ask)
      WF_REQUIRES(mutex_);
  // The whole reply was written: enters the next state. Returns true if the poller should look at
  // the connection at once. `began_ns` is when the last write of the reply began. The connection
  // counts as idle from then on, so that the order in which connections became idle is the order in
  // which their clients may have seen their replies.
  bool after_reply(int64_t began_ns) WF_REQUIRES(mutex_);
  // In kWriting: gives up the rest of the reply.
  void fail_reply(int error);
  // In kProcessing: separates the exchange from the connection, which will carry no other one. When
  // the exchange ends it finds that it has failed with `error`.
  void detach(int error, ClientWatch::Notice& notice) WF_REQUIRES(mutex_);
  // In place of the reply that was detached.
  void answer_unavailable(const std::string& unavailable) WF_REQUIRES(mutex_);
  // Below -1: as the server's params say.
  int64_t send_limit_ns(int timeout_ms) const;

  ServerHost& host_;
  WFConnection* const user_;
  std::atomic<bool> stopping_{false};  // the server stops
  std::atomic<bool> is_last_{false};   // takes no request after the current one
  std::atomic<bool> is_lost_{false};   // was closed before its exchange ended
  std::atomic<int64_t> idle_since_ns_{kNever};

  State state_ WF_GUARDED_BY(mutex_) = State::kReading;
  bool readable_ WF_GUARDED_BY(mutex_) = false;
  bool keep_alive_ WF_GUARDED_BY(mutex_) = true;
  bool counted_ WF_GUARDED_BY(mutex_) = false;         // was counted as cut short
  int lost_error_ WF_GUARDED_BY(mutex_) = ECONNRESET;  // why the state is not kProcessing any more
  int64_t idle_ns_ WF_GUARDED_BY(mutex_) = kNever;     // how long to wait for the next request
  // In kProcessing and kWriting; null if it was detached. Its series owns it.
  ServerExchange* exchange_ WF_GUARDED_BY(mutex_) = nullptr;
  ClientWatch watch_ WF_GUARDED_BY(mutex_);
  size_t lingered_ WF_GUARDED_BY(mutex_) = 0;  // bytes that were thrown away
  // In kLingering and kParted: see start_lingering().
  bool is_sending_ WF_GUARDED_BY(mutex_) = false;

  RequestReader reader_;     // invariant 1
  long long exchanges_ = 0;  // poller's thread only
};

}  // namespace workflow
