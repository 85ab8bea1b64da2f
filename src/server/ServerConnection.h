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

#include "kernel/Channel.h"
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
// States:
// - kHandshaking: the TLS handshake is under way.
// - kReading: waits for a request, or receives one. The connection owns the exchange.
// - kProcessing: the series of the request runs. Nothing is read, so a client cannot run ahead.
// - kWriting: the socket has taken only a part of the reply.
// - kLingering: the connection has shut down its side, and throws away what the client still sends,
//   so that the client gets the last bytes of the reply instead of a reset (RFC 9112, 9.6). A
//   server that stops does not wait for that. The connection ends, and its socket lives on alone
//   (see LingeringSocket) if the client may be in the middle of sending, or has not acknowledged
//   the whole reply yet.
// - kClosing: has to be closed. Only the poller's thread may do that, and has been asked to.
// - kClosed: the connection is over.
//
// Threads: see Channel. Only the poller's thread parses. The thread that ends the series writes the
// reply.
//
// Invariants, besides those of Channel. There is one reference for each series that has begun.
// 1. In kReading only the poller's thread uses exchange_ and input_.
// 2. Events are edge-triggered: `readable_` stays true until a read finds nothing more.
// 3. In kProcessing the exchange and its series are alive as long as C is held. The thread that
//    changes this state decides how the exchange ends.
class ServerConnection final : public Channel, public ServerPeer, public protocol::MessageChannel {
 public:
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

 private:
  friend class Server;
  enum class State { kHandshaking, kReading, kProcessing, kWriting, kLingering, kClosing, kClosed };
  enum class Step { kWait, kHandshake, kRead, kParse, kLeft, kDiscard, kPart, kClose };

  // Those that want to know what happens to the client before the reply is complete.
  struct Watching {
    std::shared_ptr<LeaveHook> hook;
    std::shared_ptr<ReplyStream> stream;

    // Nothing is sent any more: ends the stream, and has the hook called.
    void over(int error) const;
  };

  static constexpr size_t kReadSize = 64 * 1024;
  // At most this many steps in one round, so that one fast sender does not hold up the others.
  static constexpr int kMaxSteps = 16;
  static constexpr size_t kMaxPushed = 1024 * 1024;
  static constexpr int kMaxVectors = 64;

  ~ServerConnection() override = default;

  // Channel
  void on_ready(uint32_t events, RunnableList& finished) override;
  void on_deadline(bool stopped, RunnableList& finished) override;
  void on_closing() override;
  void end() override;
  // MessageChannel: called by the message that is being received, on the poller's thread.
  int write_now(const void* buffer, size_t size) override;

  // Only on the poller's thread. Does what can be done now, in any state.
  void advance(RunnableList& finished);
  Step next_step();
  // These return true if there may be more to do.
  bool handshake();
  bool read_some(RunnableList& finished);
  bool feed(const char* data, size_t size, RunnableList& finished);
  bool discard_some();
  ssize_t read_to_discard(char* buffer, size_t size) WF_REQUIRES(mutex_);
  bool client_left(RunnableList& finished);
  void new_exchange();
  void begin_exchange(RunnableList& finished);
  void note_receiving();
  void refuse(bool timed_out);
  void end_receiving();
  // `to_the_end`: writes all that the socket takes now, because the poller stops.
  void continue_writing(bool to_the_end = false);
  // In kProcessing: does the same with what was pushed.
  void continue_pushing(bool to_the_end);
  void pushing_timed_out(bool stopped);
  void fail_reply(int error);
  void close();
  // Does what close() does when the server stops; see kLingering.
  void part();

  // The rest is for any thread.
  // `is_sending`: the client may be in the middle of sending, because something has come that is
  // not a part of a request that was processed. `whole`: nothing that has begun was cut short.
  void start_lingering(bool is_sending, bool whole = true) WF_REQUIRES(mutex_);
  // Called after a write has failed with EAGAIN. If the poller will go on with the write, enters
  // kWriting and returns EAGAIN. If the poller is stopping, writes what the socket still takes now,
  // and returns 0 if that was all, or an errno: ECANCELED if the rest was cut.
  int leave_to_poller() WF_REQUIRES(mutex_);
  void take_reply_settings(const ServerExchange::Reply& reply) WF_REQUIRES(mutex_);
  // The whole reply was written: enters the next state. Returns true if the poller should look at
  // the connection at once. `began_ns` is when the last write of the reply began. The connection
  // counts as idle from then on, so that the order in which connections became idle is the order in
  // which their clients may have seen their replies.
  bool after_reply(int64_t began_ns) WF_REQUIRES(mutex_);
  // Returns false and sets errno on failure.
  bool begin(SSL_CTX* context) WF_REQUIRES(mutex_);
  // In kReading. Enters kClosing if there is no memory for the time limit.
  void wait_for_request(int64_t since_ns, int64_t timeout_ns) WF_REQUIRES(mutex_);
  // In kProcessing: separates the exchange from the connection. When the exchange ends it finds
  // that it has failed with `error`. Returns what watched the client; the caller notifies and frees
  // it without C.
  [[nodiscard]] Watching detach(int error) WF_REQUIRES(mutex_);
  [[nodiscard]] Watching stop_watching() WF_REQUIRES(mutex_);
  // In kProcessing: appends to `cancels` what has to be posted to the handlers to end the scope of
  // the request as `what` says.
  void cancel_scope(OnLeaving what, RunnableList& cancels) WF_REQUIRES(mutex_);
  int push_now(const void* buffer, size_t size) WF_REQUIRES(mutex_);
  size_t room_for_push() const WF_REQUIRES(mutex_) {
    return kMaxPushed - std::min(copied_bytes(), kMaxPushed);
  }
  // Sets the time limit after a write of pushed bytes, which has returned `error` (0 or EAGAIN):
  // the heartbeat if all was written, otherwise the limit for the rest. Returns false if bytes
  // are left and no limit could be set.
  bool limit_push(int error) WF_REQUIRES(mutex_);
  // Writes the reply, or fails with `error` if that is not 0. C must not be held.
  void send(ServerExchange* exchange, const ServerExchange::Reply& reply, struct iovec* vectors,
            int count, int error);

  ServerHost& host_;
  WFConnection* const user_;
  std::atomic<bool> stopping_{false};  // the server stops
  std::atomic<bool> is_last_{false};   // takes no request after the current one
  std::atomic<bool> is_lost_{false};   // was closed before its exchange ended
  std::atomic<int64_t> idle_since_ns_{kNever};

  State state_ WF_GUARDED_BY(mutex_) = State::kReading;
  bool readable_ WF_GUARDED_BY(mutex_) = false;
  bool keep_alive_ WF_GUARDED_BY(mutex_) = true;
  int64_t idle_ns_ WF_GUARDED_BY(mutex_) = kNever;  // how long to wait for the next request
  int64_t send_ns_ WF_GUARDED_BY(mutex_) = kNever;  // how long to send without progress
  // The series of the request, in kProcessing until the reply begins; null otherwise.
  SeriesWork* series_ WF_GUARDED_BY(mutex_) = nullptr;
  Watching watching_ WF_GUARDED_BY(mutex_);
  OnLeaving on_leaving_ WF_GUARDED_BY(mutex_) = OnLeaving::kNothing;
  bool pushed_ WF_GUARDED_BY(mutex_) = false;   // something was pushed
  bool pushing_ WF_GUARDED_BY(mutex_) = false;  // not all that was pushed has left
  bool counted_ WF_GUARDED_BY(mutex_) = false;  // was counted as cut short
  int64_t heartbeat_ns_ WF_GUARDED_BY(mutex_) = kNever;
  int lost_error_ WF_GUARDED_BY(mutex_) = ECONNRESET;  // why the state is not kProcessing any more

  // The place in the server's list of open connections; guarded by the server's S.
  bool is_listed_ = false;
  ServerConnection* next_ = nullptr;
  ServerConnection* previous_ = nullptr;

  // Which thread may use these depends on the state (invariant 1).
  ServerExchange* exchange_ = nullptr;
  std::string input_;
  long long exchanges_ = 0;
  int64_t started_ns_ = 0;           // first byte of the request
  int64_t header_began_ns_ = 0;      // when the time limit of its header began
  int64_t header_done_ns_ = kNever;  // when its header was complete; kNever: not yet
  size_t received_ = 0;              // bytes of the request so far
  size_t lingered_ = 0;
  bool is_sending_ = false;  // valid from kLingering or part() on; see start_lingering()
  bool parts_ = false;       // part() was called; poller's thread only
};

}  // namespace workflow
