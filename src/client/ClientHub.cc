#include "client/ClientHub.h"

#include <utility>

#include "client/ClientSession.h"
#include "client/SessionLocation.h"
#include "kernel/Resolver.h"
#include "kernel/ThreadContext.h"
#include "workflow/WFTaskState.h"

namespace workflow {

namespace {

template <class T>
void append_bytes(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// The key contains everything in which connections may differ.
std::string key_of(const ClientTarget& target, const struct sockaddr* address, socklen_t length) {
  std::string key;
  append_bytes(key, target.transport);
  append_bytes(key, target.params.max_connections);
  append_bytes(key, target.params.connect_timeout);
  append_bytes(key, target.params.response_timeout);
  append_bytes(key, target.outlasts_stop);
  if (target.is_tls()) {
    append_bytes(key, target.params.ssl_connect_timeout);
    append_bytes(key, target.params.use_tls_sni);
    append_bytes(key, reinterpret_cast<uintptr_t>(target.ssl_ctx));
    key += target.alpn_protocol ? target.alpn_protocol : "";
    key += '\0';
    key += target.verified_host.empty() ? target.host : target.verified_host;
    key += '\0';
  }
  key += target.tunnel_request;
  key += '\0';
  if (target.greeting) {
    const std::string& bytes = target.greeting->bytes();
    append_bytes(key, bytes.size());
    key += bytes;
  }
  return key.append(reinterpret_cast<const char*>(address), length);
}

}  // namespace

ClientHub::ClientHub() : runtime_(Runtime::current()) {
  // From the call on, refuse_new_work() may run on another thread, and set closed_ as well.
  if (!runtime_.add_service(this)) {
    MutexLock lock(mutex_);
    closed_ = true;
  }
}

std::shared_ptr<ClientEndpoint> ClientHub::endpoint(const ClientTarget& target,
                                                    const struct sockaddr* address,
                                                    socklen_t length) {
  std::string key = key_of(target, address, length);
  MutexLock lock(mutex_);
  if (closed_) return nullptr;
  const auto found = endpoints_.find(key);
  if (found != endpoints_.end()) return found->second;
  auto made = std::make_shared<ClientEndpoint>(*this, key, target, address, length);
  endpoints_.emplace(std::move(key), made);
  return made;
}

void ClientHub::forget_if_unused(const std::shared_ptr<ClientEndpoint>& endpoint) {
  MutexLock lock(mutex_);
  const auto found = endpoints_.find(endpoint->key());
  if (found != endpoints_.end() && found->second == endpoint && endpoint->retire_if_unused()) {
    endpoints_.erase(found);
  }
}

bool ClientHub::session_begins() {
  MutexLock lock(mutex_);
  sessions_++;
  return !closed_;
}

void ClientHub::session_ended() {
  MutexLock lock(mutex_);
  sessions_--;
  if (closed_) {
    ended_.notify_all();
  }
}

bool ClientHub::session_resolves(ClientSession* session) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  const auto inserted = resolving_.insert(session);
  if (session->location() && session->location()->enter_lookup(*this, session) != 0) {
    resolving_.erase(inserted.first);
    return false;
  }
  return true;
}

void ClientHub::session_resolved(ClientSession* session) {
  MutexLock lock(mutex_);
  resolving_.erase(session);
}

bool ClientHub::take_back_if_over(ClientSession* session) {
  MutexLock lock(mutex_);
  // If another session has this memory address by now, that one has to end as well.
  return resolving_.count(session) > 0 && (closed_ || session->end_reason() != 0) &&
         take_back(session);
}

void ClientHub::cancel(const SessionLocation& location, ClientSession* session, int reason) {
  {
    MutexLock lock(mutex_);
    if (resolving_.count(session) == 0 || session->location() != &location || !take_back(session)) {
      return;
    }
  }
  RunnableList finished;
  session->failed({.state = WFT_STATE_SYS_ERROR, .error = reason}, finished);
  runtime_.handlers().post(finished);
}

bool ClientHub::take_back(ClientSession* session) {
  return runtime_.part<Resolver>().cancel(session) && resolving_.erase(session) > 0;
}

std::vector<std::shared_ptr<ClientEndpoint>> ClientHub::all_endpoints() const {
  std::vector<std::shared_ptr<ClientEndpoint>> all;
  MutexLock lock(mutex_);
  for (const auto& [key, endpoint] : endpoints_) {
    all.push_back(endpoint);
  }
  return all;
}

void ClientHub::refuse_new_work() {
  std::vector<ClientSession*> cancelled;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    const std::vector<ClientSession*> resolving(resolving_.begin(), resolving_.end());
    for (ClientSession* session : resolving) {
      if (take_back(session)) {
        cancelled.push_back(session);
      }
    }
  }
  RunnableList finished;
  for (ClientSession* session : cancelled) {
    session->failed({.state = WFT_STATE_ABORTED}, finished);
  }
  runtime_.handlers().post(finished);
  for (const auto& endpoint : all_endpoints()) {
    endpoint->abort_all();
  }
}

bool ClientHub::finish_work() {
  // If user code that a delivery calls has stopped the library, its session cannot end.
  const auto own = static_cast<size_t>(ThreadContext::current().deliveries);
  MutexLock lock(mutex_);
  while (sessions_ > own) {
    ended_.wait(mutex_);
  }
  return true;
}

void ClientHub::runtime_stopped() {
  for (const auto& endpoint : all_endpoints()) {
    endpoint->end_with_runtime();
  }
  MutexLock lock(mutex_);
  endpoints_.clear();
}

}  // namespace workflow
