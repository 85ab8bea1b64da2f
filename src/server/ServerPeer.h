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

// The client that sent a request, as the request's exchange sees it: a connection, or the sender of
// a datagram. The reply goes there. See ServerExchange for what each call means and when it comes.
//
// References: a caller needs one. The series of a request holds one until it has ended.
class ServerPeer {
 public:
  virtual void send_reply(ServerExchange* exchange, const ServerExchange::Reply& reply) = 0;
  virtual void drop() = 0;
  virtual int push(const void* buffer, size_t size) = 0;
  virtual int peer_addr(struct sockaddr* address, socklen_t* length) const = 0;
  virtual bool peer_closed() const = 0;
  // What ends in the scope of the request when the client leaves.
  enum class OnLeaving { kNothing, kEndTimers, kEndScope };
  // Called before the reply. Says what happens when the client leaves. A `hook` that is not null
  // replaces the hook of an earlier call. Of all values of `what`, the one that ends the most
  // counts. If the client has left already, it happens soon.
  virtual void watch_leaving(std::shared_ptr<LeaveHook> hook, OnLeaving what) = 0;

  virtual bool can_stream() const = 0;
  // The reply is sent by push() from now on; `head` is sent first. Returns 0, or -1 with errno.
  // Until the exchange ends, `stream` is called when there is room, when the client leaves and when
  // sending fails.
  virtual int begin_stream(std::shared_ptr<ReplyStream> stream, const std::string& head,
                           int send_timeout) = 0;
  // Called instead of send_reply(). `last` must stay valid for ever.
  virtual void end_stream(ServerExchange* exchange, const ServerExchange::Reply& reply,
                          std::string_view last) = 0;
  // How many bytes were pushed and have not been sent yet.
  virtual size_t unsent() const = 0;
  virtual void set_heartbeat(int ms) = 0;
  // Whether no further request will be taken from this client, because the server stops.
  virtual bool shutting_down() const = 0;
  virtual WFConnection* user() const = 0;
  virtual ServerHost& host() const = 0;

  virtual void retain() = 0;
  virtual void release() = 0;

 protected:
  ~ServerPeer() = default;
};

}  // namespace workflow
