#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "kernel/TlsStream.h"
#include "util/UniqueFd.h"

namespace workflow {

// The bytes of one connected, non-blocking stream socket, in the clear or over TLS.
//
// Not thread-safe: calls are ordered by the owner, who watches the descriptor for both directions
// by edges and tries everything again that has answered EAGAIN: over TLS a read may have to write
// first, and a write to read.
class Stream {
 public:
  explicit Stream(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.valid(); }
  void close() {
    tls_.reset();
    fd_.reset();
  }
  // The socket as it is. Of the stream nothing may be used any more.
  UniqueFd take_fd() { return std::move(fd_); }

  // Before the first byte: all bytes go over TLS. False without memory.
  bool begin_tls(SSL_CTX* context, TlsStream::Role role) {
    tls_ = TlsStream::create(context, fd(), role);
    return tls_ != nullptr;
  }
  // Null in the clear.
  TlsStream* tls() const { return tls_.get(); }

  // See TlsStream::handshake(); 0 in the clear.
  int handshake() { return tls_ ? tls_->handshake() : 0; }

  // Bytes read, 0 at the end of input, or -1 with errno (EAGAIN: nothing there now; EPROTO: see
  // TlsStream::tls_error()). `*drained`: more can be read only after the next event.
  ssize_t read(void* buffer, size_t size, bool* drained);

  // Bytes taken, perhaps fewer than offered, or -1 with errno (EAGAIN: no room now). What is taken
  // need not be offered again, but has left only when flush() says 0.
  ssize_t write(struct iovec* vectors, int count);
  int flush() { return tls_ ? tls_->flush() : 0; }
  size_t unsent_bytes() const { return tls_ ? tls_->unsent_bytes() : 0; }

  // No more bytes will come from here; the peer's can still be read. Unless `whole`, a peer over
  // TLS can tell that something was cut.
  void shut_down_write(bool whole = true);

 private:
  UniqueFd fd_;
  std::unique_ptr<TlsStream> tls_;
};

}  // namespace workflow
