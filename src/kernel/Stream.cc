#include "kernel/Stream.h"

#include <sys/socket.h>

#include "kernel/Socket.h"

namespace workflow {

ssize_t Stream::read(void* buffer, size_t size, bool* drained) {
  if (tls_) return tls_->read(buffer, size, drained);
  const ssize_t n = socket_read(fd(), buffer, size);
  *drained = n < 0 || static_cast<size_t>(n) < size;
  return n;
}

ssize_t Stream::write(struct iovec* vectors, int count) {
  return tls_ ? tls_->write(vectors, count) : socket_write(fd(), vectors, count);
}

void Stream::shut_down_write(bool whole) {
  if (tls_ && whole) {
    tls_->close_notify();
  }
  ::shutdown(fd(), SHUT_WR);
}

}  // namespace workflow
