#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>

#include "util/UniqueFd.h"
#include "workflow/EndpointParams.h"

namespace workflow {

// System calls on non-blocking sockets, made simpler to use: a call that fails with EINTR is
// repeated, and a peer that has gone causes an errno value but never a signal.

// Returns the number of bytes read, 0 at the end of input, or -1 with errno (EAGAIN: nothing to
// read now).
ssize_t socket_read(int fd, void* buffer, size_t size);

// Returns the number of bytes written, perhaps fewer than offered, or -1 with errno (EAGAIN: no
// room now).
ssize_t socket_write(int fd, struct iovec* vectors, int count);

// Removes `size` written bytes from the front of the vectors. Returns the index of the first vector
// that still has bytes, or `count` if none has.
int consume_vectors(struct iovec* vectors, int count, size_t size);

// Checks a value that comes from a user, who can pass any number.
constexpr bool is_transport(enum TransportType transport) {
  return transport >= TT_TCP && transport <= TT_SCTP_SSL;
}

// Whether the transport has datagrams, each a message of its own, instead of a stream of bytes.
constexpr bool is_datagram(enum TransportType transport) {
  return transport == TT_UDP;
}

// A non-blocking, close-on-exec socket, or an invalid one with errno: EPROTONOSUPPORT if the kernel
// has no such transport. SCTP is used one-to-one, as a stream (RFC 6458, 4). Unix sockets are
// stream or datagram sockets.
UniqueFd open_socket(enum TransportType transport, int family);

// A socket that is bound to `address`, and listens if the transport has connections. Listening
// sockets get SO_REUSEADDR, so that a server can restart while old connections linger (socket(7));
// datagram sockets do not, because two servers could then have the same port.
UniqueFd listen_on(enum TransportType transport, const struct sockaddr* address, socklen_t length,
                   int backlog);

// Makes a bound socket listen, unless it listens already. False with errno: EINVAL for a socket
// that is not bound (a TCP socket would listen on an arbitrary port).
bool make_listen(int fd);

// The result of a connect(2) that was in progress: 0, EINPROGRESS, or the errno value with which it
// failed.
int socket_error(int fd);

// Sets TCP_NODELAY, or the option of SCTP that does the same, on a connection. Messages are written
// whole, so waiting for more bytes to send would only delay them (tcp(7)).
void set_no_delay(int fd, enum TransportType transport);

// Sets O_NONBLOCK and FD_CLOEXEC. False with errno.
bool set_non_blocking(int fd);

}  // namespace workflow
