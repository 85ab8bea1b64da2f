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
// Not thread-safe: the owner makes one call at a time. The owner watches the descriptor
// edge-triggered for both directions, and after each event repeats every call that has answered
// EAGAIN: over TLS a read may have to write first, and a write may have to read.
class Stream {
 public:
  explicit Stream(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.valid(); }
  void close() {
    tls_.reset();
    fd_.reset();
  }
  // Gives up the socket as it is. The stream must not be used any more.
  UniqueFd take_fd() { return std::move(fd_); }

  // Sends all bytes over TLS. To be called before the first byte. False if memory has run out.
  bool begin_tls(SSL_CTX* context, TlsStream::Role role) {
    tls_ = TlsStream::create(context, fd(), role);
    return tls_ != nullptr;
  }
  // Null if the stream does not use TLS.
  TlsStream* tls() const { return tls_.get(); }

  // See TlsStream::handshake(); 0 without TLS.
  int handshake() { return tls_ ? tls_->handshake() : 0; }

  // Returns the number of bytes read, 0 at the end of input, or -1 with errno (EAGAIN: nothing to
  // read now; EPROTO: see TlsStream::tls_error()). Sets `*drained` to whether more can be read only
  // after the next event.
  ssize_t read(void* buffer, size_t size, bool* drained);

  // Returns the number of bytes taken, perhaps fewer than offered, or -1 with errno (EAGAIN: no
  // room now). Bytes that were taken must not be offered again, but they are sent only once flush()
  // returns 0.
  ssize_t write(struct iovec* vectors, int count);
  int flush() { return tls_ ? tls_->flush() : 0; }
  size_t unsent_bytes() const { return tls_ ? tls_->unsent_bytes() : 0; }

  // Ends the sending side. The peer's bytes can still be read. If `whole` is false, a peer over TLS
  // can tell that the data was cut short.
  void shut_down_write(bool whole = true);

 private:
  UniqueFd fd_;
  std::unique_ptr<TlsStream> tls_;
};

}  // namespace workflow
