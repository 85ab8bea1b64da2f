#include <utility>

#include "client/ClientConnection.h"
#include "client/ClientEndpoint.h"
#include "client/ClientHub.h"
#include "client/ClientSession.h"
#include "client/SessionLocation.h"
#include "workflow/WFTaskState.h"

// How an endpoint and its connections end with the library, and how connections and sessions end
// early.

namespace workflow {

void ClientEndpoint::abort_all() {
  std::vector<Ref<ClientConnection>> connections;
  std::vector<ClientSession*> waiting;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    for (ClientConnection* connection : all_) {
      connections.emplace_back(connection);
    }
    while (ClientSession* session = take(waiting_.next_for_new())) {
      waiting.push_back(session);
    }
  }
  for (const Ref<ClientConnection>& connection : connections) {
    connection->abort();
  }
  RunnableList finished;
  for (ClientSession* session : waiting) {
    session->failed({.state = WFT_STATE_ABORTED}, finished);
  }
  hub_.runtime().handlers().post(finished);
}

void ClientEndpoint::end_with_runtime() {
  std::vector<ClientConnection*> connections;
  {
    MutexLock lock(mutex_);
    connections.assign(all_.begin(), all_.end());
    all_.clear();
    idle_.clear();
  }
  for (ClientConnection* connection : connections) {
    connection->end_with_runtime();
  }
}

void ClientEndpoint::cancel(const SessionLocation& location, int reason) {
  ClientSession* session = nullptr;
  {
    MutexLock lock(mutex_);
    session = take(location.waiter);
  }
  if (session) {
    RunnableList finished;
    session->failed({.state = WFT_STATE_SYS_ERROR, .error = reason}, finished);
    hub_.runtime().handlers().post(finished);
  }
}

void ClientConnection::end_with_runtime() {
  ClientSession* session = nullptr;
  Stream closing{UniqueFd()};  // freed without the lock
  {
    MutexLock lock(mutex_);
    // While the connection is paused, the session stays with the thread that delivers. That thread
    // is stopping the runtime.
    session = paused_ ? nullptr : std::exchange(session_, nullptr);
    if (session && response_) {
      response_->set_channel(nullptr);
    }
    state_ = State::kClosed;
    std::swap(closing, stream_);
  }
  if (session) {
    RunnableList finished;
    session->failed({.state = WFT_STATE_ABORTED}, finished);
    poller_.handlers().post(finished);
  }
  release();
}

void ClientConnection::abort() {
  {
    MutexLock lock(mutex_);
    aborting_ = true;
  }
  ask_poller();
}

void ClientConnection::cancel(const SessionLocation& location, int reason) {
  {
    MutexLock lock(mutex_);
    if (!session_ || session_->location() != &location) {
      return;
    }
    cancel_error_ = reason;
  }
  ask_poller();
}

void ClientConnection::discard() {
  {
    MutexLock lock(mutex_);
    session_ = nullptr;
    state_ = State::kClosed;
  }
  release();
}

}  // namespace workflow
