#pragma once

#include <openssl/ssl.h>
#include <stddef.h>
#include <sys/uio.h>

#include <string>
#include <utility>

#include "workflow/ProtocolMessage.h"
#include "workflow/detail/TLSRecordBoundary.h"

// TLS as a layer between a message and a plain connection, for protocols that begin without TLS and
// change to it later. Connections that use TLS from the start need none of this.
//
//   client: SSLHandshaker out(ssl), in(ssl); sends `out`, receives into `in`; from then on each
//           message is sent, and received, in an SSLWrapper with the same SSL.
//   server: receives into a ServerSSLWrapper, which does the handshake first, and replies in an
//           SSLWrapper.
//
// The caller owns the SSL and keeps it for as long as the connection. The caller sets whom to
// trust, which name to verify, and which side this is (SSL_set_connect_state(),
// SSL_set_accept_state()). If the side is not set, the one that sends first becomes the client. The
// SSL has either no BIOs or memory BIOs; if it has none, memory BIOs are made. Bytes of an answer
// that a connection does not take stay in the SSL and are sent before whatever is written next.
//
// None of this is thread-safe: one thread at a time may use the objects that share an SSL.
//
// Errors: EBADMSG if the peer breaks the protocol, refuses us or is not to be trusted
// (SSL_get_verify_result() and the thread's OpenSSL error queue, which every call empties first,
// say more); ECONNRESET if the peer ends TLS and that does not complete the message; EINVAL for an
// SSL with other BIOs; ENOMEM. The alert that informs the peer is written by feedback().
namespace protocol {

// The handshake as a message of its own. When it is sent, it is our first flight. When it is
// received, it is the rest of the handshake. It is complete as soon as the handshake is complete on
// our side, exactly at the end of a record.
class SSLHandshaker : public ProtocolMessage {
 public:
  // Returns the bytes of the handshake that are ready, or 0 vectors if it is the peer's turn. They
  // are valid until the next call.
  int encode(struct iovec vectors[], int max) override;

  // Takes the peer's part of the handshake and answers by feedback(). It fails if the answer cannot
  // be written (ENOTCONN without a connection).
  int append(const void *buf, size_t *size) override;
  using ProtocolMessage::append;

  explicit SSLHandshaker(SSL *ssl) : ssl_(ssl) {}
  SSLHandshaker(SSLHandshaker &&handshaker) noexcept = default;
  SSLHandshaker &operator=(SSLHandshaker &&handshaker) noexcept = default;

 private:
  SSL *ssl_;
  TLSRecordBoundary boundary_;
  std::string output_;
};

// An encrypted message. Fails with ENOTCONN unless the handshake has been done with the same SSL.
class SSLWrapper : public ProtocolWrapper {
 public:
  // Returns the wrapped message in TLS records, in one vector.
  int encode(struct iovec vectors[], int max) override;

  // Decrypts the bytes and passes them to the wrapped message. `*size` counts received bytes,
  // always whole records. If the message ends within a record, the bytes after it stay in the SSL
  // and are the beginning of the next message that is received with it. SSL_pending() tells whether
  // there are any, and append() may then be called without any bytes. The size limit applies to the
  // decrypted message.
  int append(const void *buf, size_t *size) override;
  using ProtocolWrapper::append;

  // The connection ended, but TLS had not ended before. It fails with ECONNRESET whatever the
  // message says, because an attacker could have cut the connection.
  int end_of_input() override;

  // Encrypts and writes the bytes. Returns `size`, or -1.
  int feedback(const void *buf, size_t size) override;

  SSLWrapper(ProtocolMessage *wrapped, SSL *ssl) : ProtocolWrapper(wrapped), ssl_(ssl) {}
  SSLWrapper(SSLWrapper &&wrapper) noexcept = default;
  SSLWrapper &operator=(SSLWrapper &&wrapper) noexcept = default;

 protected:
  // Does what append() does, without checking that the handshake has begun.
  int receive(const void *buf, size_t *size);
  SSL *get_ssl() const { return ssl_; }

 private:
  int decrypt();
  int write_pending();
  int encrypt(const struct iovec vectors[], int count);

  SSL *ssl_;
  TLSRecordBoundary boundary_;
  std::string output_;
};

// An SSLWrapper on the server's side. If the handshake has not been done, receiving begins with it.
class ServerSSLWrapper : public SSLWrapper {
 public:
  int append(const void *buf, size_t *size) override;
  using SSLWrapper::append;

  ServerSSLWrapper(ProtocolMessage *wrapped, SSL *ssl) : SSLWrapper(wrapped, ssl) {}
  ServerSSLWrapper(ServerSSLWrapper &&wrapper) noexcept = default;
  ServerSSLWrapper &operator=(ServerSSLWrapper &&wrapper) noexcept = default;
};

}  // namespace protocol
