#pragma once

#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "support/Loopback.h"
#include "util/UniqueFd.h"

namespace client_test {

// One connection as a server's script sees it. Blocks; reads end after 20 s.
class Peer {
 public:
  explicit Peer(int fd) : fd_(fd) {
    const struct timeval patience = {20, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }

  // Returns the next request with its body. Empty at the end of input.
  std::string request() {
    size_t end = std::string::npos;
    while ((end = input_.find("\r\n\r\n")) == std::string::npos) {
      if (!fill()) return "";
    }
    size_t size = end + 4;
    const size_t at = input_.find("Content-Length: ");
    if (at < end) {
      size += std::strtoul(input_.c_str() + at + 16, nullptr, 10);
    }
    while (input_.size() < size && fill()) {
    }
    const std::string whole = input_.substr(0, size);
    input_.erase(0, size);
    return whole;
  }
  // Whether the client is still there.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  void reply(std::string_view body, const std::string& fields = "") {
    send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + fields +
         "\r\n" + std::string(body));
  }
  // Whether the client has closed its side.
  bool ended() { return input_.empty() && !fill(); }
  // After this call nothing else may be done with the connection.
  void close() { ::shutdown(fd_.get(), SHUT_RDWR); }
  void reset() {
    const struct linger hard = {1, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    fd_.reset();
  }
  int fd() const { return fd_.get(); }

 private:
  bool fill() {
    char buffer[65536];
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n > 0) {
      input_.append(buffer, static_cast<size_t>(n));
    }
    return n > 0;
  }

  workflow::UniqueFd fd_;
  std::string input_;
};

// A server that plays a script for each connection, by system calls alone, so that the library is
// not tested with itself. The destructor ends the connections and waits for the scripts.
class RawServer {
 public:
  // Calls `script(peer, n)` for the n-th connection, counted from 0, on a thread of its own.
  explicit RawServer(std::function<void(Peer&, int)> script) : script_(std::move(script)) {
    listen_ = test_support::listen_on_loopback();
    port_ = test_support::port_of(listen_.get());
    acceptor_ = std::thread([this] { accept(); });
  }
  ~RawServer() {
    ::shutdown(listen_.get(), SHUT_RDWR);
    acceptor_.join();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
      for (const Peer* peer : open_) {
        ::shutdown(peer->fd(), SHUT_RDWR);
      }
    }
    threads_.clear();  // joins them
  }

  uint16_t port() const { return port_; }
  std::string url(const std::string& path = "/") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  int connections() const { return connections_; }

 private:
  void accept() {
    for (;;) {
      const int fd = ::accept4(listen_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      const int number = connections_++;
      const std::lock_guard<std::mutex> accepting(mutex_);
      for (const int ended : std::exchange(ended_, {})) {
        threads_.erase(ended);  // joins it: it needs the lock no more
      }
      threads_[number] = std::jthread([this, fd, number] {
        Peer peer(fd);
        {
          std::lock_guard<std::mutex> lock(mutex_);
          open_.insert(&peer);
          if (ending_) {
            peer.close();
          }
        }
        script_(peer, number);
        std::lock_guard<std::mutex> lock(mutex_);
        open_.erase(&peer);
        ended_.push_back(number);
      });
    }
  }

  const std::function<void(Peer&, int)> script_;
  workflow::UniqueFd listen_;
  uint16_t port_ = 0;
  std::atomic<int> connections_{0};
  std::mutex mutex_;
  std::set<const Peer*> open_;
  bool ending_ = false;
  std::thread acceptor_;
  // By the number of the connection. Of the acceptor, and of the destructor after that.
  std::map<int, std::jthread> threads_;
  std::vector<int> ended_;  // whose threads need the lock no more
};

}  // namespace client_test
