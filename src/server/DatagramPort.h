#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kernel/Channel.h"
#include "kernel/Datagram.h"
#include "server/ServerConnection.h"
#include "server/ServerPeer.h"
#include "workflow/ProtocolMessage.h"

namespace workflow {

class DatagramPort;
class Interruption;

// The sender of one request that came as a datagram.
//
// References: that of the port until the exchange has begun, then the series'. With the last the
// peer goes, and the port counts it off.
class DatagramPeer final : public ServerPeer, public protocol::MessageChannel {
 public:
  DatagramPeer(DatagramPort& port, const DatagramAddress& address, WFConnection* user)
      : port_(port), address_(address), user_(user) {}

  // ServerPeer
  void send_reply(ServerExchange* exchange, const ServerExchange::Reply& reply) override;
  void drop() override;
  int push(const void* buffer, size_t size) override;
  int peer_addr(struct sockaddr* address, socklen_t* length) const override;
  bool peer_closed() const override { return false; }
  void watch_leaving(std::shared_ptr<LeaveHook> /*hook*/, bool /*ends_timers*/) override {}
  int begin_stream(std::shared_ptr<ReplyStream> stream, const std::string& head,
                   int send_timeout) override;
  void end_stream(ServerExchange* /*exchange*/, const ServerExchange::Reply& /*reply*/,
                  std::string_view /*last*/) override {}
  bool can_stream() const override { return false; }
  size_t unsent() const override { return 0; }
  void set_heartbeat(int /*ms*/) override {}
  bool shutting_down() const override;
  WFConnection* user() const override { return user_; }
  ServerHost& host() const override;
  void retain() override { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() override;

  // Of a message that is being received.
  int write_now(const void* buffer, size_t size) override;

 private:
  friend class DatagramPort;
  ~DatagramPeer() = default;

  DatagramPort& port_;
  const DatagramAddress address_;
  WFConnection* user_;
  std::atomic<int> references_{1};

  // Guarded by the port's C.
  bool replied_ = false;          // or dropped
  bool cut_ = false;              // nothing is to be sent any more
  bool counted_ = false;          // among those cut short
  SeriesWork* series_ = nullptr;  // while it is in the port's open_
  // Of that list, or of those that are late.
  DatagramPeer* next_ = nullptr;
  DatagramPeer* previous_ = nullptr;
  // While the reply waits for room.
  ServerExchange* exchange_ = nullptr;
  std::vector<struct iovec> vectors_;
  int64_t deadline_ns_ = kNever;
};

// The socket of a server for datagrams: each that comes is a request, each reply is one that goes
// back to the sender.
//
// What is no whole request is dropped. As many requests are under way as the server may have
// connections; meanwhile nothing is read, and the kernel drops what its buffer does not take. A
// reply for which the socket has no room waits, no longer than the time for sending; so there are
// never more of them than requests under way.
//
// Life: start(), then shut_down(). When the last request's series has ended it closes, tells
// host.port_closing() (nobody may find it any more), deletes itself and tells host.port_gone().
//
// Threads: see Channel. Reading, parsing and closing happen on the poller's thread alone; a reply
// is sent by the thread that ends the series.
//
// Invariants, with those of Channel; the references are one for each request under way:
// 1. under_way_ counts the exchanges that have begun and whose peer is not gone.
// 2. readable_ stays true until a read found nothing more; paused_ says that reading goes on when a
//    request under way ends.
// 3. Who takes a peer out of waiting_, under C, ends its exchange.
// 4. A peer in open_ has not replied: its series is alive as long as C is held.
class DatagramPort final : public Channel {
 public:
  DatagramPort(ServerHost& host, Poller& poller, UniqueFd fd);

  // Registers with the poller. False with errno; then discard() follows.
  bool start();
  void discard() { release(); }

  // Takes no more requests, and closes after those under way. Any thread.
  void shut_down();
  bool shutting_down() const { return shutting_down_.load(std::memory_order_acquire); }

  // As those of ServerConnection, for all requests under way; how many.
  size_t cut_short(enum WFStopAction action, const std::string& unavailable,
                   Interruption& interruption);
  size_t close_now();

  // The runtime has stopped, and its pollers with it: ends what they would have ended. The port may
  // be gone then.
  void end_with_runtime();

  int fd() const { return fd_; }
  size_t under_way() const { return under_way_.load(std::memory_order_relaxed); }

 private:
  friend class DatagramPeer;

  static constexpr size_t kReadSize = 64 * 1024;
  static constexpr int kMaxVectors = 64;
  // Per round, so that a flood of datagrams does not hold up the poller's other work.
  static constexpr int kMaxDatagrams = 64;
  // So many errors in one round are more than old datagrams' news: rests.
  static constexpr int kMaxErrors = 8;
  static constexpr int64_t kRestNs = 100'000'000;

  ~DatagramPort() override = default;

  // Of Channel.
  void on_ready(uint32_t events, RunnableList& finished) override;
  void on_deadline(bool stopped, RunnableList& finished) override;
  void on_closing() override { host_.port_closing(); }
  void end() override;

  // Poller's thread.
  void read_requests(RunnableList& finished);
  bool may_read();
  void receive(const DatagramAddress& from, const char* data, size_t size, RunnableList& finished);
  Runnable* begin(DatagramPeer* peer, ServerExchange* exchange, const char* data, size_t size);
  void take_out(DatagramPeer* peer) WF_REQUIRES(mutex_);
  void rest();
  void send_waiting();
  void close_if_done();

  // For peers, any thread.
  int send(const DatagramPeer& peer, const struct iovec* vectors, int count) WF_REQUIRES(mutex_);
  void reply(DatagramPeer* peer, ServerExchange* exchange, const ServerExchange::Reply& reply);
  bool wait_for_room(DatagramPeer* peer, int send_timeout) WF_REQUIRES(mutex_);
  // Of no use after this.
  void request_ended(WFConnection* user);

  // Takes those out of waiting_ whose time is up; all of them at the stop. The first of a list, by
  // next_. Without allocating: it has to work when memory has run out.
  DatagramPeer* take_late(bool stopped) WF_REQUIRES(mutex_);
  // Their exchanges end; how many.
  static size_t end_late(DatagramPeer* first, int state, int error);
  void watch_for_room(bool wanted) WF_REQUIRES(mutex_);
  bool update_deadline() WF_REQUIRES(mutex_);

  ServerHost& host_;
  const int fd_;  // open until on_retired(), or end_with_runtime()
  std::atomic<bool> shutting_down_{false};
  std::atomic<size_t> under_way_{0};  // changed under C

  bool closed_ WF_GUARDED_BY(mutex_) = false;
  bool readable_ WF_GUARDED_BY(mutex_) = false;
  bool paused_ WF_GUARDED_BY(mutex_) = false;
  int64_t rests_until_ns_ WF_GUARDED_BY(mutex_) = kNever;  // kNever: it does not rest
  std::deque<DatagramPeer*> waiting_ WF_GUARDED_BY(mutex_);
  DatagramPeer* open_ WF_GUARDED_BY(mutex_) = nullptr;  // linked

  long long requests_ = 0;  // poller's thread
};

}  // namespace workflow
