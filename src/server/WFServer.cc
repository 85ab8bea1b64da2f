#include "workflow/WFServer.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "kernel/Socket.h"
#include "kernel/TlsContext.h"
#include "server/Server.h"

using workflow::UniqueFd;

namespace {

struct WFServerParams effective(struct WFServerParams params) {
  params.http_limits.body_bytes = params.request_size_limit;
  return params;
}

// Tells the client that the server has made use of the name (RFC 6066, 3). Called for each
// ClientHello. If a handshake has a second one, it must name the same host (RFC 8446, 4.1.2).
// Before TLS 1.3 it has none, and what OpenSSL returns may be the name of a session.
int acknowledge_name(SSL* ssl, int* alert, void* /*argument*/) {
  if (SSL_version(ssl) < TLS1_3_VERSION) return SSL_TLSEXT_ERR_OK;
  const char* const name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
  const char* const chosen = workflow::chosen_host(ssl);
  const workflow::HostName asked = workflow::canonical_host(name ? name : "");
  if (chosen && std::strcmp(chosen, asked.data()) == 0) return SSL_TLSEXT_ERR_OK;
  *alert = SSL_AD_ILLEGAL_PARAMETER;
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

WFServerBase::WFServerBase(const struct WFServerParams* params)
    : params_(effective(*params)), server_(new workflow::Server(*this)) {}

WFServerBase::~WFServerBase() {
  if (implementation().belongs_to_parent_process()) return;  // never freed: it is the parent's
  implementation().require_finished();
  delete &implementation();
}

// Acquire, as the store in open() releases.
workflow::Server& WFServerBase::implementation() const {
  return *server_.load(std::memory_order_acquire);
}

int WFServerBase::open(int listen_fd, const char* cert_file, const char* key_file) {
  UniqueFd fd(listen_fd);
  workflow::TlsContext tls;
  if (cert_file || key_file) {
    if (workflow::is_datagram(params_.transport_type)) {
      errno = EPROTONOSUPPORT;
      return -1;
    }
    if (!cert_file || !key_file) {
      errno = EINVAL;
      return -1;
    }
    tls.reset(new_ssl_ctx(cert_file, key_file));
    if (!tls) return -1;
    // The callback for server names comes too late to choose by them: by then OpenSSL may have
    // resumed a session of another host.
    SSL_CTX_set_client_hello_cb(tls.get(), choose_context, this);
    SSL_CTX_set_tlsext_servername_callback(tls.get(), acknowledge_name);
  }
  if (!workflow::is_datagram(params_.transport_type) && !workflow::make_listen(fd.get())) return -1;
  try {
    if (implementation().belongs_to_parent_process()) {
      // The parent's may be locked for ever, and has the parent's connections.
      server_.store(new workflow::Server(*this), std::memory_order_release);
    }
    return implementation().open(std::move(fd), std::move(tls));
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

SSL_CTX* WFServerBase::new_ssl_ctx(const char* cert_file, const char* key_file) {
  workflow::TlsContext tls = workflow::new_server_tls_context();
  if (!tls) return nullptr;
  if (const int error = workflow::use_certificate(tls.get(), cert_file, key_file)) {
    errno = error;
    return nullptr;
  }
  if (params_.alpn_protocol) workflow::restrict_alpn(tls.get(), params_.alpn_protocol);
  return tls.release();
}

SSL_CTX* WFServerBase::get_server_ssl_ctx(const char* /*servername*/) {
  return implementation().tls_context();
}

int WFServerBase::choose_context(SSL* ssl, int* alert, void* server) {
  // The choice for a first ClientHello holds for a second one. If the first one has switched the
  // context, OpenSSL does not even call this again.
  if (workflow::chosen_host(ssl)) return SSL_CLIENT_HELLO_SUCCESS;
  const workflow::HostName name = workflow::requested_host(ssl);
  SSL_CTX* const first = SSL_get_SSL_CTX(ssl);
  SSL_CTX* context = first;
  if (name[0] != '\0') {
    context = static_cast<WFServerBase*>(server)->get_server_ssl_ctx(name.data());
  }
  if (!context) {
    *alert = SSL_AD_UNRECOGNIZED_NAME;
    return SSL_CLIENT_HELLO_ERROR;
  }
  if (!workflow::set_chosen_host(ssl, name) ||
      (context != first && !workflow::switch_context(ssl, context))) {
    *alert = SSL_AD_INTERNAL_ERROR;
    return SSL_CLIENT_HELLO_ERROR;
  }
  return SSL_CLIENT_HELLO_SUCCESS;
}

bool WFServerBase::can_start() const {
  return has_process() && workflow::is_transport(params_.transport_type);
}

int WFServerBase::listen_at(const struct sockaddr* addr, socklen_t addrlen, const char* cert_file,
                            const char* key_file) {
  if (!can_start() || !addr || addrlen < sizeof addr->sa_family) {
    errno = EINVAL;
    return -1;
  }
  // This error comes before the address is used: otherwise it would be that the port is in use, by
  // this very server.
  if (implementation().is_open()) {
    errno = EALREADY;
    return -1;
  }
  UniqueFd fd = workflow::listen_on(params_.transport_type, addr, addrlen, SOMAXCONN);
  return fd.valid() ? open(fd.release(), cert_file, key_file) : -1;
}

int WFServerBase::start(const struct sockaddr* bind_addr, socklen_t addrlen, const char* cert_file,
                        const char* key_file) {
  return listen_at(bind_addr, addrlen, cert_file, key_file);
}

int WFServerBase::start(int family, const char* host, unsigned short port, const char* cert_file,
                        const char* key_file) {
  struct addrinfo hints = {};
  hints.ai_family = family;
  hints.ai_socktype = workflow::is_datagram(params_.transport_type) ? SOCK_DGRAM : SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  char service[8];
  std::snprintf(service, sizeof service, "%u", static_cast<unsigned>(port));
  struct addrinfo* found = nullptr;
  const int result = ::getaddrinfo(host, service, &hints, &found);
  if (result != 0) {
    if (result != EAI_SYSTEM) errno = result == EAI_MEMORY ? ENOMEM : EADDRNOTAVAIL;
    return -1;
  }
  const std::unique_ptr<struct addrinfo, decltype(&::freeaddrinfo)> addresses(found,
                                                                              &::freeaddrinfo);
  // A name may stand for addresses that this machine cannot use: "localhost" for ::1 without IPv6.
  for (const struct addrinfo* each = addresses.get(); each; each = each->ai_next) {
    if (listen_at(each->ai_addr, each->ai_addrlen, cert_file, key_file) == 0) return 0;
    if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) break;
  }
  return -1;
}

int WFServerBase::serve(int listen_fd, const char* cert_file, const char* key_file) {
  if (!can_start()) {
    errno = EINVAL;
    return -1;
  }
  int type = 0;
  socklen_t length = sizeof type;
  if (::getsockopt(listen_fd, SOL_SOCKET, SO_TYPE, &type, &length) < 0) return -1;
  if (workflow::is_datagram(params_.transport_type) != (type == SOCK_DGRAM)) {
    errno = EINVAL;
    return -1;
  }
  // This error comes before the socket is made to listen.
  if (implementation().is_open()) {
    errno = EALREADY;
    return -1;
  }
  UniqueFd fd(::fcntl(listen_fd, F_DUPFD_CLOEXEC, 0));
  if (!fd.valid() || !workflow::set_non_blocking(fd.get())) return -1;
  return open(fd.release(), cert_file, key_file);
}

void WFServerBase::stop_or_abort() {
  stop();
  implementation().require_finished();
}

void WFServerBase::shutdown() {
  implementation().shut_down();
}

void WFServerBase::wait_finish() {
  implementation().wait();
}

struct WFStopResult WFServerBase::stop(int timeout, enum WFStopAction action) {
  std::string unavailable;
  try {
    unavailable = unavailable_answer();
  } catch (const std::bad_alloc&) {
    // As without one.
  }
  return implementation().stop_within(timeout, action, unavailable);
}

size_t WFServerBase::get_conn_count() const {
  return implementation().connection_count();
}

int WFServerBase::get_listen_addr(struct sockaddr* addr, socklen_t* addrlen) const {
  return implementation().listen_addr(addr, addrlen);
}

WFConnection* WFServerBase::new_connection(int /*accept_fd*/) {
  struct Connection final : public WFConnection {};
  return new Connection;
}

void WFServerBase::delete_connection(WFConnection* connection) {
  delete connection;
}
