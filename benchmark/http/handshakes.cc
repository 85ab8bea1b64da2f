// Row handshakes: --threads clients, each of which connects to 127.0.0.1:--port again and again for
// --seconds: TLS 1.3, one request, its reply, the end. --mode=new makes each session anew, resumed
// takes up the session of the client's last connection. Links: OpenSSL.
//
// Prints how many connections there were, and refuses to if one of them was not what it should be.
// openssl s_time is not used: it drops the tickets of TLS 1.3 unread unless it also asks for a
// page, and has only one connection under way.

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/HttpSupport.h"
#include "common/Measure.h"

namespace bench {
namespace {

[[noreturn]] void fail_tls(const char* what) {
  std::fprintf(stderr, "handshakes: %s\n", what);
  ERR_print_errors_fp(stderr);
  _exit(1);
}

struct Free {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};
using Context = std::unique_ptr<SSL_CTX, Free>;
using Session = std::unique_ptr<SSL_SESSION, Free>;

// As for every server, no certificate is checked, which is the client's work, not theirs.
Context new_context() {
  Context context(SSL_CTX_new(TLS_client_method()));
  if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_128_GCM_SHA256") != 1 ||
      SSL_CTX_set1_groups_list(context.get(), "X25519") != 1) {
    fail_tls("context");
  }
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_CLIENT);
  return context;
}

int connect_to(const sockaddr_in& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail_errno("socket");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fail_errno("connect");
  }
  return fd;
}

// One connection from its beginning to its end; gives its session back, to be resumed.
Session visit(SSL_CTX* context, const sockaddr_in& address, SSL_SESSION* resumed) {
  static constexpr char kRequest[] =
      "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
  const int fd = connect_to(address);
  const std::unique_ptr<SSL, Free> ssl(SSL_new(context));
  if (!ssl || SSL_set_fd(ssl.get(), fd) != 1) fail_tls("connection");
  if (resumed != nullptr) SSL_set_session(ssl.get(), resumed);
  if (SSL_connect(ssl.get()) != 1) fail_tls("handshake");
  if (SSL_session_reused(ssl.get()) != (resumed != nullptr)) fail_tls("new and resumed confused");
  if (SSL_write(ssl.get(), kRequest, sizeof kRequest - 1) <= 0) fail_tls("request");
  char buffer[4096];
  size_t received = 0;
  for (int n; (n = SSL_read(ssl.get(), buffer, sizeof buffer)) > 0;)
    received += static_cast<size_t>(n);
  if (received == 0) fail_tls("no reply");
  Session session(SSL_get1_session(ssl.get()));
  SSL_shutdown(ssl.get());
  close(fd);
  return session;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  using namespace bench;
  const Options options(argc, argv);
  const sockaddr_in address = loopback(static_cast<unsigned short>(options.number("port", 0)));
  const bool resume = options.text("mode", "new") == "resumed";
  const int64_t seconds = options.number("seconds", 3);
  signal(SIGPIPE, SIG_IGN);

  std::atomic<size_t> connections{0};
  const Context context = new_context();
  const int64_t began_ns = now_ns();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.count("threads", 16); ++i) {
    threads.emplace_back([&] {
      Session session;
      if (resume) session = visit(context.get(), address, nullptr);
      size_t made = 0;
      while (now_ns() - began_ns < seconds * kNsPerSecond) {
        Session next = visit(context.get(), address, session.get());
        if (resume) session = std::move(next);
        ++made;
      }
      connections += made;
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  const double passed_s = per_op(now_ns() - began_ns, size_t{kNsPerSecond});
  std::printf("connections=%zu per_s=%.6g\n", connections.load(),
              static_cast<double>(connections.load()) / passed_s);
  return 0;
}
