#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "workflow/EndpointParams.h"
#include "workflow/HttpLimits.h"
#include "workflow/WFServerTask.h"

namespace workflow {
class Server;
}  // namespace workflow

// Times are in ms, sizes in bytes. -1 as a time: unlimited.
struct WFServerParams {
  enum TransportType transport_type;
  // Further ones are accepted and closed at once. Never more than the descriptor limit less 64.
  size_t max_connections;
  // Between two reads of a request's body.
  int peer_response_timeout;
  // For a whole request, from its first byte; besides the limits below.
  int receive_timeout;
  // Between a reply and the next request. 0: each connection carries one request.
  int keep_alive_timeout;
  // The body of a request. HTTP answers 413.
  size_t request_size_limit;
  int ssl_accept_timeout;

  // For a request's whole header section, and for the first request of a connection to come.
  // HTTP answers 408, here and for a body that is too slow.
  int header_timeout;
  // For a request's whole body: this much, and a second more for each so many bytes.
  int body_timeout;
  size_t body_bytes_per_second;
  // For sending a reply: without progress for so long the connection is closed.
  int send_timeout;
  // After an error answer or the last reply, until the peer closes: so long and so many bytes.
  int linger_timeout;
  size_t linger_size_limit;
  // HTTP: sizes and numbers; its body_bytes is not used, request_size_limit is.
  struct protocol::HttpLimits http_limits;
};

static constexpr struct WFServerParams SERVER_PARAMS_DEFAULT = {
    /*.transport_type =*/TT_TCP,
    /*.max_connections =*/10000,
    /*.peer_response_timeout =*/10 * 1000,
    /*.receive_timeout =*/-1,
    /*.keep_alive_timeout =*/60 * 1000,
    /*.request_size_limit =*/static_cast<size_t>(-1),
    /*.ssl_accept_timeout =*/10 * 1000,
    /*.header_timeout =*/10 * 1000,
    /*.body_timeout =*/60 * 1000,
    /*.body_bytes_per_second =*/16 * 1024,
    /*.send_timeout =*/30 * 1000,
    /*.linger_timeout =*/2 * 1000,
    /*.linger_size_limit =*/256 * 1024,
    /*.http_limits =*/{},
};

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
  // EADDRNOTAVAIL for a host that does not resolve. Port 0: one that is free (get_listen_addr).
  // Without a host: every IPv4 address.
  int start(unsigned short port) { return start(AF_INET, nullptr, port); }
  int start(int family, unsigned short port) { return start(family, nullptr, port); }
  int start(const char *host, unsigned short port) { return start(AF_UNSPEC, host, port); }
  int start(int family, const char *host, unsigned short port);
  // Any stream address: AF_INET, AF_INET6, AF_UNIX (the path must not exist yet).
  int start(const struct sockaddr *bind_addr, socklen_t addrlen);
  // A socket that listens already, for instance inherited for a restart without refused
  // connections. It is duplicated: the caller keeps its own. EINVAL when it does not listen.
  int serve(int listen_fd);

  // Stops accepting, and closes the connections without a complete request. Returns at once.
  void shutdown();
  // Returns when every series that a request began has ended and every connection is closed.
  // Called from inside such a series, or while a connection is made or deleted, it would wait for
  // itself: it prints so to stderr and returns at once, with errno EDEADLK.
  void wait_finish();
  void stop() {
    shutdown();
    wait_finish();
  }

  size_t get_conn_count() const;
  // 0, or -1 with errno: ENOTCONN before start, ENOBUFS when `*addrlen` is too small.
  int get_listen_addr(struct sockaddr *addr, socklen_t *addrlen) const;
  const struct WFServerParams *get_params() const { return &params_; }

 protected:
  // Called for each accepted connection, on a poller's thread, and when it is gone. May return
  // null to refuse the connection.
  virtual WFConnection *new_connection(int accept_fd);
  virtual void delete_connection(WFConnection *connection);

  virtual workflow::ServerExchange *new_exchange() = 0;

 private:
  friend class workflow::Server;
  int listen_at(const struct sockaddr *addr, socklen_t addrlen);

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

  // Stops the server if that was not done. A derived class that overrides something calls stop()
  // in its own destructor.
  ~WFServer() override { stop(); }

 protected:
  workflow::ServerExchange *new_exchange() override {
    return new WFServerTask<REQ, RESP>(process_);
  }

  const Process process_;
};
