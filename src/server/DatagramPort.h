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

// The sender of one request that came as a datagram.
//
// References: the port holds one until the exchange has begun, then the series holds it. The peer
// is destroyed with the last one, and the port no longer counts it as under way.
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
  void watch_leaving(std::shared_ptr<LeaveHook> /*hook*/, OnLeaving /*what*/) override {}
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
  void retain() override { references_.add(); }
  void release() override;

  // MessageChannel: called by a message that is being received.
  int write_now(const void* buffer, size_t size) override;

 private:
  friend class DatagramPort;
  ~DatagramPeer() = default;

  DatagramPort& port_;
  const DatagramAddress address_;
  WFConnection* user_;
  RefCount references_;

  // Guarded by the Channel lock of the port.
  bool replied_ = false;          // the request was replied to, or dropped
  bool cut_ = false;              // nothing is to be sent any more
  bool counted_ = false;          // was counted as cut short
  SeriesWork* series_ = nullptr;  // set while the peer is in the port's open_
  // The links of open_, or of the list that take_late() returns.
  DatagramPeer* next_ = nullptr;
  DatagramPeer* previous_ = nullptr;
  // These are set while the reply waits for room in the socket.
  ServerExchange* exchange_ = nullptr;
  std::vector<struct iovec> vectors_;
  int64_t deadline_ns_ = kNever;
};

// The socket of a server for datagrams. Each datagram that comes is a request, and each reply is a
// datagram that goes back to the sender.
//
// A datagram that is not a whole request is dropped. At most as many requests are under way as the
// server may have connections. At that limit nothing is read, and the kernel drops what its buffer
// does not take. A reply for which the socket has no room waits, at most for the send timeout. Its
// request counts as under way meanwhile, so no more replies wait than requests may be under way.
// With unix sockets no reply waits, because no event says when the receiver has room again: the
// reply fails with EAGAIN.
//
// Life: start(), then shut_down(). When the series of the last request has ended, the port closes,
// calls host.port_closing() (nobody may find it any more), deletes itself and calls
// host.port_gone().
//
// Threads: see Channel. Only the poller's thread reads, parses and closes. The thread that ends the
// series sends the reply.
//
// Invariants, besides those of Channel. There is one reference for each request under way.
// 1. under_way_ counts the exchanges that have begun and whose peer is not gone.
// 2. readable_ stays true until a read finds nothing more. While paused_ is true, reading goes on
//    when a request under way ends.
// 3. The thread that takes a peer out of waiting_, under mutex_, ends its exchange.
// 4. A peer in open_ has not replied: its series is alive as long as mutex_ is held.
class DatagramPort final : public Channel {
 public:
  DatagramPort(ServerHost& host, Poller& poller, UniqueFd fd);

  // Registers with the poller. Returns false and sets errno on failure; the caller calls discard()
  // then.
  bool start();
  void discard() { release(); }

  // Takes no more requests, and closes when those under way have ended. Any thread.
  void shut_down();
  bool shutting_down() const { return shutting_down_.load(std::memory_order_acquire); }

  // Do what those of ServerConnection do, for all requests under way. Return how many counted.
  size_t cut_short(enum WFStopAction action, const std::string& unavailable);
  size_t close_now();

  // The runtime and its pollers have stopped. Ends what the pollers would have ended. The port may
  // be gone when this returns.
  void end_with_runtime();

  int fd() const { return fd_; }
  size_t under_way() const { return under_way_.load(std::memory_order_relaxed); }

 private:
  friend class DatagramPeer;

  static constexpr size_t kReadSize = 64 * 1024;
  static constexpr int kMaxVectors = 64;
  // At most this many in one round, so that a flood of datagrams does not hold up the poller's
  // other work.
  static constexpr int kMaxDatagrams = 64;
  // A few errors may be reports about datagrams that were sent before. After this many errors in
  // one round the port stops reading for kRestNs.
  static constexpr int kMaxErrors = 8;
  static constexpr int64_t kRestNs = 100'000'000;

  ~DatagramPort() override = default;

  // Channel
  void on_ready(uint32_t events, RunnableList& finished) override;
  void on_deadline(bool stopped, RunnableList& finished) override;
  void on_closing() override { host_.port_closing(); }
  void end() override;

  // Called on the poller's thread only.
  void read_requests(RunnableList& finished);
  bool may_read();
  void receive(const DatagramAddress& from, const char* data, size_t size, RunnableList& finished);
  Runnable* begin(DatagramPeer* peer, ServerExchange* exchange, const char* data, size_t size);
  void take_out(DatagramPeer* peer) WF_REQUIRES(mutex_);
  void rest();
  void send_waiting();
  void close_if_done();

  // Called for peers, on any thread.
  int send(const DatagramPeer& peer, const struct iovec* vectors, int count) WF_REQUIRES(mutex_);
  void reply(DatagramPeer* peer, ServerExchange* exchange, const ServerExchange::Reply& reply);
  bool wait_for_room(DatagramPeer* peer, int send_timeout) WF_REQUIRES(mutex_);
  // A request is over. The port may be gone when this returns.
  void request_ended(WFConnection* user);

  // Takes the peers whose time is up out of waiting_, or all of them if `stopped`. Returns the
  // first of a list that is linked by next_. Allocates nothing, because it has to work when memory
  // has run out.
  DatagramPeer* take_late(bool stopped) WF_REQUIRES(mutex_);
  // Ends the exchanges of that list. Returns how many.
  static size_t end_late(DatagramPeer* first, int state, int error);
  void watch_for_room(bool wanted) WF_REQUIRES(mutex_);
  bool update_deadline() WF_REQUIRES(mutex_);

  ServerHost& host_;
  const int fd_;  // open until on_retired(), or end_with_runtime()
  // shutting_down_ publishes nothing, so its acquire and release are to spare. After it was set,
  // the poller is asked to look. Its thread sees the flag and then takes mutex_ to count the
  // requests, so a request that ends later sees the flag under mutex_, too.
  //
  // under_way_ is relaxed: mutex_ orders its changes. Reports read it without mutex_, and may get
  // an old number.
  std::atomic<bool> shutting_down_{false};
  std::atomic<size_t> under_way_{0};  // changed under mutex_

  bool closed_ WF_GUARDED_BY(mutex_) = false;
  bool readable_ WF_GUARDED_BY(mutex_) = false;
  bool paused_ WF_GUARDED_BY(mutex_) = false;
  int64_t rests_until_ns_ WF_GUARDED_BY(mutex_) = kNever;  // kNever: is not resting
  std::deque<DatagramPeer*> waiting_ WF_GUARDED_BY(mutex_);
  DatagramPeer* open_ WF_GUARDED_BY(mutex_) = nullptr;  // a linked list

  long long requests_ = 0;  // poller's thread only
};

}  // namespace workflow
