#pragma once

#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/RealFunction.h"

// A process that is killed at a certain step of what it exchanges with servers. Included by the one
// source file of a program: its definitions stand before those of the C library. The steps of a
// call are:
//
//   sendmsg(2)   before it, in its middle, when half of the bytes are sent, and after it
//   recv(2)      before it and after it, if there are bytes
//
// The library calls no other functions to exchange bytes without TLS.

namespace socket_steps {

// How many steps the process takes before it is killed. A negative number means that it is not.
inline std::atomic<int64_t> left{-1};

inline bool is_last() {
  return left >= 0 && left.fetch_sub(1) == 0;
}

[[noreturn]] inline void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) {
    ::pause();
  }
}

// The first `size` bytes of the vectors.
inline std::vector<struct iovec> first_of(const struct msghdr& message, size_t size) {
  std::vector<struct iovec> vectors(message.msg_iov, message.msg_iov + message.msg_iovlen);
  for (struct iovec& vector : vectors) {
    vector.iov_len = std::min(vector.iov_len, size);
    size -= vector.iov_len;
  }
  return vectors;
}

inline size_t size_of(const struct msghdr& message) {
  size_t size = 0;
  for (size_t i = 0; i < message.msg_iovlen; i++) {
    size += message.msg_iov[i].iov_len;
  }
  return size;
}

}  // namespace socket_steps

extern "C" {

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  static const auto call = test_support::real_function<decltype(::sendmsg)>("sendmsg");
  if (socket_steps::is_last()) {
    socket_steps::die();
  }
  if (socket_steps::is_last()) {
    std::vector<struct iovec> vectors =
        socket_steps::first_of(*message, socket_steps::size_of(*message) / 2);
    struct msghdr half = *message;
    half.msg_iov = vectors.data();
    call(fd, &half, flags);
    socket_steps::die();
  }
  const ssize_t n = call(fd, message, flags);
  if (n > 0 && socket_steps::is_last()) {
    socket_steps::die();
  }
  return n;
}

ssize_t recv(int fd, void* buffer, size_t size, int flags) {
  static const auto call = test_support::real_function<decltype(::recv)>("recv");
  char first = 0;
  if (socket_steps::left < 0 || call(fd, &first, 1, flags | MSG_PEEK) <= 0) {
    return call(fd, buffer, size, flags);
  }
  if (socket_steps::is_last()) {
    socket_steps::die();
  }
  const ssize_t n = call(fd, buffer, size, flags);
  if (n > 0 && socket_steps::is_last()) {
    socket_steps::die();
  }
  return n;
}

}  // extern "C"
