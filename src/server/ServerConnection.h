#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel/Poller.h"
#include "util/Mutex.h"
#include "util/UniqueFd.h"
#include "workflow/ProtocolMessage.h"
#include "workflow/WFConnection.h"
#include "workflow/WFServerTask.h"

struct WFServerParams;

namespace workflow {

class ServerConnection;

// What a connection needs of its server, which outlives it.
class ServerHost {
 public:
  virtual const WFServerParams& params() const = 0;
  virtual ServerExchange* new_exchange() = 0;
  // The descriptor is about to be closed; no exchange will begin any more.
  virtual void connection_closed(ServerConnection* connection) = 0;
  // The last thing a connection does, from any thread.
  virtual void connection_gone(WFConnection* user) = 0;

 protected:
  ~ServerHost() = default;
};

// One accepted connection: reads requests, one exchange at a time, and writes their replies in
// order.
//
// States. kReading: waits for or receives a request; owns its exchange. kProcessing: the request is
// with its series; nothing is read, so that a client cannot run ahead. kWriting: the socket took
// only part of the reply. kLingering: our side is shut; what still comes is thrown away, so that
// the peer gets our last bytes instead of a reset (RFC 9112, 9.6). kClosing: only the poller's
// thread may close, and is asked to. kClosed: over.
//
// Threads. C is mutex_; order C, then the poller's P. Reading, parsing, timeouts and closing happen
// on the poller's thread alone; a reply is written by the thread that ends the series. No user code
// runs under C.
//
// Invariants:
// 1. In kReading only the poller's thread uses exchange_ and input_.
// 2. Events are edges: `readable_` stays true until a read found nothing more.
// 3. The descriptor is open while state_ is not kClosed, and closed on the poller's thread only.
// 4. References: one for the poller until on_retired, one for each series begun.
// 5. deadline_ns_ is what counts; the node is queued no later than that (or not at all for kNever),
//    so a deadline that only moves later costs no queue operation.
class ServerConnection final : public IoHandler,
                               public TimerNode,
                               public protocol::MessageChannel,
                               private Runnable {
 public:
  ServerConnection(ServerHost& host, Poller& poller, UniqueFd fd, WFConnection* user);

  // Registers with the poller, unless shut_down() has ended the connection already. False with
  // errno; the caller destroys it then.
  bool start();

  // The server stops: no request is taken any more. Any thread.
  void shut_down();

  // The runtime has stopped, and its pollers with it: ends what they would have ended. The
  // connection may be gone then.
  void end_with_runtime();

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release();

  // For the exchange; see ServerExchange.
  void send_reply(ServerExchange* exchange, const ServerExchange::Reply& reply);
  void drop();
  int push(const void* buffer, size_t size);
  bool peer_closed() const { return peer_closed_.load(std::memory_order_acquire); }
  bool shutting_down() const { return shutting_down_.load(std::memory_order_acquire); }
  int peer_addr(struct sockaddr* address, socklen_t* length) const;
  WFConnection* user() const { return user_; }
  ServerHost& host() const { return host_; }

 private:
  enum class State { kReading, kProcessing, kWriting, kLingering, kClosing, kClosed };
  enum class Step { kWait, kRead, kParse, kDiscard, kClose };

  static constexpr size_t kReadSize = 64 * 1024;
  // Steps per round, so that one fast sender does not hold up the others.
  static constexpr int kMaxSteps = 16;
  static constexpr size_t kMaxPushed = 1024 * 1024;
  static constexpr int kMaxVectors = 64;

  ~ServerConnection() override = default;

  // Of the poller.
  void on_events(uint32_t events, RunnableList& finished) override;
  void on_retired() override;
  void left_queue(bool stopped, RunnableList& finished) override;
  void take_turn() override;
  // Of the message being received, on the poller's thread.
  int write_now(const void* buffer, size_t size) override;

  // Poller's thread. Does what can be done now, in whatever state.
  void advance(RunnableList& finished);
  Step next_step();
  // These three tell whether there may be more to do.
  bool read_some(RunnableList& finished);
  bool feed(const char* data, size_t size, RunnableList& finished);
  bool discard_some();
  void new_exchange();
  void begin_exchange(RunnableList& finished);
  void note_receiving();
  void refuse(bool timed_out);
  void continue_writing();
  void fail_reply(int error);
  void on_deadline(bool stopped);
  void close();
  void end();

  // Any thread.
  int64_t now_ns() const { return poller_.clock().now_ns(); }
  static int64_t timeout_ns(int ms) { return ms < 0 ? kNever : ms * kNsPerMs; }
  void ask_poller();
  // False when the poller will not tell: it has stopped, or memory has run out.
  bool set_deadline(int64_t deadline_ns) WF_REQUIRES(mutex_);
  void start_lingering() WF_REQUIRES(mutex_);
  bool start_writing() WF_REQUIRES(mutex_);
  void take_reply_settings(const ServerExchange::Reply& reply) WF_REQUIRES(mutex_);
  // Each writes as far as the socket takes it: 0 all, EAGAIN some (the rest is kept), or an error.
  int write_pushed() WF_REQUIRES(mutex_);
  int write_out(struct iovec* vectors, int count) WF_REQUIRES(mutex_);
  // The reply has left: the next state. True when the poller should look at it at once.
  bool after_reply() WF_REQUIRES(mutex_);

  ServerHost& host_;
  Poller& poller_;
  WFConnection* const user_;
  std::atomic<int> references_{1};
  std::atomic<bool> asked_{false};  // run() is queued at the poller
  std::atomic<bool> peer_closed_{false};
  std::atomic<bool> shutting_down_{false};

  mutable Mutex mutex_;  // C
  UniqueFd fd_ WF_GUARDED_BY(mutex_);
  State state_ WF_GUARDED_BY(mutex_) = State::kReading;
  bool readable_ WF_GUARDED_BY(mutex_) = false;
  bool keep_alive_ WF_GUARDED_BY(mutex_) = true;
  int64_t deadline_ns_ WF_GUARDED_BY(mutex_) = kNever;
  int64_t queued_ns_ WF_GUARDED_BY(mutex_) = kNever;
  int64_t idle_ns_ WF_GUARDED_BY(mutex_) = kNever;          // how long to wait for the next request
  int64_t send_ns_ WF_GUARDED_BY(mutex_) = kNever;          // how long without progress
  std::string output_ WF_GUARDED_BY(mutex_);                // pushed and not yet sent
  std::vector<struct iovec> unsent_ WF_GUARDED_BY(mutex_);  // of the reply, while kWriting

  // By state (invariant 1).
  ServerExchange* exchange_ = nullptr;
  std::string input_;
  long long exchanges_ = 0;
  int64_t started_ns_ = 0;           // first byte of the request
  int64_t header_done_ns_ = kNever;  // kNever: not yet
  size_t received_ = 0;              // bytes of the request
  size_t lingered_ = 0;
};

}  // namespace workflow
