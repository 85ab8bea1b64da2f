#include "workflow/WFServer.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "kernel/Socket.h"
#include "server/Server.h"

using workflow::UniqueFd;

namespace {

struct WFServerParams effective(struct WFServerParams params) {
  params.http_limits.body_bytes = params.request_size_limit;
  return params;
}

}  // namespace

WFServerBase::WFServerBase(const struct WFServerParams* params)
    : params_(effective(*params)), server_(std::make_unique<workflow::Server>(*this)) {}

WFServerBase::~WFServerBase() = default;

int WFServerBase::listen_at(const struct sockaddr* addr, socklen_t addrlen) {
  // Said before the address is asked for: its own port would only be in use.
  if (server_->is_open()) {
    errno = EALREADY;
    return -1;
  }
  UniqueFd fd = workflow::listen_on(addr, addrlen, SOMAXCONN);
  return fd.valid() ? server_->open(std::move(fd)) : -1;
}

int WFServerBase::start(const struct sockaddr* bind_addr, socklen_t addrlen) {
  return listen_at(bind_addr, addrlen);
}

int WFServerBase::start(int family, const char* host, unsigned short port) {
  struct addrinfo hints = {};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
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
    if (listen_at(each->ai_addr, each->ai_addrlen) == 0) return 0;
    if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) break;
  }
  return -1;
}

int WFServerBase::serve(int listen_fd) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) < 0) return -1;
  if (!listens) {
    errno = EINVAL;
    return -1;
  }
  UniqueFd fd(::fcntl(listen_fd, F_DUPFD_CLOEXEC, 0));
  if (!fd.valid() || !workflow::set_non_blocking(fd.get())) return -1;
  return server_->open(std::move(fd));
}

void WFServerBase::shutdown() {
  server_->shut_down();
}

void WFServerBase::wait_finish() {
  server_->wait();
}

size_t WFServerBase::get_conn_count() const {
  return server_->connection_count();
}

int WFServerBase::get_listen_addr(struct sockaddr* addr, socklen_t* addrlen) const {
  return server_->listen_addr(addr, addrlen);
}

WFConnection* WFServerBase::new_connection(int /*accept_fd*/) {
  struct Connection final : public WFConnection {};
  return new Connection;
}

void WFServerBase::delete_connection(WFConnection* connection) {
  delete connection;
}
