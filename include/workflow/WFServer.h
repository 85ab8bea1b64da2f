#pragma once

#include <openssl/ssl.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "workflow/WFServerParams.h"
#include "workflow/WFServerTask.h"
#include "workflow/WFTaskFactory.h"

namespace workflow {
class Server;
}  // namespace workflow

// The part of a server that does not depend on the protocol: it listens, accepts connections and
// sends replies. The derived class says what a request and a reply are.
//
// Threads: start, serve, shutdown, wait_finish and stop may be called from any thread, but only one
// start at a time. After wait_finish() the server can be started again. In a child of fork(2) a
// server of the parent is not started, and can be: the parent goes on serving.
class WFServerBase {
 public:
  explicit WFServerBase(const struct WFServerParams *params);
  virtual ~WFServerBase();
  WFServerBase(const WFServerBase &) = delete;
  WFServerBase &operator=(const WFServerBase &) = delete;

  // Returns 0, or -1 with errno: that of socket(2), bind(2) or listen(2); EALREADY if the server is
  // started; EADDRNOTAVAIL if the host does not resolve; EINVAL if the address or `process` is
  // missing, or if the transport is not one of the enum; EPROTONOSUPPORT if the kernel does not
  // have the transport, and for TLS over datagrams; ECANCELED if the library has stopped. Port 0
  // chooses a free port (see get_listen_addr). Without a host the server listens on every address
  // of the family, which is AF_INET unless it is given. A host is looked up by getaddrinfo(3),
  // which may block.
  //
  // With a certificate chain and its key, both PEM files, the server speaks TLS 1.2 and later. Then
  // errno may also be that of opening the files; EINVAL if one of the two is null, if their
  // contents are wrong or the key is encrypted (there is no password prompt); EKEYREJECTED if the
  // key does not belong to the certificate.
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
  // The family is AF_INET, AF_INET6 or AF_UNIX. The path of a unix socket must not exist yet.
  int start(const struct sockaddr *bind_addr, socklen_t addrlen) {
    return start(bind_addr, addrlen, nullptr, nullptr);
  }
  int start(const struct sockaddr *bind_addr, socklen_t addrlen, const char *cert_file,
            const char *key_file);
  // Serves on a socket of the caller that already listens, or that is bound and is then made to
  // listen. One use is a socket inherited for a restart without refused connections. The descriptor
  // is duplicated: the caller keeps its own, which becomes non-blocking, too. EINVAL if the socket
  // is not bound. It is also EINVAL for a datagram socket, or, with TT_UDP, for any other socket.
  int serve(int listen_fd) { return serve(listen_fd, nullptr, nullptr); }
  int serve(int listen_fd, const char *cert_file, const char *key_file);

  // Stops accepting, and closes the connections that have no complete request. Returns at once.
  void shutdown();
  // Returns when every series that a request began has ended and every connection is closed. A
  // client delays this only until its reply has been sent, even if it keeps its connection open. If
  // the client may still be sending, or has not acknowledged the reply, its socket stays open after
  // that, for params.linger_timeout at most. The library keeps that socket; the server object is no
  // longer needed.
  //
  // If this is called inside such a series, also in the function of a go or thread task of it, or
  // while a connection is made or deleted, it would wait for itself. It then prints a message to
  // stderr and returns at once, with errno EDEADLK.
  void wait_finish();
  void stop() {
    shutdown();
    wait_finish();
  }

  // Stops like stop(), but with a time limit in ms (-1 means no limit). At the limit, `action` is
  // applied to the replies that are still delayed. A further `linger_timeout` later (2 s if that is
  // unlimited) every connection is closed, even if there is unsent data. After the same time again
  // the call returns, even if something still runs. Where wait_finish() would fail with EDEADLK
  // this does, too, after it has done what shutdown() does.
  struct WFStopResult stop(int timeout, enum WFStopAction action);

  // Returns the number of connections. A datagram server counts the requests whose series has not
  // ended.
  size_t get_conn_count() const;
  // Returns 0, or -1 with errno: ENOTCONN before start() and after shutdown(), ENOBUFS if
  // `*addrlen` is too small.
  int get_listen_addr(struct sockaddr *addr, socklen_t *addrlen) const;
  const struct WFServerParams *get_params() const { return &params_; }

 protected:
  // new_connection() is called for each accepted connection, on a poller's thread, where it must
  // not wait. If it returns null the connection is refused. delete_connection() is called when the
  // connection is gone, on any thread. A datagram server calls them for each request, with the
  // server's socket.
  virtual WFConnection *new_connection(int accept_fd);
  virtual void delete_connection(WFConnection *connection);

  // Creates the TLS context for a certificate, or returns null with errno. Override it for other
  // settings of TLS. The caller owns the returned context.
  virtual SSL_CTX *new_ssl_ctx(const char *cert_file, const char *key_file);

  // Returns the TLS context for a client that names the host it wants (SNI, RFC 6066, section 3).
  // The name is in lower case, without the dot at the end of a fully qualified one, and has at most
  // 255 bytes. Clients may send any number of names, so bound what you keep for each. If the result
  // is null the client is refused. By default it is the context with which the server was started,
  // whatever the name. The returned context must live as long as the server runs; new_ssl_ctx() is
  // the best way to make one. One that is made otherwise needs a session id context of its own
  // (SSL_CTX_set_session_id_context(3)): clients can resume a session with each context that has
  // the same one. new_ssl_ctx() gives each a random one, so for processes that are to resume each
  // other's sessions set one for each host, beside the ticket keys. Called on a poller's thread:
  // must not wait.
  //
  // Also called for an HTTP request whose host is not the one that its client has named to make the
  // connection. The name is that of the request then, without a port, and may be an address, IPv6
  // in brackets. If the result is not the context of the connection and asks for a client's
  // certificate (SSL_VERIFY_PEER), the answer is 421 (RFC 9110, section 15.5.20). With any other
  // result the request is served. If the result is null, or if the request's host is missing or has
  // more than 255 bytes, the context with which the server was started counts as the result. What
  // callbacks of OpenSSL demand (SSL_CTX_set_cert_cb(3)) is not seen: only the context counts, and
  // only for connections on which all of its demands are in force.
  //
  // The library sets the callbacks of the context with which the server is started for a
  // ClientHello and for a server name.
  virtual SSL_CTX *get_server_ssl_ctx(const char *servername);

  virtual workflow::ServerExchange *new_exchange() = 0;
  // For destructors, which call it before they destroy anything that a running request may use.
  void stop_or_abort();
  // Whether the server has a function to call for requests.
  virtual bool has_process() const { return true; }
  // The bytes to send for WF_STOP_ANSWER. They may be empty.
  virtual std::string unavailable_answer() const { return std::string(); }

 private:
  friend class workflow::Server;
  int listen_at(const struct sockaddr *addr, socklen_t addrlen, const char *cert_file,
                const char *key_file);
  bool can_start() const;
  // Takes ownership of the descriptor.
  int open(int listen_fd, const char *cert_file, const char *key_file);
  static int choose_context(SSL *ssl, int *alert, void *server);
  workflow::Server &implementation() const;

  const struct WFServerParams params_;
  std::atomic<workflow::Server *> server_;  // constant but in a child of fork(2)
};

// A server whose messages are REQ and RESP. `process` is called for each request, on a thread of
// the library. The reply is sent when the request's series has no task left: pushing a timer on the
// series delays it.
template <class REQ, class RESP>
class WFServer : public WFServerBase {
 public:
  using Process = std::function<void(WFNetworkTask<REQ, RESP> *)>;

  // `params` must not be null; they are copied. Without a `process` the server does not start
  // (EINVAL).
  explicit WFServer(Process process) : WFServer(&SERVER_PARAMS_DEFAULT, std::move(process)) {}
  WFServer(const struct WFServerParams *params, Process process)
      : WFServerBase(params), process_(std::move(process)) {}

  // Stops the server if it still runs. Inside one of the server's own series that is impossible,
  // and the process is aborted. A derived class must call stop() in its own destructor: when this
  // destructor runs, the derived part is already destroyed, and requests may still arrive.
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
