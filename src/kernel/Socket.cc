#include "kernel/Socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>

namespace workflow {

ssize_t socket_read(int fd, void* buffer, size_t size) {
  ssize_t n;
  do {
    n = ::recv(fd, buffer, size, 0);
  } while (n < 0 && errno == EINTR);
  return n;
}

ssize_t socket_write(int fd, struct iovec* vectors, int count) {
  struct msghdr message = {};
  message.msg_iov = vectors;
  message.msg_iovlen = static_cast<size_t>(count);
  ssize_t n;
  do {
    n = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  return n;
}

int consume_vectors(struct iovec* vectors, int count, size_t size) {
  int i = 0;
  while (i < count && size >= vectors[i].iov_len) {
    size -= vectors[i].iov_len;
    i++;
  }
  if (i < count) {
    vectors[i].iov_base = static_cast<char*>(vectors[i].iov_base) + size;
    vectors[i].iov_len -= size;
  }
  return i;
}

namespace {

constexpr bool is_sctp(enum TransportType transport) {
  return transport == TT_SCTP || transport == TT_SCTP_SSL;
}

}  // namespace

UniqueFd open_socket(enum TransportType transport, int family) {
  const int type = is_datagram(transport) ? SOCK_DGRAM : SOCK_STREAM;
  return UniqueFd(
      ::socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, is_sctp(transport) ? IPPROTO_SCTP : 0));
}

UniqueFd listen_on(enum TransportType transport, const struct sockaddr* address, socklen_t length,
                   int backlog) {
  UniqueFd fd = open_socket(transport, address->sa_family);
  if (!fd.valid()) return fd;
  const bool listens = !is_datagram(transport);
  if (listens) {
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  if (::bind(fd.get(), address, length) < 0 || (listens && ::listen(fd.get(), backlog) < 0)) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

bool make_listen(int fd) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) < 0) return false;
  if (listens != 0) return true;
  struct sockaddr_storage address = {};
  length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<struct sockaddr*>(&address), &length) < 0) return false;
  // The port is at the same place for both families.
  const bool has_port = address.ss_family == AF_INET || address.ss_family == AF_INET6;
  if (has_port && reinterpret_cast<const struct sockaddr_in*>(&address)->sin_port == 0) {
    errno = EINVAL;
    return false;
  }
  return ::listen(fd, SOMAXCONN) == 0;
}

int socket_error(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0) return errno;
  if (error == 0) {
    struct sockaddr_storage peer;
    length = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<struct sockaddr*>(&peer), &length) < 0) {
      // The socket was registered before it was connected, so the first event may come while it is
      // not connected.
      return errno == ENOTCONN ? EINPROGRESS : errno;
    }
  }
  return error;
}

void set_no_delay(int fd, enum TransportType transport) {
  const int on = 1;
  // Unix sockets refuse the option, and do not need it.
  if (is_sctp(transport)) {
    // SCTP_NODELAY (RFC 6458, 8.1.5). Its header cannot be included alone.
    constexpr int kNoDelay = 3;
    ::setsockopt(fd, IPPROTO_SCTP, kNoDelay, &on, sizeof on);
  } else if (!is_datagram(transport)) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
}

bool set_non_blocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
         ::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
}

}  // namespace workflow
