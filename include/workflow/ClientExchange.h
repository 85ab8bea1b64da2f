#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <string>

#include "workflow/EndpointParams.h"
#include "workflow/ProtocolMessage.h"
#include "workflow/Runnable.h"
#include "workflow/URIParser.h"

class WFConnection;

namespace workflow {

class ClientConnection;
class ClientSession;
class EarlyEnd;

// Where a client's request goes.
struct ClientTarget {
  enum TransportType transport = TT_TCP;
  // A name or a numeric address, and a port; or, if `address_length` is not 0, the address itself.
  std::string host;
  unsigned short port = 0;
  struct sockaddr_storage address = {};
  socklen_t address_length = 0;
  // TLS: null means the library's own context; the host whose certificate is demanded, `host` if
  // empty.
  SSL_CTX *ssl_ctx = nullptr;
  std::string verified_host;
  // TLS: the application protocol that is offered (ALPN, RFC 7301). Null: none.
  const char *alpn_protocol = nullptr;
  // What a proxy is sent first, and has to answer with a status of 2xx: a CONNECT request (RFC
  // 9110, 9.3.6). Empty: nothing.
  std::string tunnel_request;
  // HTTP: what Host says where the user does not. Empty: host and port.
  std::string authority;
  struct EndpointParams params;
  // Not 0: requests to it end with SYS_ERROR and this errno.
  int error = 0;

  bool is_tls() const { return transport == TT_TCP_SSL || transport == TT_SCTP_SSL; }

  // With the process's settings. The error is EINVAL for a transport that is none of the enum, and
  // for an address that is null, empty or too long for any.
  static ClientTarget of(enum TransportType transport, const std::string &host,
                         unsigned short port);
  static ClientTarget of(enum TransportType transport, const struct sockaddr *address,
                         socklen_t length);
  // 0, or a WFT_ERR_URI_*.
  static int parse(enum TransportType transport, const std::string &url, ClientTarget *target);
  static int parse(enum TransportType transport, const ParsedURI &uri, ClientTarget *target);
};

// The times of one exchange, in ms; -1: unlimited.
struct ClientTimes {
  int send = -1;           // for the whole request
  int receive = -1;        // for the response, since the request was sent, or since renew()
  int first_byte = -2;     // of the response; -2: the endpoint's response_timeout, as between reads
  int between_reads = -2;  // of it; the same
  int after_renew = -2;    // for the first byte since renew(); -2: that of the response
  int whole = -1;          // for the whole response, since the request was sent
  // Whether `receive` counts only from the first byte, of the response or since renew().
  bool receive_from_first_byte = false;
  int keep_alive = 0;  // how long the connection may then stay idle; 0: it is closed
};

// One request and its response as the connections see them; the bridge between the tasks, which
// are templates, and the connections, which are not. For the implementation of clients.
//
// Life: between begin() and ended() it belongs to the library, and one thread at a time calls it.
class ClientExchange {
 public:
  ClientExchange(const ClientExchange &) = delete;
  ClientExchange &operator=(const ClientExchange &) = delete;

  // What to send on the connection that was found, and where to receive; both perhaps several
  // times, if the first try fails. A null request: errno says why there is none.
  virtual protocol::ProtocolMessage *next_request() = 0;
  virtual protocol::ProtocolMessage *next_response() = 0;
  virtual ClientTimes times() const = 0;

  // The peer will send no more: is what came a whole response?
  virtual bool completes_at_end_of_input() { return false; }
  // After a whole response: may the connection carry another exchange?
  virtual bool leaves_connection_usable() { return true; }
  // May the request be sent again if nothing came back, though the peer may have seen it?
  virtual bool is_repeatable() { return true; }

  // Asked after bytes of the response have come, and after resume(). False: the rest of it is not
  // wanted; the connection is closed, and the exchange ends as if that had been all.
  virtual bool wants_more() { return true; }
  // Asked after bytes have come, if more are wanted: what a handler shall run before anything else
  // is read, or null. It calls resume() when it has done that. Meanwhile the response is its own,
  // time limits stand still, and the exchange does not end.
  virtual Runnable *delivery() { return nullptr; }

  // The end. Returns what a handler shall run.
  virtual Runnable *ended(int state, int error, int timeout_reason) = 0;

  // Any thread, which may hold locks; once at most: leads to ended() soon, if nothing else has by
  // then. Whether it was in time ended() finds out from who has called this. Returns what a handler
  // shall run.
  Runnable *end_early(int error);

 protected:
  ClientExchange() = default;
  // Gives back the connection.
  virtual ~ClientExchange();

  // Leads to ended(), never in this call. A failed try that may be repeated is, up to `retry_max`
  // times more. May be called again after ended().
  void begin(const ClientTarget &target, int retry_max);

  // Before begin(): from now on, until ended() has returned, end_early() may be called. False
  // without memory.
  bool allow_early_end();

  // After delivery(); the last thing that its runner does with the exchange.
  void resume();

  // Of the last connection that was tried; null, or -1 with errno ENOTCONN, without one.
  WFConnection *user_connection() const;
  int peer_addr(struct sockaddr *addr, socklen_t *addrlen) const;
  // How many exchanges the connection has carried before.
  long long sequence() const { return sequence_; }

 private:
  friend class ClientConnection;
  friend class ClientSession;

  void give_up_early_end();

  EarlyEnd *early_end_ = nullptr;           // if it may come
  ClientConnection *connection_ = nullptr;  // a reference
  long long sequence_ = 0;
};

}  // namespace workflow
