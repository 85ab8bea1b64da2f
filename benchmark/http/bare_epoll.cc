// The yardstick of the HTTP rows: one thread, one epoll, the end of a header found and a constant
// reply written, nothing parsed, no limit kept. Links: nothing.
//
// Prints "port=N" when it listens on 127.0.0.1 (--port, default 0: any free one); ends by signal.

#include <sys/epoll.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "common/HttpSupport.h"
#include "common/Measure.h"

namespace bench {
namespace {

class BareServer {
 public:
  explicit BareServer(unsigned short port) {
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
      const int ready = epoll_wait(epoll_, events, 256, -1);
      for (int i = 0; i < ready; ++i) {
        const int fd = events[i].data.fd;
        if (fd == listener_) {
          accept_all();
        } else {
          serve(fd);
        }
      }
    }
  }

 private:
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
      if (unfinished_.size() <= index) unfinished_.resize(index + 1);
      unfinished_[index].clear();
      watch(fd);
    }
  }

  void serve(int fd) {
    char buffer[16 * 1024];
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      close(fd);
      return;
    }
    std::string_view input(buffer, static_cast<size_t>(n));
    std::string& unfinished = unfinished_[static_cast<size_t>(fd)];
    if (!unfinished.empty()) {
      unfinished.append(input);
      input = unfinished;
    }
    size_t used = 0;
    for (size_t end; (end = input.find("\r\n\r\n", used)) != std::string_view::npos;) {
      used = end + 4;
      // A reply this small fits an empty socket buffer; a client that lets it fill is cut off.
      if (write(fd, reply_.data(), reply_.size()) != static_cast<ssize_t>(reply_.size())) {
        close(fd);
        return;
      }
    }
    if (used < input.size() || !unfinished.empty()) unfinished = std::string(input.substr(used));
  }

  int epoll_ = -1;
  int listener_ = -1;
  std::vector<std::string> unfinished_;  // by descriptor: the part of a header read so far
  const std::string reply_ = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: " +
                             std::to_string(sizeof kReplyBody - 1) + "\r\n\r\n" + kReplyBody;
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  bench::raise_descriptor_limit();
  bench::BareServer(static_cast<unsigned short>(options.number("port", 0))).run();
}
