#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "util/UniqueFd.h"

namespace test_support {

// 127.0.0.1. Port 0 lets the system choose one.
inline struct sockaddr_in loopback(uint16_t port = 0) {
  struct sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// The port of a socket that is bound. Zero if it is not.
inline uint16_t port_of(int fd) {
  struct sockaddr_in address = {};
  socklen_t length = sizeof address;
  ::getsockname(fd, reinterpret_cast<struct sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

// The port on which a server listens. Zero if it does not.
template <class Server>
requires requires(const Server& server) {
  server.get_listen_addr(nullptr, nullptr);
}
uint16_t port_of(const Server& server) {
  struct sockaddr_storage address = {};
  socklen_t length = sizeof address;
  server.get_listen_addr(reinterpret_cast<struct sockaddr*>(&address), &length);
  // The port stands at the same place in both families (RFC 3493, 3.3).
  return ntohs(reinterpret_cast<const struct sockaddr_in*>(&address)->sin_port);
}

// A TCP socket that is bound to a free port of 127.0.0.1 and does not listen. Nobody else gets the
// port, but for a program that binds it with SO_REUSEADDR, as all servers do.
inline workflow::UniqueFd keep_port() {
  workflow::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const struct sockaddr_in address = loopback();
  ::bind(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address);
  return fd;
}

// A TCP socket that listens on a free port of 127.0.0.1. The connections that it accepts inherit
// the sizes of its buffers; zero leaves a size to the system. Not valid on failure.
inline workflow::UniqueFd listen_on_loopback(int backlog = 128, int receive_buffer = 0,
                                             int send_buffer = 0) {
  workflow::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (receive_buffer > 0) {
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }
  if (send_buffer > 0) {
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
  }
  const struct sockaddr_in address = loopback();
  if (::bind(fd.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd.get(), backlog) != 0) {
    fd.reset();
  }
  return fd;
}

}  // namespace test_support
