#pragma once

#include <openssl/ssl.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>

namespace workflow {

// What OpenSSL reads from and writes to.
struct TlsSocket {
  int fd;
  bool drained;  // the last read took all that was there
};

// TLS over one connected, non-blocking socket, whose descriptor it does not own.
//
// Not thread-safe: calls are ordered by the owner. Every call leaves OpenSSL's error queue of the
// thread as empty as it found it: what one connection left there would be read as the failure of
// the next (SSL_get_error(3)).
class TlsStream {
 public:
  // In tls_error(): a certificate that was refused is its X509_V_ERR_* value, negated; everything
  // else is an error code of OpenSSL (ERR_get_error(3)).
  enum class Role { kServer, kClient };

  // Null without memory. The context may be freed then.
  static std::unique_ptr<TlsStream> create(SSL_CTX* context, int fd, Role role);
  ~TlsStream();

  // Of a client, before the handshake: only a certificate for `host`, a name or a numeric address,
  // will do, if the context verifies at all; a name is also sent to the server if `names_host`
  // (SNI). False without memory.
  bool expect_host(const char* host, bool names_host);

  // 0 when it is done, EAGAIN to be called again at the next event, else why it failed: EPROTO with
  // tls_error(), ECONNRESET when the peer has gone, or what the socket said.
  int handshake();

  // As Stream::read().
  ssize_t read(void* buffer, size_t size, bool* drained);

  // As Stream::write().
  ssize_t write(const struct iovec* vectors, int count);
  int flush();
  // Bytes that write() has taken and flush() has not sent whole.
  size_t unsent_bytes() const { return unsent_.size(); }

  // Tells the peer that no more bytes will come, if that can be said at once.
  void close_notify();

  int tls_error() const { return tls_error_; }
  SSL* ssl() const { return ssl_.get(); }

 private:
  // The most that one record carries (RFC 8446, 5.1).
  static constexpr size_t kRecordSize = 16 * 1024;
  // Not an errno.
  static constexpr int kEnd = -1;

  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  TlsStream(SSL* ssl, int fd) : socket_{fd, false}, ssl_(ssl) {}

  // What an SSL call that did not succeed has to say: EAGAIN, kEnd or an errno.
  int failure(int returned);

  TlsSocket socket_;
  const std::unique_ptr<SSL, Free> ssl_;  // uses socket_
  // A record that OpenSSL has begun to send and wants to be given again (SSL_write(3)).
  std::string unsent_;
  int read_failure_ = 0;  // what the reads from now on end with
  bool broken_ = false;   // no further call but SSL_free is allowed
  int tls_error_ = 0;
};

}  // namespace workflow
