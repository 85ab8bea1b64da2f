#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "workflow/WFConnection.h"
#include "workflow/WFServerTask.h"

namespace workflow {

class LeaveHook;
class ReplyStream;
class ServerHost;

// Who a request came from, as its exchange sees it: where the reply goes. A connection, or the
// sender of a datagram. See ServerExchange for what each call means and when it comes.
//
// References: whoever holds one may call; the series of a request holds one until it has ended.
class ServerPeer {
 public:
  virtual void send_reply(ServerExchange* exchange, const ServerExchange::Reply& reply) = 0;
  virtual void drop() = 0;
  virtual int push(const void* buffer, size_t size) = 0;
  virtual int peer_addr(struct sockaddr* address, socklen_t* length) const = 0;
  virtual bool peer_closed() const = 0;
  // Before the reply: what happens when the client leaves, at once if it has. `hook` may be null.
  virtual void watch_leaving(std::shared_ptr<LeaveHook> hook, bool ends_timers) = 0;

  virtual bool can_stream() const = 0;
  // The reply is sent by push() from now on; `head` goes first. 0, or -1 with errno. `stream` is
  // told of room, leaving and failure until its exchange ends.
  virtual int begin_stream(std::shared_ptr<ReplyStream> stream, const std::string& head,
                           int send_timeout) = 0;
  // Instead of send_reply(); `last` lives for ever.
  virtual void end_stream(ServerExchange* exchange, const ServerExchange::Reply& reply,
                          std::string_view last) = 0;
  // What was pushed and has not left yet.
  virtual size_t unsent() const = 0;
  virtual void set_heartbeat(int ms) = 0;
  // The server stops: it will take no further request from here.
  virtual bool shutting_down() const = 0;
  virtual WFConnection* user() const = 0;
  virtual ServerHost& host() const = 0;

  virtual void retain() = 0;
  virtual void release() = 0;

 protected:
  ~ServerPeer() = default;
};

}  // namespace workflow
