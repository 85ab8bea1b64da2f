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

class Interruption;
class Server;

class ServerConnection;

// What a connection needs of its server, which outlives it.
class ServerHost {
 public:
  virtual const WFServerParams& params() const = 0;
  // Null: the bytes are in the clear.
  virtual SSL_CTX* tls_context() const = 0;
  virtual ServerExchange* new_exchange() = 0;
  // The descriptor is about to be closed; no exchange will begin any more.
  virtual void connection_closed(ServerConnection* connection) = 0;
  // The last thing a connection does, from any thread.
  virtual void connection_gone(WFConnection* user) = 0;

  // Of datagrams: the user's part of each request, null to refuse it; then it goes back.
  virtual WFConnection* new_user(int fd) = 0;
  virtual void give_back(WFConnection* user) = 0;
  // The port is about to close: nobody may find it any more. And the last thing it does.
  virtual void port_closing() = 0;
  virtual void port_gone() = 0;

 protected:
  ~ServerHost() = default;
};

// One accepted connection: reads requests, one exchange at a time, and writes their replies in
// order.
//
// States. kHandshaking: TLS begins. kReading: waits for or receives a request; owns its exchange.
// kProcessing: the request is with its series; nothing is read, so that a client cannot run ahead.
// kWriting: the socket took only part of the reply. kLingering: our side is shut; what still comes
// is thrown away, so that the peer gets our last bytes instead of a reset (RFC 9112, 9.6).
// A server that stops does not wait for that. The connection ends, and its socket lives on alone
// (see LingeringSocket) if the client may be in the middle of sending, or has not acknowledged the
// whole reply yet.
// kClosing: only the poller's thread may close, and is asked to. kClosed: over.
//
// Threads: see Channel. Parsing is done on the poller's thread alone; a reply is written by the
// thread that ends the series.
//
// Invariants, with those of Channel; the references are one for each series begun:
// 1. In kReading only the poller's thread uses exchange_ and input_.
// 2. Events are edges: `readable_` stays true until a read found nothing more.
// 3. In kProcessing the exchange and its series are alive as long as C is held. Who changes that
//    state decides how the exchange ends.
class ServerConnection final : public Channel, public ServerPeer, public protocol::MessageChannel {
 public:
  ServerConnection(ServerHost& host, Poller& poller, UniqueFd fd, WFConnection* user);

  // Registers with the poller, unless shut_down() has ended the connection already. False with
  // errno; the caller destroys it then.
  bool start();

  // The server stops: no request is taken any more. Any thread.
  void shut_down();

  // The time limit of a stop has passed: a delayed reply ends as `action` says, with `unavailable`
  // as the answer. False when there is none. What its series waits for is interrupted. Any thread.
  bool cut_short(enum WFStopAction action, const std::string& unavailable,
                 Interruption& interruption);
  // No matter what is still to be sent. False when there was nothing. Any thread.
  bool close_now();

  // Since when it has waited for a request of which nothing has come; kNever when it does not.
  int64_t idle_since_ns() const { return idle_since_ns_.load(std::memory_order_relaxed); }
  // Another client needs the place: closed if it is idle, else after the reply. Any thread.
  void make_room();

  // The runtime has stopped, and its pollers with it: ends what they would have ended. The
  // connection may be gone then.
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
  void watch_leaving(std::shared_ptr<LeaveHook> hook, bool ends_timers) override;
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

  // Who wants to know what becomes of the client while the reply is on its way.
  struct Watching {
    std::shared_ptr<LeaveHook> hook;
    std::shared_ptr<ReplyStream> stream;

    // Nothing is sent any more: the stream is over, and the hook called.
    void over(int error) const;
  };

  static constexpr size_t kReadSize = 64 * 1024;
  // Steps per round, so that one fast sender does not hold up the others.
  static constexpr int kMaxSteps = 16;
  static constexpr size_t kMaxPushed = 1024 * 1024;
  static constexpr int kMaxVectors = 64;

  ~ServerConnection() override = default;

  // Of Channel.
  void on_ready(uint32_t events, RunnableList& finished) override;
  void on_deadline(bool stopped, RunnableList& finished) override;
  void on_closing() override;
  void end() override;
  // Of the message being received, on the poller's thread.
  int write_now(const void* buffer, size_t size) override;

  // Poller's thread. Does what can be done now, in whatever state.
  void advance(RunnableList& finished);
  Step next_step();
  // Each tells whether there may be more to do.
  bool shake_hands();
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
  // `to_the_end`: as far as the socket takes it, as the poller stops.
  void continue_writing(bool to_the_end = false);
  // In kProcessing: of what was pushed.
  void continue_pushing(bool to_the_end);
  void pushing_timed_out(bool stopped);
  void fail_reply(int error);
  void close();
  // As close(), when the server stops; see kLingering.
  void part();

  // Any thread.
  // `is_sending`: the client may be in the middle of sending, as something has come that is not a
  // part of requests that were processed. `whole`: nothing was cut that has begun.
  void start_lingering(bool is_sending, bool whole = true) WF_REQUIRES(mutex_);
  // After a write that says EAGAIN: the same, in kWriting, when the poller will go on. At its stop
  // it will not: then what the socket still takes goes at once, and the rest is cut (ECANCELED).
  int leave_to_poller() WF_REQUIRES(mutex_);
  void take_reply_settings(const ServerExchange::Reply& reply) WF_REQUIRES(mutex_);
  // The reply has left: the next state. True when the poller should look at it at once.
  // `began_ns`: when it began to leave. From then on it counts as idle, so that connections are so
  // in the order in which their clients may have seen their replies.
  bool after_reply(int64_t began_ns) WF_REQUIRES(mutex_);
  // False with errno.
  bool begin(SSL_CTX* context) WF_REQUIRES(mutex_);
  // In kReading, or in kClosing without memory.
  void wait_for_request(int64_t since_ns, int64_t timeout_ns) WF_REQUIRES(mutex_);
  // In kProcessing: the exchange will find, at its end, that it failed with `error`. What watched
  // the client is returned, to be told and freed without C.
  [[nodiscard]] Watching detach(int error) WF_REQUIRES(mutex_);
  [[nodiscard]] Watching stop_watching() WF_REQUIRES(mutex_);
  int push_now(const void* buffer, size_t size) WF_REQUIRES(mutex_);
  size_t room_for_push() const WF_REQUIRES(mutex_) {
    return kMaxPushed - std::min(copied_bytes(), kMaxPushed);
  }
  // After a write of what is pushed: until when the next must be, or nothing was written.
  bool await_push(int error) WF_REQUIRES(mutex_);
  // After C: hands the reply over, or fails.
  void send(ServerExchange* exchange, const ServerExchange::Reply& reply, struct iovec* vectors,
            int count, int error);

  ServerHost& host_;
  WFConnection* const user_;
  std::atomic<bool> stopping_{false};  // the server is
  std::atomic<bool> is_last_{false};   // the request that it waits for, or has
  std::atomic<bool> is_lost_{false};   // it was closed before its exchange has ended
  std::atomic<int64_t> idle_since_ns_{kNever};

  State state_ WF_GUARDED_BY(mutex_) = State::kReading;
  bool readable_ WF_GUARDED_BY(mutex_) = false;
  bool keep_alive_ WF_GUARDED_BY(mutex_) = true;
  int64_t idle_ns_ WF_GUARDED_BY(mutex_) = kNever;  // how long to wait for the next request
  int64_t send_ns_ WF_GUARDED_BY(mutex_) = kNever;  // how long without progress
  // In kProcessing, until the reply begins.
  SeriesWork* series_ WF_GUARDED_BY(mutex_) = nullptr;
  Watching watching_ WF_GUARDED_BY(mutex_);
  bool leaving_ends_timers_ WF_GUARDED_BY(mutex_) = false;
  bool pushed_ WF_GUARDED_BY(mutex_) = false;   // something
  bool pushing_ WF_GUARDED_BY(mutex_) = false;  // not all that was pushed has left
  bool counted_ WF_GUARDED_BY(mutex_) = false;  // among those cut short
  int64_t heartbeat_ns_ WF_GUARDED_BY(mutex_) = kNever;
  int lost_error_ WF_GUARDED_BY(mutex_) = ECONNRESET;  // why the state is not kProcessing any more

  // Of the server, under its S: its list of open connections.
  bool is_listed_ = false;
  ServerConnection* next_ = nullptr;
  ServerConnection* previous_ = nullptr;

  // By state (invariant 1).
  ServerExchange* exchange_ = nullptr;
  std::string input_;
  long long exchanges_ = 0;
  int64_t started_ns_ = 0;           // first byte of the request
  int64_t header_began_ns_ = 0;      // from when its header's time counts
  int64_t header_done_ns_ = kNever;  // kNever: not yet
  size_t received_ = 0;              // bytes of the request
  size_t lingered_ = 0;
  bool is_sending_ = false;  // from kLingering or part() on, see start_lingering()
  bool parts_ = false;       // part() was called; poller's thread only
};

}  // namespace workflow
