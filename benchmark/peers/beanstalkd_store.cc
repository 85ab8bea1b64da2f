// The rows of common/StoreRows.h for beanstalkd, which benchmark/run starts with -f0: it syncs its
// log after each write. Links: beanstalkd.
//
// Each caller is a thread with a connection of its own to the unix socket --socket. beanstalkd has
// no names, so that jobs are deleted by their numbers, and keeps delays in whole seconds.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/Measure.h"
#include "common/StoreRows.h"

namespace bench {
namespace {

class Connection {
 public:
  explicit Connection(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      fail_row(path + ": " + std::strerror(errno));
    }
  }
  ~Connection() { ::close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends a command, and returns the number in an answer that begins with `expected`. `has_body`:
  // lines follow whose size is the second number.
  uint64_t ask(const std::string& command, const std::string& expected, bool has_body = false) {
    if (::send(fd_, command.data(), command.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(command.size())) {
      fail_row(std::string("beanstalkd: ") + std::strerror(errno));
    }
    size_t end = std::string::npos;
    while ((end = input_.find("\r\n")) == std::string::npos) {
      receive();
    }
    std::string answer = input_.substr(0, end);
    if (answer.compare(0, expected.size(), expected) != 0) fail_row("beanstalkd: " + answer);
    size_t whole = end + 2;
    char* rest = answer.data() + expected.size();
    const uint64_t number = std::strtoull(rest, &rest, 10);
    if (has_body) whole += std::strtoull(rest, nullptr, 10) + 2;
    while (input_.size() < whole) {
      receive();
    }
    input_.erase(0, whole);
    return number;
  }

 private:
  void receive() {
    char bytes[4096];
    const ssize_t count = ::recv(fd_, bytes, sizeof bytes, 0);
    if (count <= 0) fail_row("beanstalkd has closed the connection");
    input_.append(bytes, static_cast<size_t>(count));
  }

  const int fd_;
  std::string input_;
};

class Beanstalkd {
 public:
  static constexpr const char* kPeer = "beanstalkd";

  explicit Beanstalkd(std::string path) : path_(std::move(path)) {}

  void schedule(size_t first, size_t n, size_t callers, Due due) {
    if (jobs_.size() < first + n) jobs_.resize(first + n);
    each(n, callers, [this, first, due](Connection& connection, size_t i) {
      const std::string body = stored_name(first + i) + stored_payload();
      const std::string put = std::string("put 0 ") + (due == Due::kNow ? "0" : "3600") + " 30 " +
                              std::to_string(body.size()) + "\r\n" + body + "\r\n";
      jobs_[first + i] = connection.ask(put, "INSERTED");
    });
  }

  void cancel(size_t n, size_t callers) {
    each(n, callers, [this](Connection& connection, size_t i) {
      connection.ask("delete " + std::to_string(jobs_[i]) + "\r\n", "DELETED");
    });
  }

  void take(size_t n, size_t callers) {
    each(n, callers, [](Connection& connection, size_t) {
      const uint64_t job = connection.ask("reserve\r\n", "RESERVED", true);
      connection.ask("delete " + std::to_string(job) + "\r\n", "DELETED");
    });
  }

  void commit(size_t, size_t) { fail_row("beanstalkd has no transactions"); }
  int64_t log_bytes() const { return 0; }

 private:
  template <class Work>
  void each(size_t n, size_t callers, Work work) {
    std::atomic<size_t> taken{0};
    std::vector<std::thread> threads;
    for (size_t caller = 0; caller < callers; ++caller) {
      threads.emplace_back([&] {
        Connection connection(path_);
        for (size_t i = taken++; i < n; i = taken++) {
          work(connection, i);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  const std::string path_;
  std::vector<uint64_t> jobs_;  // their numbers, in the order of ours
};

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const bench::Options options(argc, argv);
  bench::Beanstalkd store(options.text("socket", ""));
  bench::run_store_row(store, options);
  return 0;
}
