#include <utility>

#include "client/ClientConnection.h"
#include "client/ClientSession.h"
#include "workflow/WFTaskState.h"

// How a connection of a client ends with the library, or before it has begun.

namespace workflow {

void ClientConnection::end_with_runtime() {
  ClientSession* session = nullptr;
  Stream closing{UniqueFd()};  // freed without the lock
  {
    MutexLock lock(mutex_);
    // If it is paused the thread that delivers is the one that stops the runtime.
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
    poller_.hand_over(finished);
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

void ClientConnection::discard() {
  {
    MutexLock lock(mutex_);
    session_ = nullptr;
    state_ = State::kClosed;
  }
  release();
}

}  // namespace workflow
