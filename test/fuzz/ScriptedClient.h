#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "Fuzzing.h"
#include "util/UniqueFd.h"

namespace fuzzing {

// One connection to a server on a unix socket, of which the user says how many bytes go either way
// and when. Never blocks. Not thread-safe.
class ScriptedClient {
 public:
  // `context`: null for the clear. `piece`: the most that one system call sends or receives.
  ScriptedClient(const struct sockaddr_un& address, socklen_t length, SSL_CTX* context,
                 size_t piece)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), piece_(piece) {
    require(::connect(fd_.get(), reinterpret_cast<const struct sockaddr*>(&address), length) == 0);
    if (context) {
      ssl_.reset(SSL_new(context));
      SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
      SSL_set_connect_state(ssl_.get());
      advance_tls();
    }
  }

  // To be sent: over TLS as records, once there has been a handshake.
  void say(std::string_view bytes) {
    (ssl_ ? unencrypted_ : wire_).append(bytes);
    advance_tls();
  }
  // To be sent as they are.
  void say_on_wire(std::string_view bytes) { wire_.append(bytes); }
  bool all_sent() const { return wire_.empty() && unencrypted_.empty(); }

  // As far as the socket goes. Whether anything moved.
  bool send(size_t size) {
    size = std::min(size, wire_.size());
    size_t sent = 0;
    while (sent < size) {
      const ssize_t n = ::send(fd_.get(), wire_.data() + sent, std::min(size - sent, piece_),
                               MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n <= 0) {
        // Nobody will ever take it.
        if (errno != EAGAIN && errno != EINTR) {
          wire_.clear();
          unencrypted_.clear();
          return false;
        }
        break;
      }
      sent += static_cast<size_t>(n);
    }
    wire_.erase(0, sent);
    return sent > 0;
  }
  bool receive(size_t size) {
    char buffer[65536];
    bool moved = false;
    while (size > 0 && !ended_) {
      const ssize_t n =
          ::recv(fd_.get(), buffer, std::min({size, sizeof buffer, piece_}), MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
      moved = true;
      if (n <= 0) {
        ended_ = true;
        break;
      }
      size -= static_cast<size_t>(n);
      if (ssl_) {
        BIO_write(SSL_get_rbio(ssl_.get()), buffer, static_cast<int>(n));
        advance_tls();
      } else {
        received_.append(buffer, static_cast<size_t>(n));
      }
    }
    return moved;
  }

  // Over TLS `politely`: with a close_notify, of which as much is sent as the socket takes.
  void half_close(bool politely) {
    if (ssl_ && politely && SSL_is_init_finished(ssl_.get())) {
      SSL_shutdown(ssl_.get());
      take_records();
      send(wire_.size());
    }
    wire_.clear();
    unencrypted_.clear();
    ::shutdown(fd_.get(), SHUT_WR);
    advance_tls();
  }
  void close() {
    fd_.reset();
    ended_ = true;
  }

  // The server has ended the connection, or close() was called.
  bool ended() const { return ended_; }
  const std::string& received() const { return received_; }

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  void advance_tls() {
    if (!ssl_) return;
    if (SSL_do_handshake(ssl_.get()) == 1) {
      if (!unencrypted_.empty() &&
          SSL_write(ssl_.get(), unencrypted_.data(), static_cast<int>(unencrypted_.size())) > 0) {
        unencrypted_.clear();
      }
      char buffer[16384];
      for (int n; (n = SSL_read(ssl_.get(), buffer, sizeof buffer)) > 0;) {
        received_.append(buffer, static_cast<size_t>(n));
      }
    }
    take_records();
    ERR_clear_error();
  }
  void take_records() {
    char buffer[16384];
    for (int n; (n = BIO_read(SSL_get_wbio(ssl_.get()), buffer, sizeof buffer)) > 0;) {
      wire_.append(buffer, static_cast<size_t>(n));
    }
  }

  workflow::UniqueFd fd_;
  const size_t piece_;
  std::unique_ptr<SSL, Free> ssl_;
  std::string unencrypted_;  // until the handshake is done
  std::string wire_;
  std::string received_;
  bool ended_ = false;
};

// What a server has sent on one connection, taken apart strictly. Replies to requests are known by
// "X-Number", counted from 1; the method and whether a body has to end the connection by "X-Method"
// and "X-Stream".
struct Replies {
  int numbered = 0;  // whole
  int refusals = 0;  // whole, and last
  bool cut = false;  // what is behind these is no whole reply
  // The last of the numbered ones ends where the connection does: it may be cut.
  bool open_ended = false;

  explicit Replies(std::string_view bytes) {
    while (!bytes.empty() && take(bytes)) {
    }
    cut = !bytes.empty();
  }

 private:
  static std::string field(std::string_view head, std::string_view name) {
    std::string line = "\r\n";
    line.append(name).append(": ");
    const size_t at = head.find(line);
    if (at == std::string_view::npos) return "";
    require(head.find(line, at + 1) == std::string_view::npos);
    const size_t from = at + line.size();
    return std::string(head.substr(from, head.find("\r\n", from) - from));
  }
  static size_t number(const std::string& text, int base, const char* digits) {
    require(!text.empty() && text.size() < 9);
    require(text.find_first_not_of(digits) == std::string::npos);
    return std::strtoul(text.c_str(), nullptr, base);
  }

  // False when it is not whole.
  bool take(std::string_view& bytes) {
    const size_t end = bytes.find("\r\n\r\n");
    if (end == std::string_view::npos) return false;
    std::string_view rest = bytes.substr(end + 4);
    // With the end of the last line.
    const std::string_view head = bytes.substr(0, end + 2);
    require(head.size() > 13 && head.substr(0, 7) == "HTTP/1." && head[8] == ' ');
    const size_t status = number(std::string(head.substr(9, 3)), 10, "0123456789");
    require(status >= 100 && status <= 599 && refusals == 0);
    if (status < 200) {
      bytes = rest;
      return true;
    }
    const std::string which = field(head, "X-Number");
    const bool bodiless = field(head, "X-Method") == "HEAD" || status == 204 || status == 304;
    if (!bodiless && !take_body(head, rest)) return false;
    if (which.empty()) {
      require(status >= 400 && field(head, "Connection") == "close");
      refusals++;
    } else {
      numbered++;
      require(number(which, 10, "0123456789") == static_cast<size_t>(numbered));
    }
    bytes = rest;
    return true;
  }

  bool take_body(std::string_view head, std::string_view& rest) {
    const std::string length = field(head, "Content-Length");
    const std::string coding = field(head, "Transfer-Encoding");
    if (!coding.empty()) {
      require(coding == "chunked" && length.empty());
      return take_chunks(rest);
    }
    if (length.empty()) {
      require(!field(head, "X-Stream").empty());
      open_ended = true;
      rest = {};
      return true;
    }
    const size_t size = number(length, 10, "0123456789");
    if (rest.size() < size) return false;
    check_body(rest.substr(0, size));
    rest.remove_prefix(size);
    return true;
  }
  static bool take_chunks(std::string_view& rest) {
    for (;;) {
      const size_t end = rest.find("\r\n");
      if (end == std::string_view::npos) return false;
      const size_t size = number(std::string(rest.substr(0, end)), 16, "0123456789abcdefABCDEF");
      if (rest.size() < end + 2 + size + 2) return false;
      check_body(rest.substr(end + 2, size));
      require(rest.substr(end + 2 + size, 2) == "\r\n");
      rest.remove_prefix(end + 2 + size + 2);
      if (size == 0) return true;
    }
  }
  // A body has this character alone, so bytes that belong to another reply, or to none, are
  // noticed.
  static void check_body(std::string_view body) {
    require(body.find_first_not_of('b') == std::string_view::npos);
  }
};

}  // namespace fuzzing
