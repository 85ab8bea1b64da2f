#pragma once

#include <sys/socket.h>

#include <cstddef>

enum TransportType { TT_TCP, TT_UDP, TT_SCTP, TT_TCP_SSL, TT_SCTP_SSL };

// The settings of a client for one endpoint (an address and a port). An aggregate to copy and
// change; its defaults are ENDPOINT_PARAMS_DEFAULT. Times are in milliseconds. A negative time
// means unlimited. A time that has passed ends the task with SYS_ERROR/ETIMEDOUT, unless another
// try follows.
//
// While there are max_connections connections to the endpoint, further requests wait in line.
// connect_timeout limits that wait. It also limits each attempt to connect to one address, with the
// tunnel through a proxy, and ssl_connect_timeout limits the TLS handshake after it. If an attempt
// or a handshake takes too long, the host's next address is tried, and after the last address
// `retry_max` counts. response_timeout limits the wait for the first byte of the response, and the
// time between two reads of it.
struct EndpointParams {
  int address_family = AF_UNSPEC;
  size_t max_connections = 200;
  int connect_timeout = 10 * 1000;
  int response_timeout = 10 * 1000;
  int ssl_connect_timeout = 10 * 1000;
  // TLS: tells the server which host is wanted (SNI, RFC 6066, section 3). Most servers need that.
  bool use_tls_sni = true;
  // The largest response in bytes, as a task keeps the whole response in memory. A larger one ends
  // the task with EMSGSIZE. This has no effect on a task whose response has a set_size_limit() of
  // its own, or on chunked tasks, which keep nothing. SIZE_MAX means unlimited.
  size_t response_size_limit = size_t{1024} * 1024 * 1024;
};

inline constexpr struct EndpointParams ENDPOINT_PARAMS_DEFAULT {};
