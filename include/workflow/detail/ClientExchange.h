#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "workflow/EndpointParams.h"
#include "workflow/ProtocolMessage.h"
#include "workflow/URIParser.h"
#include "workflow/detail/Ref.h"
#include "workflow/detail/Runnable.h"

class WFConnection;

namespace workflow {

class ClientConnection;
class ClientSession;
class SessionLocation;

// What a client says on each new connection before its first request, and what the peer must
// answer: a login, for instance. Connections that were greeted differently are not shared.
//
// Constant after construction, and used by any thread.
class ClientGreeting {
 public:
  virtual ~ClientGreeting() = default;

  // The bytes to send. They are also what tells one greeting from another.
  virtual const std::string &bytes() const = 0;
  // Returns a message that receives the answer. Its append() fails if the answer is a refusal, with
  // an errno value, or with the WFT_ERR_* code with which the request is to end. Null if there is
  // no memory.
  virtual std::unique_ptr<protocol::ProtocolMessage> new_answer() const = 0;
};

// The target of a client's request.
struct ClientTarget {
  enum TransportType transport = TT_TCP;
  // A name or a numeric address, and a port. If `address_length` is not 0, `address` is used
  // instead.
  std::string host;
  unsigned short port = 0;
  struct sockaddr_storage address = {};
  socklen_t address_length = 0;
  // TLS: the context, where null means the library's own, and the host whose name the certificate
  // must have. If `verified_host` is empty, that is `host`.
  SSL_CTX *ssl_ctx = nullptr;
  std::string verified_host;
  // TLS: the application protocol that is offered (ALPN, RFC 7301). Null: none.
  const char *alpn_protocol = nullptr;
  // The CONNECT request (RFC 9110, 9.3.6) that is sent to a proxy first. The proxy must answer it
  // with a 2xx status. Empty: there is no such request.
  std::string tunnel_request;
  // What is said first, after the tunnel and TLS. Null: nothing.
  std::shared_ptr<const ClientGreeting> greeting;
  // HTTP: the value of Host if the user does not set it. Empty: host and port.
  std::string authority;
  struct EndpointParams params;
  // When the library stops, an exchange goes on that no time limit applies to at that moment. A
  // Service must end it in finish_work(). The service is added after the exchange has begun, so
  // that it comes before the clients, which wait for all exchanges.
  bool outlasts_stop = false;
  // If this is not 0, requests to the target end with SYS_ERROR and this errno.
  int error = 0;

  bool is_tls() const { return transport == TT_TCP_SSL || transport == TT_SCTP_SSL; }

  // Return a target with the process's settings. Its error is EINVAL for a transport that is not
  // one of the enum, for a null or empty address, and for one that is too long for any family.
  static ClientTarget of(enum TransportType transport, const std::string &host,
                         unsigned short port);
  static ClientTarget of(enum TransportType transport, const struct sockaddr *address,
                         socklen_t length);
  // Return 0, or a WFT_ERR_URI_* code.
  static int parse(enum TransportType transport, const std::string &url, ClientTarget *target);
  static int parse(enum TransportType transport, const ParsedURI &uri, ClientTarget *target);
};

// The time limits of one exchange, in ms. -1 means unlimited.
struct ClientTimes {
  int send = -1;           // for the whole request
  int receive = -1;        // for the response, from the end of the request or from renew()
  int first_byte = -2;     // for its first byte; -2: the endpoint's response_timeout
  int between_reads = -2;  // between two reads of it; -2: the endpoint's response_timeout
  int after_renew = -2;    // for the first byte after renew(); -2: as first_byte
  int whole = -1;          // for the whole response, from the end of the request
  // Whether `receive` begins only with the first byte of the response or after renew().
  bool receive_from_first_byte = false;
  int keep_alive = 0;  // how long the connection may stay idle afterwards; 0: it is closed
};

// One request and its response as the connections see them. It is the bridge between the tasks,
// which are templates, and the connections, which are not. For the implementation of clients.
//
// Life: between begin() and ended() the exchange belongs to the library, and one thread at a time
// calls it.
class ClientExchange {
 public:
  ClientExchange(const ClientExchange &) = delete;
  ClientExchange &operator=(const ClientExchange &) = delete;

  // Return the message to send on the connection that was found, and the message to receive into.
  // Both functions are called again for each further try. If the request is null, errno says why
  // there is none.
  virtual protocol::ProtocolMessage *next_request() = 0;
  virtual protocol::ProtocolMessage *next_response() = 0;
  virtual ClientTimes times() const = 0;

  // The peer will send no more: returns whether the bytes received are a whole response.
  virtual bool completes_at_end_of_input() { return false; }
  // After a whole response: whether the connection may carry another exchange.
  virtual bool leaves_connection_usable() { return true; }
  // Whether the request may be sent again if no response arrived, though the peer may have received
  // the request.
  virtual bool is_repeatable() { return true; }

  // Called after bytes of the response have arrived, and after resume(). If it returns false the
  // rest of the response is not wanted: the connection is closed, and the exchange ends as if the
  // response had ended there.
  virtual bool wants_more() { return true; }
  // Called after bytes have arrived, if more are wanted. Returns what a handler thread must run
  // before anything else is read, or null. That runnable calls resume() when it has finished. Until
  // then it owns the response, the time limits are suspended, and the exchange does not end.
  virtual Runnable *delivery() { return nullptr; }

  // Called on the poller's thread after ask_to_send(), and again each time that everything which it
  // has returned is sent, until it returns nothing. Appends to `*bytes`, which is empty, what is to
  // be sent next: some 100 KiB at most.
  virtual void take_more_to_send(std::string * /*bytes*/) {}

  // Called at the end. Returns what a handler thread must run, or null if another thread posts
  // that.
  virtual Runnable *ended(int state, int error, int timeout_reason) = 0;

  // The errno value with which the exchange must end now, or 0. Only used after allow_cancel(). Any
  // thread; takes no lock.
  virtual int end_reason() const { return 0; }

 protected:
  ClientExchange();
  // Releases the connection.
  virtual ~ClientExchange();

  // Starts the exchange, which leads to one call of ended(). That may happen within this call, but
  // what ended() returns is only posted to the handler threads. A failed try that may be repeated
  // is repeated up to `retry_max` times. May be called again after ended().
  void begin(const ClientTarget &target, int retry_max);

  // Called before begin(). From now on, until ended() is called, cancel() may be called. Returns
  // false if there is no memory.
  bool allow_cancel();
  // Called once end_reason() returns `reason`, with no lock held: the exchange ends soon with that
  // error, unless it ends otherwise first. The caller keeps the exchange alive during the call.
  void cancel(int reason);

  // Called by the runnable of delivery() as the last thing that it does with the exchange.
  void resume();

  // Makes take_more_to_send() be called soon. Any thread, once bytes of the response have come and
  // until ended() is called; the caller makes sure of both.
  void ask_to_send();

  // These are about the last connection that was tried. Without one user_connection() returns null,
  // and peer_addr() returns -1 with errno ENOTCONN.
  WFConnection *user_connection() const;
  int peer_addr(struct sockaddr *addr, socklen_t *addrlen) const;
  // Returns how many exchanges the connection carried before this one.
  long long sequence() const { return sequence_; }
  // From ended() to the next begin(): whether the peer may have received a part of the request, in
  // any of the tries.
  bool may_have_been_sent() const { return may_have_been_sent_; }

 private:
  friend class ClientSession;

  std::unique_ptr<SessionLocation> location_;  // set by allow_cancel()
  Ref<ClientConnection> connection_;
  long long sequence_ = 0;
  bool may_have_been_sent_ = false;
};

}  // namespace workflow
