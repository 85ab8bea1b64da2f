#pragma once

#include <openssl/ssl.h>
#include <stddef.h>
#include <sys/uio.h>

#include <string>
#include <utility>

#include "workflow/ProtocolMessage.h"

// TLS as a layer between a message and a plain connection, for protocols that begin without it and
// change to it later. Connections that are TLS from the start need none of this.
//
//   client: SSLHandshaker out(ssl), in(ssl); sends `out`, receives into `in`; from then on each
//           message goes out, and comes in, in an SSLWrapper with the same SSL.
//   server: receives into a ServerSSLWrapper, which does the handshake on the way, and replies in
//           an SSLWrapper.
//
// The caller owns the SSL and keeps it for as long as the connection. It says whom to trust, which
// name to verify, and which side it is (SSL_set_connect_state(), SSL_set_accept_state()); left
// open, the one that speaks first is the client. It comes without BIOs, or with memory BIOs; memory
// BIOs are made where there are none. What a connection does not take of an answer stays in the SSL
// and goes ahead of what is written next.
//
// None of this is thread-safe: all that share an SSL are used by one thread at a time.
//
// Errors: EBADMSG when the peer breaks the protocol, refuses us or is not to be trusted (more by
// SSL_get_verify_result() and the thread's OpenSSL error queue, which every call empties first);
// ECONNRESET when it ends TLS and that does not complete the message; EINVAL for an SSL with other
// BIOs than said; ENOMEM. An alert that tells the peer is written by feedback().
namespace protocol {

// Where the records of TLS end in the bytes received (RFC 8446, 5.1). Internal.
class TLSRecordBoundary {
 public:
  // How many of `size` bytes, at least 1 of them, belong to the record that is being received.
  size_t next(const unsigned char *data, size_t size);

 private:
  static constexpr size_t kHeadSize = 5;

  size_t head_size_ = 0;  // what is there of the head
  size_t left_ = 0;       // what is to come of the content, once the head is there
  unsigned char head_[kHeadSize] = {};
};

// The handshake as a message of its own. Sent, it is our first flight; received, it is the rest:
// complete as soon as both sides are (for us), at exactly the end of a record.
class SSLHandshaker : public ProtocolMessage {
 public:
  // The bytes of the handshake that are ready; 0 vectors when it is the peer's turn. Valid until
  // the next call.
  int encode(struct iovec vectors[], int max) override;

  // Takes the peer's part and answers by feedback(). It fails when the answer cannot be written
  // (ENOTCONN without a connection).
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

// A message encrypted. The handshake has been done with the same SSL: ENOTCONN otherwise.
class SSLWrapper : public ProtocolWrapper {
 public:
  // The wrapped message, in TLS records; one vector.
  int encode(struct iovec vectors[], int max) override;

  // Decrypts what comes and gives it to the wrapped message. `*size` counts received bytes: whole
  // records. Should the message end within a record, what follows it stays in the SSL and is the
  // beginning of the next message received with it: SSL_pending() tells, and append() may then be
  // called without any bytes. The size limit is of the decrypted message.
  int append(const void *buf, size_t *size) override;
  using ProtocolWrapper::append;

  // The connection ended without TLS having ended before: whatever a message may say, this could be
  // somebody else's cut. ECONNRESET.
  int end_of_input() override;

  // Encrypts, then writes. Returns `size`, or -1.
  int feedback(const void *buf, size_t size) override;

  SSLWrapper(ProtocolMessage *wrapped, SSL *ssl) : ProtocolWrapper(wrapped), ssl_(ssl) {}
  SSLWrapper(SSLWrapper &&wrapper) noexcept = default;
  SSLWrapper &operator=(SSLWrapper &&wrapper) noexcept = default;

 protected:
  // What append() does, without asking for the handshake to have begun.
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

// The same at the server's end: receiving begins with the handshake, where it has not been done.
class ServerSSLWrapper : public SSLWrapper {
 public:
  int append(const void *buf, size_t *size) override;
  using SSLWrapper::append;

  ServerSSLWrapper(ProtocolMessage *wrapped, SSL *ssl) : SSLWrapper(wrapped, ssl) {}
  ServerSSLWrapper(ServerSSLWrapper &&wrapper) noexcept = default;
  ServerSSLWrapper &operator=(ServerSSLWrapper &&wrapper) noexcept = default;
};

}  // namespace protocol
