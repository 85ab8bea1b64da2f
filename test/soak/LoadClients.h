#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "support/Loopback.h"

namespace soak {

struct LoadPlan {
  uint16_t port;
  int idle;
  int slow;
  int active;
  int seconds;
};

// What the clients of a plan have seen.
struct LoadResult {
  int connected = 0;
  int64_t replies = 0;     // to the active ones
  int64_t slow_bytes = 0;  // sent and taken by the slow ones
  int64_t p50_us = 0, p99_us = 0;
  // Before, and after the large replies were asked for.
  int64_t longest_us = 0, longest_beside_large_us = 0;
  int idle_answered = 0;  // of the idle ones, asked once more at the end
  int slow_alive = 0;
  int lost = 0;  // active connections that the server ended
};

// Clients of one server on one thread, by system calls alone: idle ones ask once at the beginning
// and once at the end; slow ones send a request a byte at a time, or ask for a large reply, all at
// once at half of the time, and take it a little at a time; active ones ask again as soon as they
// are answered.
class LoadClients {
 public:
  explicit LoadClients(const LoadPlan& plan) : plan_(plan), epoll_(::epoll_create1(0)) {}
  LoadClients(const LoadClients&) = delete;
  LoadClients& operator=(const LoadClients&) = delete;

  LoadResult run() {
    connect_all(idle_, plan_.idle, 0);
    connect_all(slow_, plan_.slow, 4096);
    connect_all(active_, plan_.active, 0);
    result_.connected = static_cast<int>(idle_.size() + slow_.size() + active_.size());
    ask_all(idle_);
    // So that none of them has the time of a first request only.
    std::vector<Client> takers;
    for (size_t i = 1; i < slow_.size(); i += 2) {
      takers.push_back(slow_[i]);
    }
    ask_all(takers);
    measure();
    result_.idle_answered = ask_all(idle_);
    for (const Client& client : slow_) {
      char byte;
      const ssize_t n = ::recv(client.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      result_.slow_alive += n > 0 || (n < 0 && errno == EAGAIN) ? 1 : 0;
    }
    return result_;
  }

 private:
  struct Client {
    int fd;
    int64_t asked_ns = 0;
    size_t sent = 0;  // of the request of a slow one
  };
  static constexpr std::string_view kSmall = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  static constexpr std::string_view kLarge = "GET /large HTTP/1.1\r\nHost: x\r\n\r\n";
  // Each slow one does something so often.
  static constexpr int64_t kSlowPeriodNs = 100'000'000;
  static constexpr int kSlices = 10;

  static int64_t now_ns() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }

  void connect_all(std::vector<Client>& clients, int count, int receive_buffer) {
    struct sockaddr_in address = test_support::loopback(plan_.port);
    for (int i = 0; i < count; i++) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      const int on = 1;
      if (receive_buffer > 0) {
        ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
      }
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (fd < 0 ||
          ::connect(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof address) != 0) {
        return;
      }
      clients.push_back({fd});
    }
  }

  // How many got an answer.
  static int ask_all(const std::vector<Client>& clients) {
    for (const Client& client : clients) {
      ::send(client.fd, kSmall.data(), kSmall.size(), MSG_NOSIGNAL);
    }
    int answered = 0;
    for (const Client& client : clients) {
      const struct timeval patience = {20, 0};
      ::setsockopt(client.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      char reply[1024];
      const ssize_t n = ::recv(client.fd, reply, sizeof reply, 0);
      answered += n > 12 && std::string_view(reply, 12) == "HTTP/1.1 200" ? 1 : 0;
    }
    return answered;
  }

  void ask(Client& client) {
    client.asked_ns = now_ns();
    ::send(client.fd, kSmall.data(), kSmall.size(), MSG_NOSIGNAL);
  }

  void ask_for_large() {
    for (size_t i = 1; i < slow_.size(); i += 2) {
      ::send(slow_[i].fd, kLarge.data(), kLarge.size(), MSG_NOSIGNAL);
    }
    asked_for_large_ = true;
  }

  void measure() {
    for (Client& client : active_) {
      struct epoll_event event = {};
      event.events = EPOLLIN;
      event.data.ptr = &client;
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, client.fd, &event);
      ask(client);
    }
    const int64_t half_ns = plan_.seconds * int64_t{500'000'000};
    const int64_t end_ns = now_ns() + 2 * half_ns;
    int64_t next_slice_ns = 0;
    int slice = 0;
    for (int64_t now = now_ns(); now < end_ns; now = now_ns()) {
      if (!asked_for_large_ && now >= end_ns - half_ns) {
        ask_for_large();
      }
      if (now >= next_slice_ns) {
        next_slice_ns = now + kSlowPeriodNs / kSlices;
        turn_of_slow(slice++ % kSlices);
      }
      struct epoll_event events[64];
      const int n = ::epoll_wait(epoll_, events, 64, 1);
      for (int i = 0; i < n; i++) {
        answered(*static_cast<Client*>(events[i].data.ptr));
      }
    }
    std::sort(waits_us_.begin(), waits_us_.end());
    if (!waits_us_.empty()) {
      result_.p50_us = waits_us_[waits_us_.size() / 2];
      result_.p99_us = waits_us_[waits_us_.size() * 99 / 100];
    }
    result_.replies = static_cast<int64_t>(waits_us_.size());
  }

  // Its replies are small, and come whole.
  void answered(Client& client) {
    char reply[1024];
    const ssize_t n = ::recv(client.fd, reply, sizeof reply, 0);
    if (n <= 0) {
      ::epoll_ctl(epoll_, EPOLL_CTL_DEL, client.fd, nullptr);
      result_.lost++;
      return;
    }
    const int64_t wait_us = (now_ns() - client.asked_ns) / 1000;
    waits_us_.push_back(wait_us);
    int64_t& longest = asked_for_large_ ? result_.longest_beside_large_us : result_.longest_us;
    longest = std::max(longest, wait_us);
    ask(client);
  }

  void turn_of_slow(int slice) {
    for (size_t i = static_cast<size_t>(slice); i < slow_.size(); i += kSlices) {
      Client& client = slow_[i];
      char some[1024];
      const ssize_t taken = ::recv(client.fd, some, sizeof some, MSG_DONTWAIT);
      result_.slow_bytes += taken > 0 ? taken : 0;
      if (i % 2 == 0) {
        result_.slow_bytes += ::send(client.fd, &kSmall[client.sent++ % kSmall.size()], 1,
                                     MSG_NOSIGNAL | MSG_DONTWAIT);
      }
    }
  }

  const LoadPlan plan_;
  const int epoll_;
  std::vector<Client> idle_;
  std::vector<Client> slow_;
  std::vector<Client> active_;
  std::vector<int64_t> waits_us_;
  bool asked_for_large_ = false;
  LoadResult result_;
};

}  // namespace soak
