#include "workflow/ClientExchange.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "client/ClientConnection.h"
#include "client/ClientEndpoint.h"
#include "client/ClientHub.h"
#include "client/ClientSession.h"
#include "client/EarlyEnd.h"
#include "kernel/Runtime.h"
#include "workflow/WFTaskState.h"

namespace workflow {

ClientExchange::~ClientExchange() {
  give_up_early_end();
  if (connection_) {
    connection_->release();
  }
}

bool ClientExchange::allow_early_end() {
  give_up_early_end();
  early_end_ = new (std::nothrow) EarlyEnd();
  return early_end_ != nullptr;
}

Runnable* ClientExchange::end_early(int error) {
  early_end_->ask(error);
  return early_end_;
}

void ClientExchange::give_up_early_end() {
  if (EarlyEnd* const early_end = std::exchange(early_end_, nullptr)) {
    early_end->give_up();
  }
}

void ClientExchange::begin(const ClientTarget& target, int retry_max) {
  RunnableList finished;
  ClientSession* session = nullptr;
  try {
    session = new ClientSession(this, target, retry_max);
  } catch (const std::bad_alloc&) {
    Runtime::current().handlers().post(ended(WFT_STATE_SYS_ERROR, ENOMEM, TOR_NOT_TIMEOUT));
    return;
  }
  ClientHub& hub = ClientHub::current();
  Runtime& runtime = hub.runtime();
  if (hub.session_begins()) {
    session->proceed(finished);
  } else {
    session->failed({.state = WFT_STATE_ABORTED}, finished);
  }
  runtime.handlers().post(finished);
}

void ClientExchange::resume() {
  // The exchange may be gone as soon as the connection goes on.
  ClientConnection* const connection = connection_;
  connection->retain();
  connection->resume();
  connection->release();
}

WFConnection* ClientExchange::user_connection() const {
  return connection_ ? connection_->user() : nullptr;
}

int ClientExchange::peer_addr(struct sockaddr* addr, socklen_t* addrlen) const {
  if (!connection_) {
    errno = ENOTCONN;
    return -1;
  }
  const ClientEndpoint& endpoint = connection_->endpoint();
  if (*addrlen < endpoint.address_length()) {
    errno = ENOBUFS;
    return -1;
  }
  std::memcpy(addr, endpoint.address(), endpoint.address_length());
  *addrlen = endpoint.address_length();
  return 0;
}

}  // namespace workflow
