#include "workflow/detail/ClientExchange.h"

#include <cerrno>
#include <cstring>
#include <new>

#include "client/ClientConnection.h"
#include "client/ClientEndpoint.h"
#include "client/ClientHub.h"
#include "client/ClientSession.h"
#include "client/SessionLocation.h"
#include "kernel/Runtime.h"
#include "workflow/WFTaskState.h"

namespace workflow {

ClientExchange::ClientExchange() = default;

ClientExchange::~ClientExchange() = default;

bool ClientExchange::allow_cancel() {
  if (!location_) {
    location_.reset(new (std::nothrow) SessionLocation(*this));
  }
  return location_ != nullptr;
}

void ClientExchange::cancel(int reason) {
  location_->cancel(reason);
}

void ClientExchange::begin(const ClientTarget& target, int retry_max) {
  may_have_been_sent_ = false;
  RunnableList finished;
  ClientSession* session = nullptr;
  try {
    session = new ClientSession(this, target, retry_max);
  } catch (const std::bad_alloc&) {
    if (Runnable* const item = ended(WFT_STATE_SYS_ERROR, ENOMEM, TOR_NOT_TIMEOUT)) {
      Runtime::current().handlers().post(item);
    }
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
  const Ref<ClientConnection> connection = connection_;
  connection->resume();
}

void ClientExchange::ask_to_send() {
  connection_->ask_to_send();
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
