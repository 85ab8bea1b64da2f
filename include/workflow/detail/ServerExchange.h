#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "workflow/ProtocolMessage.h"
#include "workflow/WFConnection.h"
#include "workflow/WFScope.h"
#include "workflow/WFServerParams.h"

namespace workflow {

class LeaveHook;
class ReplyStream;
class ServerPeer;

// One request and its reply as the connection sees them. It is the bridge between the tasks, which
// are templates, and the connections, which are not. For the implementation of servers.
//
// Life: the connection creates the exchange with the first byte of a request and owns it while
// receiving. With begin() it becomes a task of a series, which deletes it; the series keeps the
// connection alive. From then on it ends with exactly one call of send_reply() or drop(). Its
// destruction counts as drop().
class ServerExchange {
 public:
  struct Reply {
    bool keep_alive;         // the connection may carry another exchange
    int send_timeout;        // ms; -1: unlimited; below -1: as the server's params say
    int keep_alive_timeout;  // ms; -1: unlimited
  };

  // The form of a reply that is sent piece by piece.
  struct StreamForm {
    bool keep_alive;  // as in Reply
    bool chunked;
    bool discards;      // the reply has no body: what is written is dropped
    std::string first;  // the first bytes of the body
  };

  virtual protocol::ProtocolMessage *request() = 0;
  virtual protocol::ProtocolMessage *response() = 0;

  // Prepares the request for receiving. Called before the first byte.
  virtual void prepare_request(const WFServerParams &params) = 0;

  // While receiving: whether the part of the request that decides about the rest has arrived.
  virtual bool is_header_complete() = 0;

  // Returns what to send before the connection is closed because the request cannot be served. It
  // may be empty. If `timed_out`, the request did not arrive in time; otherwise it was malformed or
  // not allowed.
  virtual std::string refusal(bool timed_out) = 0;

  // Called when the request is complete. Returns what a handler thread must run; that leads to
  // send_reply() or drop(). `keep_alive_timeout` applies unless the task's user sets another; it is
  // in ms, and -1 means unlimited.
  virtual Runnable *begin(long long seq, int keep_alive_timeout) = 0;

  // For an exchange that has begun, and has neither replied nor been dropped: the series for which
  // the reply waits.
  virtual SeriesWork *series() = 0;

  // Called once after send_reply(), perhaps before it returns, when the reply has been sent or has
  // failed.
  virtual void reply_ended(int state, int error) = 0;

  // Deletes an exchange that has not begun.
  virtual void abandon() = 0;

  void set_peer(ServerPeer *peer) { peer_ = peer; }

  // The key, compared by its address, for which SeriesWork::get_specific() returns the identity of
  // the server.
  static const char kHostKey[];

 protected:
  virtual ~ServerExchange() = default;

  // Sends response(). A call of reply_ended() follows.
  void send_reply(const Reply &reply);
  // Ends the exchange without a reply: the connection is closed.
  void drop();
  // Whether the connection will not carry another exchange because the server is being stopped.
  bool connection_is_closing() const;

  int peer_addr(struct sockaddr *addr, socklen_t *addrlen) const;
  int push_bytes(const void *buf, size_t size);
  bool peer_closed() const;
  void call_when_closed(std::function<void()> hook);
  void cancel_when_closed();
  void cancel_timers_when_closed();

  // From now on the reply is sent piece by piece, its head first. Returns null with errno on
  // failure.
  std::shared_ptr<ReplyStream> open_stream(const StreamForm &form, bool of_events,
                                           const Reply &reply);
  bool can_stream() const;
  bool is_streaming() const { return stream_ != nullptr; }
  // Ends the writing of pieces. Returns 0, or the errno with which the stream had already ended.
  int stop_stream();
  // Called after stop_stream(), in place of send_reply().
  void end_stream();
  WFConnection *user_connection() const;

  ServerPeer *peer() const { return peer_; }
  static void retain(ServerPeer *peer);
  static void release(ServerPeer *peer);
  static void *host_of(ServerPeer *peer);
  // A scope for a request. Throws std::bad_alloc.
  static WFScope new_scope(ServerPeer *peer);
  // The scope in which a series runs, if any. `series` may be null.
  static WFScope scope_of(const SeriesWork *series);

 private:
  ServerPeer *peer_ = nullptr;
  std::shared_ptr<LeaveHook> leave_hook_;
  std::shared_ptr<ReplyStream> stream_;
  Reply stream_reply_ = {};
};

}  // namespace workflow
