#include "kernel/LingeringSocket.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <utility>

#include "kernel/Socket.h"

namespace workflow {

namespace {

bool is_tcp(int fd) {
  int protocol = 0;
  socklen_t length = sizeof protocol;
  return ::getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) == 0 &&
         (protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP);
}

// For a socket whose sending side is shut down. Returns whether it is a TCP socket whose peer has
// not acknowledged every byte. The bytes of a unix socket have reached the peer as soon as they are
// written.
bool has_unacknowledged_bytes(int fd) {
  constexpr int kEndOfStream = 1;  // it has a sequence number, as each byte has
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > kEndOfStream && is_tcp(fd);
}

}  // namespace

LingeringSocket::LingeringSocket(Poller& poller, UniqueFd fd, size_t size_limit)
    : poller_(poller), fd_(std::move(fd)), bytes_left_(size_limit) {}

void LingeringSocket::end_connection(Poller& poller, UniqueFd fd, int64_t deadline_ns,
                                     size_t size_limit, bool is_sending) {
  ::shutdown(fd.get(), SHUT_WR);
  if (!is_sending && !has_unacknowledged_bytes(fd.get())) return;
  std::unique_ptr<LingeringSocket> socket(new (std::nothrow)
                                              LingeringSocket(poller, std::move(fd), size_limit));
  // The timer keeps the object alive: even without a deadline, left_queue() ends it when the poller
  // stops.
  if (!socket || poller.add(socket->fd_.get(), EPOLLIN | EPOLLRDHUP, socket.get()) != 0) return;
  if (poller.timers().schedule(socket.get(), std::min(deadline_ns, kNever - 1))) {
    static_cast<void>(socket.release());
  } else {
    poller.remove(socket->fd_.get());
  }
}

// Level-triggered: bytes that one read leaves are reported again, after the events of other
// descriptors.
void LingeringSocket::on_events(uint32_t /*events*/, RunnableList& /*finished*/) {
  constexpr size_t kReadSize = size_t{16} * 1024;
  char buffer[kReadSize];
  const ssize_t n = socket_read(fd_.get(), buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
  if (n <= 0) {
    end();
    return;
  }
  bytes_left_ -= std::min(bytes_left_, static_cast<size_t>(n));
  if (bytes_left_ == 0 && !ending_) {
    poller_.remove(fd_.get());
  }
}

void LingeringSocket::left_queue(bool /*stopped*/, RunnableList& /*finished*/) {
  end();
}

void LingeringSocket::end() {
  if (!std::exchange(ending_, true)) {
    poller_.timers().unschedule(this);
    poller_.retire(fd_.get(), this);
  }
}

}  // namespace workflow
