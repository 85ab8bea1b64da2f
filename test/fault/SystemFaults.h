#pragma once

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <vector>

#include "fault/Interrupts.h"
#include "kernel/ThreadContext.h"
#include "support/RealFunction.h"

// System calls that fail when a test says so. Included by the one source file of a program: its
// definitions stand before those of the C library.

namespace fault {

// The error that the next `accept_failures` calls of accept4(2) answer; negative: all of them.
inline std::atomic<int> accept_error{0};
inline std::atomic<int> accept_failures{0};
inline std::atomic<int> accept_calls{0};

// The error that the next calls of sendmsg(2) and recvmsg(2) answer, so many of each; negative:
// all.
inline std::atomic<int> send_error{0};
inline std::atomic<int> send_failures{0};
inline std::atomic<int> receive_error{0};
inline std::atomic<int> receive_failures{0};
inline std::atomic<int> receive_calls{0};
// Counts down with each call by the library's threads; the call that makes it 0 is interrupted. If
// it is 0 from the beginning, no call is interrupted.
inline std::atomic<int> interrupt_after{0};
// Whether those of this thread count, too.
inline constinit thread_local bool counts_here = false;
// The error that the next `watch_failures` calls of epoll_ctl(2) that add a descriptor answer.
inline std::atomic<int> watch_error{0};
inline std::atomic<int> watch_failures{0};
// Called by each of these calls, if set before they fail.
inline std::function<void()> before_watch_failure;
// How many calls of epoll_ctl(2) wanted to remove a descriptor that was not there.
inline std::atomic<int> vain_removals{0};
// The most that one call may send; 0: no limit.
inline std::atomic<size_t> send_at_most{0};

inline bool is_interrupted_in_its_turn() {
  const workflow::ThreadContext& context = workflow::ThreadContext::current();
  if (interrupt_after == 0 || !(context.pool || context.poller || counts_here)) return false;
  if (--interrupt_after != 0) return false;
  interrupts++;
  errno = EINTR;
  return true;
}

inline bool interrupted() {
  return is_interrupted_in_its_turn() || is_interrupted_at_random();
}

// Whether this call is one of those that fail.
inline bool fails(std::atomic<int>& failures) {
  int left = failures;
  while (left > 0 && !failures.compare_exchange_weak(left, left - 1)) {
  }
  return left != 0;
}

}  // namespace fault

extern "C" {

int accept4(int fd, struct sockaddr* address, socklen_t* length, int flags) {
  static const auto call = test_support::real_function<decltype(::accept4)>("accept4");
  fault::accept_calls++;
  if (fault::interrupted()) return -1;
  if (fault::accept_failures != 0) {
    if (fault::accept_failures > 0) {
      fault::accept_failures--;
    }
    errno = fault::accept_error;
    return -1;
  }
  return call(fd, address, length, flags);
}

ssize_t recv(int fd, void* buffer, size_t size, int flags) {
  static const auto call = test_support::real_function<decltype(::recv)>("recv");
  return fault::interrupted() ? -1 : call(fd, buffer, size, flags);
}

ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  static const auto call = test_support::real_function<decltype(::recvmsg)>("recvmsg");
  fault::receive_calls++;
  if (fault::interrupted()) return -1;
  if (fault::fails(fault::receive_failures)) {
    errno = fault::receive_error;
    return -1;
  }
  return call(fd, message, flags);
}

ssize_t recvfrom(int fd, void* buffer, size_t size, int flags, struct sockaddr* from,
                 socklen_t* length) {
  static const auto call = test_support::real_function<decltype(::recvfrom)>("recvfrom");
  return fault::interrupted() ? -1 : call(fd, buffer, size, flags, from, length);
}

int connect(int fd, const struct sockaddr* address, socklen_t length) {
  static const auto call = test_support::real_function<decltype(::connect)>("connect");
  const int result = call(fd, address, length);
  // An interrupted one goes on all the same (connect(2)).
  if (result < 0 && errno == EINPROGRESS && !fault::interrupted()) {
    errno = EINPROGRESS;
  }
  return result;
}

ssize_t write(int fd, const void* buffer, size_t size) {
  static const auto call = test_support::real_function<decltype(::write)>("write");
  return fault::interrupted() ? -1 : call(fd, buffer, size);
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event* event) {
  static const auto call = test_support::real_function<decltype(::epoll_ctl)>("epoll_ctl");
  if (operation == EPOLL_CTL_ADD && fault::watch_failures > 0) {
    fault::watch_failures--;
    if (fault::before_watch_failure) {
      fault::before_watch_failure();
    }
    errno = fault::watch_error;
    return -1;
  }
  const int result = call(epoll, operation, fd, event);
  fault::vain_removals += operation == EPOLL_CTL_DEL && result != 0 && errno == ENOENT;
  return result;
}

int epoll_wait(int fd, struct epoll_event* events, int max, int timeout) {
  static const auto call = test_support::real_function<decltype(::epoll_wait)>("epoll_wait");
  return fault::interrupted() ? -1 : call(fd, events, max, timeout);
}

ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  static const auto call = test_support::real_function<decltype(::sendmsg)>("sendmsg");
  if (fault::interrupted()) return -1;
  if (fault::fails(fault::send_failures)) {
    errno = fault::send_error;
    return -1;
  }
  size_t left = fault::send_at_most;
  if (left == 0) return call(fd, message, flags);
  std::vector<struct iovec> vectors(message->msg_iov, message->msg_iov + message->msg_iovlen);
  for (struct iovec& vector : vectors) {
    vector.iov_len = vector.iov_len < left ? vector.iov_len : left;
    left -= vector.iov_len;
  }
  struct msghdr shortened = *message;
  shortened.msg_iov = vectors.data();
  return call(fd, &shortened, flags);
}

}  // extern "C"
