#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "workflow/WFServerParams.h"
#include "workflow/WFServerTask.h"
#include "workflow/WFTaskFactory.h"

namespace workflow {
class Server;
}  // namespace workflow

// Listens, accepts and answers; what a request and a reply are is the derived class's.
//
// Threads: start, serve, shutdown, wait_finish and stop from any thread, one start at a time. After
// wait_finish() it can be started again.
class WFServerBase {
 public:
  explicit WFServerBase(const struct WFServerParams *params);
  virtual ~WFServerBase();
  WFServerBase(const WFServerBase &) = delete;
  WFServerBase &operator=(const WFServerBase &) = delete;

  // 0, or -1 with errno: that of socket(2), bind(2), listen(2); EALREADY when it is started;
  // EADDRNOTAVAIL for a host that does not resolve; EINVAL without an address or a `process`, and
  // for a transport that is none; EPROTONOSUPPORT for a transport that the kernel
  // has not, and for TLS over datagrams. Port 0: one that is free (get_listen_addr).
  // Without a host: every IPv4 address.
  //
  // With a certificate chain and its key, both PEM files, the server speaks TLS 1.2 and later;
  // errno is then also that of opening the files, EINVAL for what is in them, an encrypted key, too
  // (nobody is asked for a password), EKEYREJECTED when the key is not the certificate's.
  int start(unsigned short port) { return start(AF_INET, nullptr, port); }
  int start(int family, unsigned short port) { return start(family, nullptr, port); }
  int start(const char *host, unsigned short port) { return start(AF_UNSPEC, host, port); }
  int start(int family, const char *host, unsigned short port) {
    return start(family, host, port, nullptr, nullptr);
  }
  int start(unsigned short port, const char *cert_file, const char *key_file) {
    return start(AF_INET, nullptr, port, cert_file, key_file);
  }
  int start(int family, unsigned short port, const char *cert_file, const char *key_file) {
    return start(family, nullptr, port, cert_file, key_file);
  }
  int start(const char *host, unsigned short port, const char *cert_file, const char *key_file) {
    return start(AF_UNSPEC, host, port, cert_file, key_file);
  }
  int start(int family, const char *host, unsigned short port, const char *cert_file,
            const char *key_file);
  // AF_INET, AF_INET6, AF_UNIX (the path must not exist yet).
  int start(const struct sockaddr *bind_addr, socklen_t addrlen) {
    return start(bind_addr, addrlen, nullptr, nullptr);
  }
  int start(const struct sockaddr *bind_addr, socklen_t addrlen, const char *cert_file,
            const char *key_file);
  // A socket that listens, or is bound and is made to listen, for instance inherited for a restart
  // without refused connections. It is duplicated: the caller keeps its own, which becomes
  // non-blocking, too. EINVAL when it is not bound, and when it is a datagram socket; with TT_UDP,
  // when it is none.
  int serve(int listen_fd) { return serve(listen_fd, nullptr, nullptr); }
  int serve(int listen_fd, const char *cert_file, const char *key_file);

  // Stops accepting, and closes the connections without a complete request. Returns at once.
  void shutdown();
  // Returns when every series that a request began has ended and every connection is closed. A
  // client holds it up only until its reply has left, even if it keeps its connection open. If the
  // client may still be sending, or has not acknowledged the reply, its socket stays open after
  // that, for params.linger_timeout at most. The server is not needed for this.
  // Called from inside such a series, or while a connection is made or deleted, it would wait for
  // itself: it prints so to stderr and returns at once, with errno EDEADLK.
  void wait_finish();
  void stop() {
    shutdown();
    wait_finish();
  }

  // The same with a time limit, in ms (-1: none). Then `action` is done to the replies still
  // delayed; after `linger_timeout` every connection is closed, whatever is left to be sent; and
  // after as long again it returns, whatever still runs. With errno EDEADLK as in wait_finish(),
  // and nothing but shutdown() done.
  struct WFStopResult stop(int timeout, enum WFStopAction action);

  // Connections; of datagrams: requests whose series has not ended.
  size_t get_conn_count() const;
  // 0, or -1 with errno: ENOTCONN before start, ENOBUFS when `*addrlen` is too small.
  int get_listen_addr(struct sockaddr *addr, socklen_t *addrlen) const;
  const struct WFServerParams *get_params() const { return &params_; }

 protected:
  // For each accepted connection, on a poller's thread, where it must not wait; null refuses the
  // connection. And when it is gone, on any thread. Of datagrams: for each request, with the
  // server's socket.
  virtual WFConnection *new_connection(int accept_fd);
  virtual void delete_connection(WFConnection *connection);

  // The context of a certificate. Null with errno. Overridden for other settings of TLS; what it
  // returns belongs to the caller.
  virtual SSL_CTX *new_ssl_ctx(const char *cert_file, const char *key_file);

  // The context for a client that names the host it wants (SNI, RFC 6066, section 3); null refuses
  // it. By default the one the server was started with, whatever the name. What it returns lives
  // as long as the server runs, and is best made by new_ssl_ctx(). On a poller's thread: must not
  // wait.
  virtual SSL_CTX *get_server_ssl_ctx(const char *servername);

  virtual workflow::ServerExchange *new_exchange() = 0;
  // For destructors: what still runs may use what they destroy.
  void stop_or_abort();
  // Whether there is something to do with requests.
  virtual bool has_process() const { return true; }
  // For WF_STOP_ANSWER: the bytes; perhaps none.
  virtual std::string unavailable_answer() const { return std::string(); }

 private:
  friend class workflow::Server;
  int listen_at(const struct sockaddr *addr, socklen_t addrlen, const char *cert_file,
                const char *key_file);
  bool can_start() const;
  // Takes the descriptor.
  int open(int listen_fd, const char *cert_file, const char *key_file);
  static int choose_context(SSL *ssl, int *alert, void *server);

  const struct WFServerParams params_;
  const std::unique_ptr<workflow::Server> server_;
};

// A server whose messages are REQ and RESP. `process` is called for each request, on a framework
// thread. The reply is sent when the request's series has no task left: pushing a timer on the
// series delays it.
template <class REQ, class RESP>
class WFServer : public WFServerBase {
 public:
  using Process = std::function<void(WFNetworkTask<REQ, RESP> *)>;

  explicit WFServer(Process process) : WFServer(&SERVER_PARAMS_DEFAULT, std::move(process)) {}
  WFServer(const struct WFServerParams *params, Process process)
      : WFServerBase(params), process_(std::move(process)) {}

  // Stops the server if that was not done; inside one of its own series, where that is impossible,
  // it ends the process (abort). A derived class calls stop() in its own destructor: in
  // this one its part is gone already, and requests may still be coming.
  ~WFServer() override { stop_or_abort(); }

 protected:
  workflow::ServerExchange *new_exchange() override {
    return new WFServerTask<REQ, RESP>(process_);
  }
  bool has_process() const override { return process_ != nullptr; }

  std::string unavailable_answer() const override {
    return WFServerProtocol<REQ, RESP>::unavailable();
  }

  const Process process_;
};
