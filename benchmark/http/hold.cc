// Row http_memory: opens --connections to 127.0.0.1:--port, sends one request on each, and says how
// much the resident memory of process --pid (the server) grew per connection. Links: nothing.
//
// The server must delay its replies by much longer than this takes: a reply that arrives before the
// measurement ends it with an error, since an answered connection is not what the row is about.
// With --stay=1 it then keeps them until SIGTERM or SIGINT.

#include <poll.h>

#include <cerrno>
#include <string>
#include <vector>

#include "common/HttpSupport.h"
#include "common/Measure.h"

namespace bench {
namespace {

// --path, since nginx chooses the delay by location.
int open_and_ask(unsigned short port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail_errno("socket");
  const sockaddr_in address = loopback(port);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fail_errno("connect");
  }
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
  if (write(fd, request.data(), request.size()) != static_cast<ssize_t>(request.size())) {
    fail_errno("write");
  }
  return fd;
}

void require_unanswered(const std::vector<int>& connections) {
  for (const int fd : connections) {
    pollfd look{fd, POLLIN, 0};
    if (poll(&look, 1, 0) != 0) {
      std::fprintf(stderr, "hold: a connection was answered or closed too early\n");
      _exit(1);
    }
  }
}

// The server reads after the client has written: its memory is final when it stops growing.
int64_t settled_resident_bytes(pid_t pid) {
  int64_t last = -1;
  for (int i = 0; i < 50; ++i) {
    const int64_t bytes = resident_bytes(pid);
    if (bytes == last) break;
    last = bytes;
    sleep_ns(200 * kNsPerMs);
  }
  return last;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  const Options options(argc, argv);
  const auto port = static_cast<unsigned short>(options.number("port", 0));
  const auto pid = static_cast<pid_t>(options.number("pid", 0));
  const size_t count = options.count("connections", 10'000);
  const std::string path = options.text("path", "/delay");
  const bool stay = options.number("stay", 0) != 0;
  raise_descriptor_limit();
  hold_end_signals();

  std::vector<int> connections;
  for (int i = 0; i < 16; ++i)
    connections.push_back(open_and_ask(port, path));  // warm-up
  const int64_t before = settled_resident_bytes(pid);
  for (size_t i = 0; i < count; ++i)
    connections.push_back(open_and_ask(port, path));
  const int64_t after = settled_resident_bytes(pid);
  require_unanswered(connections);
  Line("http_memory", options.text("peer", "ours"))
      .add("connections", count)
      .add("bytes", per_op(after - before, count))
      .print();
  if (stay) await_end_signal();
  return 0;
}
