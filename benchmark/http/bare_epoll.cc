// The yardstick of the HTTP rows: one thread, one epoll, the end of a header found and a constant
// reply written, nothing parsed, no limit kept. Links: nothing.
//
// What asks for /delay is answered --delay-ms later. As all delays are the same, a queue in the
// order of the requests is all the timer it needs.
//
// Prints "port=N" when it listens on 127.0.0.1 (--port, default 0: any free one); ends by signal.

#include <sys/epoll.h>

#include <cerrno>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "common/HttpSupport.h"
#include "common/Measure.h"

namespace bench {
namespace {

class BareServer {
 public:
  BareServer(unsigned short port, int64_t delay_ns) : delay_ns_(delay_ns) {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address = loopback(port);
    socklen_t length = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0) fail_errno("bind");
    if (listen(listener_, 4096) != 0) fail_errno("listen");
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    watch(listener_);
    print_port(address);
  }

  [[noreturn]] void run() {
    epoll_event events[256];
    while (true) {
      const int ready = wait(events, 256);
      for (int i = 0; i < ready; ++i) {
        const int fd = events[i].data.fd;
        if (fd == listener_) {
          accept_all();
        } else {
          serve(fd);
        }
      }
      answer_delayed();
    }
  }

 private:
  static constexpr std::string_view kDelayed = "GET /delay";

  struct Connection {
    std::string unfinished;  // the part of a header read so far
    int number = 0;          // counts those that had this descriptor
  };
  struct Delayed {
    int64_t due_ns;
    int fd;
    int number;
  };

  int wait(epoll_event* events, int count) const {
    if (delayed_.empty()) return epoll_wait(epoll_, events, count, -1);
    const int64_t left_ns = std::max<int64_t>(delayed_.front().due_ns - now_ns(), 0);
    const timespec timeout{static_cast<time_t>(left_ns / kNsPerSecond),
                           static_cast<long>(left_ns % kNsPerSecond)};
    return epoll_pwait2(epoll_, events, count, &timeout, nullptr);
  }

  void answer_delayed() {
    if (delayed_.empty()) return;
    for (const int64_t now = now_ns(); !delayed_.empty() && delayed_.front().due_ns <= now;) {
      const Delayed next = delayed_.front();
      delayed_.pop_front();
      if (connections_[static_cast<size_t>(next.fd)].number == next.number) answer(next.fd);
    }
  }

  // A reply this small fits an empty socket buffer; a client that lets it fill is cut off.
  bool answer(int fd) {
    if (write(fd, reply_.data(), reply_.size()) == static_cast<ssize_t>(reply_.size())) return true;
    end(fd);
    return false;
  }

  void end(int fd) {
    ++connections_[static_cast<size_t>(fd)].number;
    close(fd);
  }

  void watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  void accept_all() {
    while (true) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const auto index = static_cast<size_t>(fd);
      if (connections_.size() <= index) connections_.resize(index + 1);
      connections_[index].unfinished.clear();
      watch(fd);
    }
  }

  void serve(int fd) {
    char buffer[16 * 1024];
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      end(fd);
      return;
    }
    std::string_view input(buffer, static_cast<size_t>(n));
    std::string& unfinished = connections_[static_cast<size_t>(fd)].unfinished;
    if (!unfinished.empty()) {
      unfinished.append(input);
      input = unfinished;
    }
    size_t used = 0;
    for (size_t end; (end = input.find("\r\n\r\n", used)) != std::string_view::npos;) {
      const bool delayed = delay_ns_ > 0 && input.substr(used, kDelayed.size()) == kDelayed;
      used = end + 4;
      if (delayed) {
        const int number = connections_[static_cast<size_t>(fd)].number;
        delayed_.push_back({now_ns() + delay_ns_, fd, number});
      } else if (!answer(fd)) {
        return;
      }
    }
    if (used < input.size() || !unfinished.empty()) unfinished = std::string(input.substr(used));
  }

  const int64_t delay_ns_;
  int epoll_ = -1;
  int listener_ = -1;
  std::vector<Connection> connections_;  // by descriptor
  std::deque<Delayed> delayed_;          // the next one due first
  const std::string reply_ = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " +
                             std::to_string(sizeof kReplyBody - 1) + "\r\n\r\n" + kReplyBody;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  bench::raise_descriptor_limit();
  const auto port = static_cast<unsigned short>(options.number("port", 0));
  bench::BareServer(port, options.number("delay-ms", 0) * bench::kNsPerMs).run();
}
