#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

#include "util/UniqueFd.h"
#include "workflow/EndpointParams.h"

namespace workflow {

// System calls on non-blocking sockets with their awkward answers settled: EINTR is retried,
// a peer that is gone is an errno value and never a signal.

// Bytes read, 0 at the end of input, or -1 with errno (EAGAIN: nothing there now).
ssize_t socket_read(int fd, void* buffer, size_t size);

// Bytes taken, perhaps fewer than offered, or -1 with errno (EAGAIN: no room now).
ssize_t socket_write(int fd, struct iovec* vectors, int count);

// Takes `size` written bytes off the front of the vectors; returns the index of the first that
// still has bytes, `count` when none has.
int consume_vectors(struct iovec* vectors, int count, size_t size);

// Users can pass any number.
constexpr bool is_transport(enum TransportType transport) {
  return transport >= TT_TCP && transport <= TT_SCTP_SSL;
}

// Datagrams, each a message, instead of a stream of bytes.
constexpr bool is_datagram(enum TransportType transport) {
  return transport == TT_UDP;
}

// A non-blocking, close-on-exec socket, or an invalid one with errno: EPROTONOSUPPORT where the
// kernel has no such transport. SCTP is used one-to-one, as a stream (RFC 6458, 4). Unix sockets
// are stream or datagram sockets.
UniqueFd open_socket(enum TransportType transport, int family);

// One that is bound to `address`, and listens if the transport has connections. Listening sockets
// get SO_REUSEADDR, so that a server can restart while old connections linger (socket(7)); for
// datagrams that would let two servers have one port.
UniqueFd listen_on(enum TransportType transport, const struct sockaddr* address, socklen_t length,
                   int backlog);

// Has a bound socket listen, unless it does. False with errno: EINVAL for one that is not bound (a
// TCP socket would listen on a port that nobody knows).
bool make_listen(int fd);

// What became of a connect(2) that was under way: 0, EINPROGRESS, or why it failed.
int socket_error(int fd);

// Of a connection: TCP_NODELAY, or what SCTP calls it. Messages are written whole, so that
// waiting for more bytes to send along would only delay them (tcp(7)).
void set_no_delay(int fd, enum TransportType transport);

// Sets O_NONBLOCK and FD_CLOEXEC. False with errno.
bool set_non_blocking(int fd);

}  // namespace workflow
