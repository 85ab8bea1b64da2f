#pragma once

#include <cstddef>

#include "workflow/EndpointParams.h"
#include "workflow/HttpLimits.h"

// What becomes of the replies that are still delayed when the time limit of a stop has passed.
enum WFStopAction {
  // The timers that delay them end at once with ECANCELED, and they are sent as they then are.
  WF_STOP_FINISH,
  // The client is told that the service is unavailable (HTTP: 503), if the protocol has an answer
  // and the reply has not begun; else as WF_STOP_DROP. Timers end as above; the tasks of the
  // requests end with SYS_ERROR, ECANCELED.
  WF_STOP_ANSWER,
  // The connection is closed; all else as WF_STOP_ANSWER.
  WF_STOP_DROP,
};

// How a stop with a time limit went.
struct WFStopResult {
  size_t cut_short;  // replies that were still delayed at the limit, or were cut off after it
  // Requests whose series still run, as something else than a timer holds them up: wait_finish()
  // waits for them, and so does the server's destructor.
  size_t running;
};

// Times are in ms, sizes in bytes. -1 as a time: unlimited.
struct WFServerParams {
  // TT_UDP: each datagram is a request, each reply another one (docs/protocols.md). TT_SCTP: where
  // the kernel has it. Whether TLS is spoken depends on the certificate.
  enum TransportType transport_type;
  // At the limit a new connection closes the one that has been idle for longest. If none is idle,
  // the new one is accepted and closed at once. The limit is never more than the limit of
  // descriptors less 64. For datagrams it limits the requests under way; at the limit nothing is
  // read.
  size_t max_connections;
  // Between two reads of a request's body.
  int peer_response_timeout;
  // For a whole request, from its first byte; besides the limits below.
  int receive_timeout;
  // Between a reply and the next request. 0: each connection carries one request.
  int keep_alive_timeout;
  // The body of a request. HTTP answers 413.
  size_t request_size_limit;
  int ssl_accept_timeout;

  // For a request's whole header section, from its first byte; for that of the first request of a
  // connection from when the connection is there (over TLS, the handshake done).
  // HTTP answers 408, here and for a body that is too slow.
  int header_timeout;
  // For a request's whole body: this much, and a second more for each so many bytes. 0 bytes: no
  // more than this much.
  int body_timeout;
  size_t body_bytes_per_second;
  // For sending a reply: without progress for so long the connection is closed.
  int send_timeout;
  // After an error answer or the last reply, until the peer closes: so long, and so many bytes are
  // read and thrown away meanwhile. A server that stops does not wait for that. The library itself
  // then keeps the sockets that still need it, for so long again at most.
  int linger_timeout;
  size_t linger_size_limit;
  // HTTP: sizes and numbers; its body_bytes is not used, request_size_limit is.
  struct protocol::HttpLimits http_limits;
  // TLS: the application protocol that the server speaks (ALPN, RFC 7301), or several as "a,b", the
  // preferred one first. A client that offers only others is refused. Null: it is not said.
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
