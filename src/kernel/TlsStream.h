#pragma once

#include <openssl/ssl.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>

namespace workflow {

// The socket that OpenSSL reads and writes.
struct TlsSocket {
  int fd;
  bool drained;  // the last read took everything that was there
};

// TLS over one connected, non-blocking socket, whose descriptor it does not own.
//
// Not thread-safe: the owner makes one call at a time. Every call leaves OpenSSL's error queue of
// the thread as empty as it was before, because an error that one connection left there would be
// taken for a failure of the next connection (SSL_get_error(3)).
class TlsStream {
 public:
  enum class Role { kServer, kClient };

  // Null if memory has run out. The context may be freed after the call.
  static std::unique_ptr<TlsStream> create(SSL_CTX* context, int fd, Role role);
  ~TlsStream();

  // For a client, before the handshake. If the context verifies certificates, only one for `host`,
  // which is a name or a numeric address, is accepted. If `names_host`, a name is also sent to the
  // server (SNI). False if memory has run out.
  bool expect_host(const char* host, bool names_host);

  // Returns 0 when the handshake is done, EAGAIN if it must be called again at the next event, else
  // the reason of its failure: EPROTO with tls_error(), ECONNRESET if the peer has gone, or the
  // errno of the socket.
  int handshake();

  // As Stream::read().
  ssize_t read(void* buffer, size_t size, bool* drained);

  // As Stream::write().
  ssize_t write(const struct iovec* vectors, int count);
  int flush();
  // The number of bytes that write() has taken and that are not sent completely.
  size_t unsent_bytes() const { return unsent_.size(); }

  // Tells the peer that no more bytes will come, if this can be sent at once.
  void close_notify();

  // Why TLS has failed. If the peer's certificate was refused, this is the negated X509_V_ERR_*
  // value, otherwise an error code of OpenSSL (ERR_get_error(3)). 0 if TLS has not failed.
  int tls_error() const { return tls_error_; }
  SSL* ssl() const { return ssl_.get(); }

 private:
  // The most that one record carries (RFC 8446, 5.1).
  static constexpr size_t kRecordSize = 16 * 1024;
  // The value is not an errno value.
  static constexpr int kEnd = -1;

  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  TlsStream(SSL* ssl, int fd) : socket_{fd, false}, ssl_(ssl) {}

  // The reason why an SSL call did not succeed: EAGAIN, kEnd or an errno.
  int failure(int returned);

  TlsSocket socket_;
  const std::unique_ptr<SSL, Free> ssl_;  // uses socket_
  // A record that OpenSSL has begun to send, and that it must be given again (SSL_write(3)).
  std::string unsent_;
  int read_failure_ = 0;  // the result of all further reads
  bool broken_ = false;   // only SSL_free may still be called
  int tls_error_ = 0;
};

}  // namespace workflow
