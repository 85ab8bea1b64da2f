#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/Loopback.h"
#include "support/Tally.h"
#include "support/TlsLayer.h"
#include "util/UniqueFd.h"

namespace server_test {

// A reply as it came from the server. Nothing is corrected, so a test sees what a client sees.
struct HttpReply {
  std::string version;
  int status = 0;
  std::string head;  // everything before the body
  std::vector<std::pair<std::string, std::string>> fields;
  std::string body;  // of a chunked reply without the framing

  // Returns all values of that field, joined by "|". Empty if there is none.
  std::string field(std::string_view name) const {
    std::string values;
    size_t count = 0;
    for (const auto& [each, value] : fields) {
      if (::strcasecmp(each.c_str(), std::string(name).c_str()) == 0) {
        values += (count++ > 0 ? "|" : "") + value;
      }
    }
    return values;
  }
};

// How a connection looks from here once nothing more is expected on it. Over TLS kClosed means in
// order; a connection cut without a close_notify is kReset.
enum class Ending { kClosed, kReset, kMoreData, kStillOpen };

// A client that sends the bytes that it is given, and parses replies strictly. Its calls block
// until the patience of a test ends. Not thread-safe.
class RawClient {
 public:
  RawClient() = default;
  // `receive_buffer` is SO_RCVBUF, for a client that takes little at a time.
  explicit RawClient(uint16_t port, int receive_buffer = 0) {
    struct sockaddr_in address = test_support::loopback(port);
    connect(reinterpret_cast<const struct sockaddr*>(&address), sizeof address, receive_buffer);
  }
  RawClient(const struct sockaddr* address, socklen_t length) { connect(address, length, 0); }

  bool connected() const { return fd_.valid(); }
  // How long to wait for what the server must do. By default it is the patience of a test.
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }
  int fd() const { return fd_.get(); }
  // The number of bytes that have left or are in a buffer of the kernel. Over TLS it counts the
  // bytes of records.
  size_t sent() const { return sent_; }
  // Sets SO_SNDBUF, to notice soon that the server does not read.
  void set_send_buffer(int size) {
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  }

  // From now on all bytes go over TLS. Returns false, and is not connected any more, if the server
  // does not agree, or has no certificate for 127.0.0.1 that `ca_file` vouches for.
  bool begin_tls(const std::string& ca_file) {
    tls_ = std::make_unique<TlsLayer>(ca_file);
    TlsLayer::Result result;
    do {
      result = tls_->handshake();
      if (!send_records() ||
          (result == TlsLayer::Result::kNeedsRecords && fill_records(patience_) != Fill::kData)) {
        result = TlsLayer::Result::kFailed;
      }
    } while (result == TlsLayer::Result::kNeedsRecords);
    if (result != TlsLayer::Result::kDone) {
      fd_.reset();
    }
    return connected();
  }

  // Returns false if the peer does not take all of it.
  bool send(std::string_view bytes) {
    if (!tls_) return send_raw(bytes);
    return tls_->write(bytes) && send_records();
  }

  // Returns the next reply, or nothing if the connection ends or no reply comes. If `to_head` is
  // set, the reply has no body.
  std::optional<HttpReply> reply(bool to_head = false) {
    HttpReply reply;
    if (!read_head(reply)) return std::nullopt;
    const bool no_body =
        to_head || reply.status / 100 == 1 || reply.status == 204 || reply.status == 304;
    if (!no_body && !read_body(reply)) return std::nullopt;
    return reply;
  }

  // Returns the status of the next reply, or 0 if there is none.
  int status() {
    const std::optional<HttpReply> got = reply();
    return got ? got->status : 0;
  }
  // Returns the body of the next reply, or "(none)" if there is none.
  std::string body() {
    const std::optional<HttpReply> got = reply();
    return got ? got->body : "(none)";
  }
  std::optional<HttpReply> ask(std::string_view request, bool to_head = false) {
    return send(request) ? reply(to_head) : std::nullopt;
  }

  Ending ending() { return ending(patience_); }
  Ending ending(std::chrono::milliseconds patience) {
    if (!input_.empty()) return Ending::kMoreData;
    switch (fill(patience)) {
      case Fill::kData:
        return Ending::kMoreData;
      case Fill::kEnd:
        return Ending::kClosed;
      case Fill::kError:
        return Ending::kReset;
      default:
        return Ending::kStillOpen;
    }
  }
  // Returns whether the server has ended the connection, in an orderly way or not.
  bool ended() {
    const Ending how = ending();
    return how == Ending::kClosed || how == Ending::kReset;
  }
  bool silent_for(std::chrono::milliseconds time) { return ending(time) == Ending::kStillOpen; }

  // Returns up to `size` bytes, as many as the next read gives. Empty at the end.
  std::string take_text(size_t size) {
    if (input_.empty() && fill(patience_) != Fill::kData) return "";
    const std::string text = input_.substr(0, size);
    input_.erase(0, text.size());
    return text;
  }
  size_t take(size_t size) { return take_text(size).size(); }

  // Sends a close_notify over TLS. The connection beneath stays open.
  void say_goodbye() {
    if (tls_) {
      tls_->end_writing();
      send_records();
    }
  }
  void half_close() {
    say_goodbye();
    ::shutdown(fd_.get(), SHUT_WR);
  }
  void close() { fd_.reset(); }
  // Ends the connection with a reset.
  void reset() {
    const struct linger hard = {1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    fd_.reset();
  }

 private:
  enum class Fill { kData, kEnd, kError, kNothing };

  void connect(const struct sockaddr* address, socklen_t length, int receive_buffer) {
    fd_ = workflow::UniqueFd(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (receive_buffer > 0) {
      ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    }
    if (::connect(fd_.get(), address, length) < 0) {
      fd_.reset();
      return;
    }
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }

  bool wait_for(short events, std::chrono::milliseconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      struct pollfd poll_fd = {fd_.get(), events, 0};
      const int n = ::poll(&poll_fd, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
      if (n > 0) return true;
      if (n == 0 || errno != EINTR) return false;
    }
  }

  bool send_raw(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        bytes.remove_prefix(static_cast<size_t>(n));
        sent_ += static_cast<size_t>(n);
      } else if (errno == EAGAIN) {
        if (!wait_for(POLLOUT, patience_)) return false;
      } else if (errno != EINTR) {
        return false;
      }
    }
    return true;
  }
  bool send_records() { return send_raw(tls_->take_records()); }

  Fill fill_records(std::chrono::milliseconds patience) {
    std::string records;
    const Fill filled = fill_raw(patience, records);
    tls_->put_records(records);
    return filled;
  }

  Fill fill(std::chrono::milliseconds patience) {
    if (!tls_) return fill_raw(patience, input_);
    for (;;) {
      const TlsLayer::Result result = tls_->read(input_);
      if (result == TlsLayer::Result::kDone) return Fill::kData;
      if (result == TlsLayer::Result::kFailed) return Fill::kError;
      const Fill filled = fill_records(patience);
      if (result == TlsLayer::Result::kEnd) return filled;
      if (filled != Fill::kData) return filled == Fill::kEnd ? Fill::kError : filled;
    }
  }

  Fill fill_raw(std::chrono::milliseconds patience, std::string& input) {
    if (!fd_.valid()) return Fill::kError;
    char buffer[65536];
    for (;;) {
      if (!wait_for(POLLIN, patience)) return Fill::kNothing;
      const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (n > 0) {
        input.append(buffer, static_cast<size_t>(n));
        return Fill::kData;
      }
      if (n == 0) return Fill::kEnd;
      if (errno != EINTR && errno != EAGAIN) return Fill::kError;
    }
  }

  // Reads up to the next `mark`, and stores what is before it in `text`.
  bool read_until(std::string_view mark, std::string& text) {
    size_t from = 0;
    for (;;) {
      const size_t at = input_.find(mark, from);
      if (at != std::string::npos) {
        text = input_.substr(0, at);
        input_.erase(0, at + mark.size());
        return true;
      }
      from = input_.size() < mark.size() ? 0 : input_.size() - mark.size() + 1;
      if (fill(patience_) != Fill::kData) return false;
    }
  }

  bool read_bytes(size_t size, std::string& text) {
    while (input_.size() < size) {
      if (fill(patience_) != Fill::kData) return false;
    }
    text.append(input_, 0, size);
    input_.erase(0, size);
    return true;
  }

  bool read_head(HttpReply& reply) {
    if (!read_until("\r\n\r\n", reply.head)) return false;
    size_t at = reply.head.find("\r\n");
    const std::string line = reply.head.substr(0, at);
    if (line.size() < 12 || line.compare(0, 7, "HTTP/1.") != 0) return false;
    reply.version = line.substr(0, 8);
    reply.status = std::atoi(line.c_str() + 9);
    while (at != std::string::npos) {
      const size_t begin = at + 2;
      at = reply.head.find("\r\n", begin);
      const std::string field = reply.head.substr(begin, at - begin);
      const size_t colon = field.find(':');
      if (colon == std::string::npos) return false;
      const size_t value = field.find_first_not_of(' ', colon + 1);
      reply.fields.emplace_back(field.substr(0, colon),
                                value == std::string::npos ? "" : field.substr(value));
    }
    return true;
  }

  bool read_body(HttpReply& reply) {
    const std::string length = reply.field("Content-Length");
    if (reply.field("Transfer-Encoding") == "chunked") return length.empty() && read_chunks(reply);
    if (!length.empty()) {
      return length.find_first_not_of("0123456789") == std::string::npos &&
             read_bytes(std::strtoull(length.c_str(), nullptr, 10), reply.body);
    }
    while (fill(patience_) == Fill::kData) {
    }
    reply.body = std::exchange(input_, "");
    return true;
  }

  bool read_chunks(HttpReply& reply) {
    for (;;) {
      std::string line;
      if (!read_until("\r\n", line)) return false;
      const size_t size = std::strtoull(line.c_str(), nullptr, 16);
      if (!read_bytes(size, reply.body) || !read_until("\r\n", line) || !line.empty()) return false;
      if (size == 0) return true;
    }
  }

  workflow::UniqueFd fd_;
  std::unique_ptr<TlsLayer> tls_;  // null: in the clear
  std::chrono::milliseconds patience_ = test_support::kPatience;
  size_t sent_ = 0;
  std::string input_;
};

}  // namespace server_test
