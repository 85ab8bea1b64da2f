#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace fault {

// How a peer goes away.
enum class Cut { kFin, kReset };

// One side of a connection that sends and receives no more than so many bytes, or pieces of so
// many, as the socket has them: over TLS these are the records'. By OpenSSL and system calls alone.
// Blocks; a receive ends after 20 s. Does not own the descriptor.
class CutStream {
 public:
  enum class Role { kClient, kServer };

  // `context`: null for the clear.
  CutStream(int fd, SSL_CTX* context, Role role, size_t may_send, size_t may_receive)
      : fd_(fd), may_send_(may_send), may_receive_(may_receive) {
    const struct timeval patience = {20, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (context) {
      ssl_.reset(SSL_new(context));
      SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
      role == Role::kClient ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
    }
  }

  // The most that one system call sends or receives.
  void set_piece(size_t piece) { piece_ = piece; }

  // Each is false when the limit, or the peer, has ended it.
  bool handshake() {
    return !ssl_ || until_done([this] { return SSL_do_handshake(ssl_.get()); });
  }
  bool send(std::string_view bytes) {
    if (!ssl_) return send_raw(bytes.data(), bytes.size());
    return until_done(
        [&] { return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())); });
  }
  // Until `complete` says so of all that has come.
  bool receive(const std::function<bool(const std::string&)>& complete) {
    while (!complete(received_)) {
      char buffer[4096];
      size_t n = 0;
      if (ssl_) {
        if (!until_done([&] { return SSL_read_ex(ssl_.get(), buffer, sizeof buffer, &n); })) {
          return false;
        }
      } else {
        n = receive_raw(buffer, sizeof buffer);
      }
      if (n == 0) return false;
      received_.append(buffer, n);
    }
    return true;
  }
  const std::string& received() const { return received_; }

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  bool send_raw(const char* bytes, size_t size) {
    const size_t allowed = std::min(size, may_send_);
    may_send_ -= allowed;
    for (size_t sent = 0; sent < allowed;) {
      const ssize_t n = ::send(fd_, bytes + sent, std::min(allowed - sent, piece_), MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return allowed == size;
  }

  size_t receive_raw(char* buffer, size_t size) {
    const size_t allowed = std::min({size, may_receive_, piece_});
    const ssize_t n = allowed > 0 ? ::recv(fd_, buffer, allowed, 0) : 0;
    may_receive_ -= n > 0 ? static_cast<size_t>(n) : 0;
    return n > 0 ? static_cast<size_t>(n) : 0;
  }

  bool until_done(const std::function<int()>& call) {
    for (;;) {
      const int result = call();
      const int error = SSL_get_error(ssl_.get(), result);
      char buffer[4096];
      for (int n; (n = BIO_read(SSL_get_wbio(ssl_.get()), buffer, sizeof buffer)) > 0;) {
        if (!send_raw(buffer, static_cast<size_t>(n))) return false;
      }
      if (result > 0) return true;
      const size_t n = error == SSL_ERROR_WANT_READ ? receive_raw(buffer, sizeof buffer) : 0;
      if (n == 0) return false;
      BIO_write(SSL_get_rbio(ssl_.get()), buffer, static_cast<int>(n));
    }
  }

  const int fd_;
  size_t may_send_;
  size_t may_receive_;
  size_t piece_ = SIZE_MAX;
  std::unique_ptr<SSL, Free> ssl_;
  std::string received_;
};

// A context for a CutStream: a client that verifies nobody.
struct FreeContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using Context = std::unique_ptr<SSL_CTX, FreeContext>;

}  // namespace fault
