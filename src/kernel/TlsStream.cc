#include "kernel/TlsStream.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "kernel/Socket.h"

namespace workflow {

namespace {

// OpenSSL's own socket BIO writes with write(2): a peer that is gone would end the process by
// SIGPIPE, and a signal handler would fail the connection by EINTR.

TlsSocket& socket_of(BIO* bio) {
  return *static_cast<TlsSocket*>(BIO_get_data(bio));
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK;
}

int bio_read(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  TlsSocket& socket = socket_of(bio);
  const ssize_t n = socket_read(socket.fd, data, static_cast<size_t>(size));
  socket.drained = n < size;
  if (n == 0) {
    BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  } else if (n < 0 && would_block()) {
    BIO_set_retry_read(bio);
  }
  return static_cast<int>(n);
}

int bio_write(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  struct iovec vector = {const_cast<char*>(data), static_cast<size_t>(size)};
  const ssize_t n = socket_write(socket_of(bio).fd, &vector, 1);
  if (n < 0 && would_block()) {
    BIO_set_retry_write(bio);
  }
  return static_cast<int>(n);
}

long bio_control(BIO* bio, int command, long /*number*/, void* /*pointer*/) {
  switch (command) {
    case BIO_CTRL_FLUSH:
      return 1;
    case BIO_CTRL_EOF:
      return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
    default:
      return 0;
  }
}

int bio_create(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

// Lives for ever: connections may outlive static objects.
BIO_METHOD* bio_method() {
  // The exchange releases what was set in the method. The load, and an exchange that fails, acquire
  // it.
  static std::atomic<BIO_METHOD*> method{nullptr};
  BIO_METHOD* found = method.load(std::memory_order_acquire);
  if (found) return found;
  BIO_METHOD* made =
      BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK | BIO_TYPE_DESCRIPTOR, "socket");
  if (!made) {
    return nullptr;  // the next call may find memory
  }
  BIO_meth_set_read(made, bio_read);
  BIO_meth_set_write(made, bio_write);
  BIO_meth_set_ctrl(made, bio_control);
  BIO_meth_set_create(made, bio_create);
  if (method.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return made;
  BIO_meth_free(made);
  return found;
}

}  // namespace

std::unique_ptr<TlsStream> TlsStream::create(SSL_CTX* context, int fd, Role role) {
  ERR_clear_error();
  std::unique_ptr<SSL, Free> made(SSL_new(context));
  BIO_METHOD* const method = bio_method();
  std::unique_ptr<BIO, decltype(&::BIO_free)> bio(made && method ? BIO_new(method) : nullptr,
                                                  &::BIO_free);
  std::unique_ptr<TlsStream> stream(bio ? new (std::nothrow) TlsStream(made.get(), fd) : nullptr);
  if (!stream) {
    ERR_clear_error();
    return nullptr;
  }
  static_cast<void>(made.release());
  BIO_set_data(bio.get(), &stream->socket_);
  SSL* ssl = stream->ssl();
  SSL_set_bio(ssl, bio.get(), bio.get());
  static_cast<void>(bio.release());
  // After a partial write OpenSSL is given a copy of the data (SSL_CTX_set_mode(3)). Idle
  // connections, of which there are many, hold no buffers.
  SSL_set_mode(ssl, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  if (role == Role::kServer) {
    SSL_set_accept_state(ssl);
  } else {
    SSL_set_connect_state(ssl);
  }
  return stream;
}

TlsStream::~TlsStream() {
  if (!broken_ && ssl_) {
    // Otherwise OpenSSL does not resume the session of a connection that was not closed in order
    // (SSL_shutdown(3)).
    SSL_set_shutdown(ssl(), SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  }
}

bool TlsStream::expect_host(const char* host, bool names_host) {
  ERR_clear_error();
  unsigned char numeric[sizeof(struct in6_addr)];
  bool done = false;
  if (::inet_pton(AF_INET, host, numeric) == 1 || ::inet_pton(AF_INET6, host, numeric) == 1) {
    done = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl()), host) == 1;
  } else {
    // The dot at the end of a fully qualified name is not in certificates, and must not be sent
    // (RFC 6066, 3).
    std::string name(host);
    if (name.size() > 1 && name.back() == '.') {
      name.pop_back();
    }
    SSL_set_hostflags(ssl(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    done = SSL_set1_host(ssl(), name.c_str()) == 1 &&
           (!names_host || SSL_set_tlsext_host_name(ssl(), name.c_str()) == 1);
  }
  ERR_clear_error();
  return done;
}

int TlsStream::failure(int returned) {
  const int error_number = errno;
  int result = EPROTO;
  switch (SSL_get_error(ssl(), returned)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
      return EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
      return kEnd;
    case SSL_ERROR_SYSCALL:
      result = error_number != 0 ? error_number : ECONNRESET;
      break;
    default: {
      const unsigned long code = ERR_peek_error();
      const long refused = SSL_get_verify_result(ssl());
      if (ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
        result = ECONNRESET;
      } else if (ERR_GET_REASON(code) == SSL_R_CERTIFICATE_VERIFY_FAILED && refused != X509_V_OK) {
        tls_error_ = -static_cast<int>(refused);
      } else {
        tls_error_ = static_cast<int>(code);
      }
    }
  }
  broken_ = true;
  ERR_clear_error();
  return result;
}

int TlsStream::handshake() {
  if (broken_) return EPROTO;
  ERR_clear_error();
  errno = 0;
  const int returned = SSL_do_handshake(ssl());
  if (returned == 1) return 0;
  const int error = failure(returned);
  return error == kEnd ? ECONNRESET : error;
}

ssize_t TlsStream::read(void* buffer, size_t size, bool* drained) {
  size_t total = 0;
  socket_.drained = false;  // an earlier read says nothing about the socket now
  while (read_failure_ == 0 && total < size) {
    size_t n = 0;
    int error = EPROTO;
    if (!broken_) {
      ERR_clear_error();
      errno = 0;
      const int returned = SSL_read_ex(ssl(), static_cast<char*>(buffer) + total, size - total, &n);
      error = returned == 1 ? 0 : failure(returned);
    }
    if (error == 0) {
      total += n;
      // Do not read from a socket that is empty: that would cost a system call for each message.
      if (socket_.drained && SSL_has_pending(ssl()) == 0) {
        *drained = true;
        return static_cast<ssize_t>(total);
      }
    } else if (error == EAGAIN) {
      *drained = true;
      if (total > 0) return static_cast<ssize_t>(total);
      errno = EAGAIN;
      return -1;
    } else {
      read_failure_ = error;
    }
  }
  *drained = false;
  if (total > 0) return static_cast<ssize_t>(total);
  if (read_failure_ == kEnd) return 0;
  errno = read_failure_;
  return -1;
}

int TlsStream::flush() {
  if (unsent_.empty()) return 0;
  if (broken_) return EPROTO;
  ERR_clear_error();
  errno = 0;
  const int returned = SSL_write(ssl(), unsent_.data(), static_cast<int>(unsent_.size()));
  if (returned > 0) {
    unsent_ = std::string();
    return 0;
  }
  const int error = failure(returned);
  return error == kEnd ? EPIPE : error;
}

ssize_t TlsStream::write(const struct iovec* vectors, int count) {
  if (const int error = broken_ ? EPROTO : flush()) {
    errno = error;
    return -1;
  }
  char gathered[kRecordSize];
  const char* record = gathered;
  size_t size = 0;
  if (count > 0 && vectors[0].iov_len >= kRecordSize) {
    record = static_cast<const char*>(vectors[0].iov_base);
    size = kRecordSize;
  }
  for (int i = 0; i < count && size < kRecordSize; i++) {
    const size_t part = std::min(vectors[i].iov_len, kRecordSize - size);
    if (part > 0) {
      std::memcpy(gathered + size, vectors[i].iov_base, part);
      size += part;
    }
  }
  if (size == 0) return 0;
  ERR_clear_error();
  errno = 0;
  const int returned = SSL_write(ssl(), record, static_cast<int>(size));
  if (returned > 0) return returned;
  const int error = failure(returned);
  if (error == EAGAIN) {
    try {
      unsent_.assign(record, size);
      return static_cast<ssize_t>(size);
    } catch (const std::bad_alloc&) {
      broken_ = true;  // the record that OpenSSL has begun is lost
      errno = ENOMEM;
      return -1;
    }
  }
  errno = error == kEnd ? EPIPE : error;
  return -1;
}

void TlsStream::close_notify() {
  if (!broken_ && unsent_.empty() && SSL_is_init_finished(ssl())) {
    ERR_clear_error();
    SSL_shutdown(ssl());
    ERR_clear_error();
  }
}

}  // namespace workflow
