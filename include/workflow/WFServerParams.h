#pragma once

#include <cstddef>

#include "workflow/EndpointParams.h"
#include "workflow/HttpLimits.h"

// What happens to the replies that are still delayed when the time limit of a stop has passed.
enum WFStopAction {
  // The scopes of the requests end with ECANCELED (WFScope.h), and so does everything that their
  // series wait for. The replies are sent as they are when the series have ended.
  WF_STOP_FINISH,
  // The client receives an answer that says the service is unavailable (HTTP: 503). If the protocol
  // has no such answer, or the reply has begun, the connection is closed as for WF_STOP_DROP.
  // The scopes end as above; the tasks of the requests end with SYS_ERROR and ECANCELED.
  WF_STOP_ANSWER,
  // The connection is closed. Everything else is as for WF_STOP_ANSWER.
  WF_STOP_DROP,
};

// The result of a stop with a time limit.
struct WFStopResult {
  size_t cut_short;  // replies that were still delayed at the limit, or were cut off after it
  // Requests whose series still run because no scope can end what holds them up, such as a function
  // of a go task. wait_finish() waits for them, and so does the server's destructor.
  size_t running;
};

// Times are in ms, sizes in bytes. A time of -1 means unlimited.
struct WFServerParams {
  // With TT_UDP each datagram is a request and each reply is another datagram (docs/protocols.md).
  // TT_SCTP works where the kernel supports it. Whether the server speaks TLS depends on the
  // certificate.
  enum TransportType transport_type;
  // At the limit, a new connection closes the one that has been idle for longest. If none is idle,
  // the new one is accepted and closed at once. The limit is never more than the descriptor limit
  // less 64. For datagrams it limits the requests under way; while they are that many, nothing is
  // read.
  size_t max_connections;
  // The longest time between two reads of a request's body.
  int peer_response_timeout;
  // Limits a whole request, from its first byte, in addition to the limits below.
  int receive_timeout;
  // The longest time between a reply and the next request. With 0 each connection carries one
  // request.
  int keep_alive_timeout;
  // HTTP: the largest body of a request; the answer to a larger one is 413. Other protocols: the
  // largest request, its head included; the connection of a larger one is closed.
  size_t request_size_limit;
  int ssl_accept_timeout;

  // Limits a request's whole header section, from its first byte. For the first request of a
  // connection the time starts when the connection is established (over TLS, when the handshake is
  // done). HTTP answers 408, here and when a body is too slow.
  int header_timeout;
  // Limits a request's whole body: body_timeout, plus one second for each `body_bytes_per_second`
  // bytes. If that is 0, nothing is added.
  int body_timeout;
  size_t body_bytes_per_second;
  // Limits sending a reply: after this time without progress the connection is closed.
  int send_timeout;
  // After an error answer or the last reply, the server waits until the peer closes. It waits for
  // linger_timeout at most, and reads and drops up to linger_size_limit bytes meanwhile. A server
  // that stops does not wait for that: the library itself then keeps the sockets that still need
  // it, for linger_timeout again at most.
  int linger_timeout;
  size_t linger_size_limit;
  // HTTP: limits of sizes and counts. Its body_bytes is not used; request_size_limit takes its
  // place.
  struct protocol::HttpLimits http_limits;
  // TLS: the application protocol that the server speaks (ALPN, RFC 7301), or several as "a,b", the
  // preferred one first. A client that offers only others is refused. If this is null, the server
  // does not negotiate a protocol. The caller owns the string, and keeps it as long as the server.
  const char *alpn_protocol;
};

static constexpr struct WFServerParams SERVER_PARAMS_DEFAULT = {
    /*.transport_type =*/TT_TCP,
    /*.max_connections =*/10000,
    /*.peer_response_timeout =*/10 * 1000,
    /*.receive_timeout =*/-1,
    /*.keep_alive_timeout =*/60 * 1000,
    /*.request_size_limit =*/static_cast<size_t>(-1),
    /*.ssl_accept_timeout =*/10 * 1000,
    /*.header_timeout =*/10 * 1000,
    /*.body_timeout =*/60 * 1000,
    /*.body_bytes_per_second =*/16 * 1024,
    /*.send_timeout =*/30 * 1000,
    /*.linger_timeout =*/2 * 1000,
    /*.linger_size_limit =*/256 * 1024,
    /*.http_limits =*/{},
    /*.alpn_protocol =*/nullptr,
};
