#include "client/ClientSession.h"

#include <netdb.h>

#include <cerrno>
#include <new>
#include <utility>
#include <vector>

#include "client/ClientEndpoint.h"
#include "client/ClientHub.h"
#include "client/ClientSettings.h"
#include "client/SessionLocation.h"
#include "kernel/Resolver.h"
#include "workflow/WFTaskState.h"

namespace workflow {

ClientSession::ClientSession(ClientExchange* exchange, const ClientTarget& target, int retry_max)
    : hub_(ClientHub::current()), exchange_(exchange), target_(target), retries_left_(retry_max) {
  if (target_.address_length > 0) {
    addresses_ = std::make_shared<const std::vector<HostAddress>>(
        1, HostAddress{target_.address, target_.address_length});
  }
  if (target_.is_tls() && !target_.ssl_ctx) {
    target_.ssl_ctx = client_tls_context();
  }
}

void ClientSession::proceed(RunnableList& finished) {
  for (;;) {
    if (location()) {
      location()->leave();
    }
    if (!addresses_) {
      resolve(finished);
      return;
    }
    ClientFailure failure = {};
    std::shared_ptr<ClientEndpoint> endpoint;
    try {
      endpoint = find_endpoint();
    } catch (const std::bad_alloc&) {
      end(WFT_STATE_SYS_ERROR, ENOMEM, TOR_NOT_TIMEOUT, finished);
      return;
    }
    if (!endpoint) {
      end(WFT_STATE_ABORTED, 0, TOR_NOT_TIMEOUT, finished);
      return;
    }
    const ClientEndpoint::Acquire acquired = endpoint->acquire(this, fresh_, &failure);
    if (acquired == ClientEndpoint::Acquire::kUnderWay) return;
    if (acquired == ClientEndpoint::Acquire::kRetired) continue;
    hub_.forget_if_unused(endpoint);
    if (!goes_on_after(failure, finished)) return;
  }
}

std::shared_ptr<ClientEndpoint> ClientSession::find_endpoint() {
  const HostAddress where = address();
  return hub_.endpoint(target_, reinterpret_cast<const struct sockaddr*>(&where.address),
                       where.length);
}

HostAddress ClientSession::address() const {
  HostAddress address = (*addresses_)[next_address_];
  if (target_.address_length == 0) {
    address.set_port(target_.port);
  }
  return address;
}

void ClientSession::resolve(RunnableList& finished) {
  Resolver* resolver = nullptr;
  bool may = false;
  try {
    resolver = &hub_.runtime().part<Resolver>();
    may = hub_.session_resolves(this);
  } catch (const std::bad_alloc&) {
    end(WFT_STATE_SYS_ERROR, ENOMEM, TOR_NOT_TIMEOUT, finished);
    return;
  }
  if (!may) {
    const int reason = end_reason();
    end(reason != 0 ? WFT_STATE_SYS_ERROR : WFT_STATE_ABORTED, reason, TOR_NOT_TIMEOUT, finished);
    return;
  }
  ClientHub& hub = hub_;
  resolver->resolve(target_.host, target_.params.address_family, this);
  // The session may be gone.
  if (hub.take_back_if_over(this)) {
    const int reason = end_reason();
    failed({.state = reason != 0 ? WFT_STATE_SYS_ERROR : WFT_STATE_ABORTED, .error = reason},
           finished);
  }
}

void ClientSession::resolved(int error, HostAddresses addresses) {
  const int error_number = errno;
  hub_.session_resolved(this);
  Runtime& runtime = hub_.runtime();
  RunnableList finished;
  if (error == 0) {
    addresses_ = std::move(addresses);
    if (has_choice()) {
      addresses_ = hub_.failed_addresses().in_order(std::move(addresses_), target_.port, now_ns());
    }
    proceed(finished);
  } else if (error == EAI_CANCELED) {
    end(WFT_STATE_ABORTED, 0, TOR_NOT_TIMEOUT, finished);
  } else if (error == EAI_MEMORY) {
    end(WFT_STATE_SYS_ERROR, ENOMEM, TOR_NOT_TIMEOUT, finished);
  } else if (error == EAI_SYSTEM) {
    end(WFT_STATE_SYS_ERROR, error_number, TOR_NOT_TIMEOUT, finished);
  } else {
    end(WFT_STATE_DNS_ERROR, error, TOR_NOT_TIMEOUT, finished);
  }
  runtime.handlers().post(finished);
}

void ClientSession::use(ClientConnection* connection, long long sequence) {
  exchange_->connection_ = Ref(connection);
  exchange_->sequence_ = sequence;
  if (sequence == 0 && has_choice()) {
    hub_.failed_addresses().worked(address());
  }
}

void ClientSession::done(RunnableList& finished) {
  sent_ = true;
  end(WFT_STATE_SUCCESS, 0, TOR_NOT_TIMEOUT, finished);
}

void ClientSession::failed(const ClientFailure& failure, RunnableList& finished) {
  if (goes_on_after(failure, finished)) {
    proceed(finished);
  }
}

bool ClientSession::goes_on_after(const ClientFailure& failure, RunnableList& finished) {
  sent_ = sent_ || failure.sent;
  const int reason = end_reason();
  if (reason == 0 && may_try_again(failure)) return true;
  if (reason != 0 && failure.state == WFT_STATE_SYS_ERROR) {
    // Whatever has failed, the address may be all right, and there might have been another try.
    end(WFT_STATE_SYS_ERROR, reason, TOR_NOT_TIMEOUT, finished);
  } else {
    end(failure.state, failure.error, failure.timeout_reason, finished);
  }
  return false;
}

void ClientSession::forget_addresses() {
  try {
    if (target_.address_length == 0) {
      hub_.runtime().part<Resolver>().forget(target_.host, target_.params.address_family);
    }
  } catch (const std::bad_alloc&) {
    // The addresses stay in the cache until their time is up.
  }
}

void ClientSession::note_failed(const ClientFailure& failure) {
  // If this process lacks memory or descriptors, that says nothing about the address.
  const bool is_its_own = failure.error == ETIMEDOUT || failure.error == ECONNREFUSED ||
                          failure.error == ECONNRESET || failure.error == EHOSTUNREACH ||
                          failure.error == ENETUNREACH;
  if (is_its_own && has_choice()) {
    hub_.failed_addresses().failed(address(), now_ns());
  }
}

int64_t ClientSession::now_ns() const {
  return hub_.runtime().clock().now_ns();
}

bool ClientSession::may_try_again(const ClientFailure& failure) {
  if (failure.unanswered) {
    // Datagrams get lost, and a missing answer is all that the sender learns about it.
    next_address_ = (next_address_ + 1) % addresses_->size();
    return exchange_->is_repeatable() && retries_left_-- > 0;
  }
  // After a TLS error another try would find the same certificate. After these two timeouts there
  // is no time left.
  if (failure.state != WFT_STATE_SYS_ERROR || failure.timeout_reason == TOR_WAIT_TIMEOUT ||
      failure.timeout_reason == TOR_TRANSMIT_TIMEOUT || failure.received || failure.hopeless) {
    return false;
  }
  if (!failure.connected) {
    note_failed(failure);
    if (++next_address_ < addresses_->size()) return true;
    next_address_ = 0;
    if (retries_left_-- > 0) return true;
    forget_addresses();
    return false;
  }
  if (failure.sent && !exchange_->is_repeatable()) return false;
  // The peer may close an idle connection just when it is used again. This is not counted as a
  // retry, and cannot happen again on a new connection.
  if (failure.reused) {
    fresh_ = true;
    return true;
  }
  return retries_left_-- > 0;
}

void ClientSession::end(int state, int error, int timeout_reason, RunnableList& finished) {
  ClientHub& hub = hub_;
  if (location()) {
    location()->leave();
  }
  exchange_->may_have_been_sent_ = sent_;
  Runnable* const item = exchange_->ended(state, error, timeout_reason);
  delete this;
  if (!item) {
    // A canceller posts what has to run.
  } else if (hub.runtime().stopping()) {
    // Posts before ClientHub::finish_work() can return. A poller would post `finished` later.
    hub.runtime().handlers().post(item);
  } else {
    finished.push_back(item);
  }
  hub.session_ended();
}

}  // namespace workflow
