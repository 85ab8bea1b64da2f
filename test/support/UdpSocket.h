#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "support/Loopback.h"
#include "util/UniqueFd.h"

namespace test_support {

// A datagram socket on a port of 127.0.0.1, by system calls alone. Reads block until a datagram
// comes, for 20 s or the time that is given.
class UdpSocket {
 public:
  UdpSocket() : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    const struct sockaddr_in address = at(0);
    ::bind(fd_.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address);
    port_ = port_of(fd_.get());
    set_patience_ms(20'000);
  }
  // Connects the socket: it sends to this port, and receives only from there.
  explicit UdpSocket(uint16_t peer, const char* host = "127.0.0.1") : UdpSocket() {
    connect_to(peer, host);
  }

  static struct sockaddr_in at(uint16_t port) { return loopback(port); }

  void connect_to(uint16_t peer, const char* host = "127.0.0.1") {
    struct sockaddr_in address = at(peer);
    ::inet_pton(AF_INET, host, &address.sin_addr);
    ::connect(fd_.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof address);
  }

  int fd() const { return fd_.get(); }
  uint16_t port() const { return port_; }
  void set_patience_ms(int ms) {
    const struct timeval patience = {ms / 1000, ms % 1000 * 1000};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }

  bool send(std::string_view bytes) {
    return ::send(fd_.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
  }
  bool send_to(uint16_t port, std::string_view bytes) {
    const struct sockaddr_in address = at(port);
    return ::sendto(fd_.get(), bytes.data(), bytes.size(), 0,
                    reinterpret_cast<const struct sockaddr*>(&address),
                    sizeof address) == static_cast<ssize_t>(bytes.size());
  }

  // Returns the next datagram, or nothing if none comes in time or there is an error.
  std::optional<std::string> receive(uint16_t* from = nullptr) {
    std::string buffer(65536, '\0');
    struct sockaddr_in address = {};
    socklen_t length = sizeof address;
    const ssize_t n = ::recvfrom(fd_.get(), buffer.data(), buffer.size(), 0,
                                 reinterpret_cast<struct sockaddr*>(&address), &length);
    if (n < 0) return std::nullopt;
    if (from) {
      *from = ntohs(address.sin_port);
    }
    buffer.resize(static_cast<size_t>(n));
    return buffer;
  }
  // Returns whether a datagram is there, or comes within this time.
  bool has_datagram(int ms) const {
    struct pollfd readable = {fd_.get(), POLLIN, 0};
    return ::poll(&readable, 1, ms) > 0;
  }
  // Returns whether no datagram comes for this long.
  bool is_silent(int ms) {
    set_patience_ms(ms);
    const bool silent = !receive();
    set_patience_ms(20'000);
    return silent;
  }

 private:
  workflow::UniqueFd fd_;
  uint16_t port_ = 0;
};

}  // namespace test_support
