#include <algorithm>

#include "client/ClientConnection.h"
#include "client/ClientEndpoint.h"
#include "client/ClientHub.h"
#include "client/ClientSession.h"
#include "workflow/WFTaskState.h"

// How a connection of a client delivers a part of a response before it reads the next part.

namespace workflow {

// On the poller's thread, in kExchanging: a part of the response has come, and there is more.
void ClientConnection::response_continues(RunnableList& finished) {
  ClientExchange* exchange = nullptr;
  {
    MutexLock lock(mutex_);
    exchange = session_->exchange();
  }
  if (!exchange->wants_more()) {
    complete(false, finished);
  } else if (Runnable* delivery = exchange->delivery()) {
    pause(delivery, finished);
  } else {
    MutexLock lock(mutex_);
    if (!sending_) {
      set_receive_deadline();
    }
  }
}

void ClientConnection::pause(Runnable* delivery, RunnableList& finished) {
  {
    MutexLock lock(mutex_);
    paused_ = true;
    paused_ns_ = now_ns();
    set_deadline(kNever);
  }
  finished.push_back(delivery);
}

void ClientConnection::resume() {
  ClientSession* session = nullptr;
  {
    MutexLock lock(mutex_);
    paused_ = false;
    resumed_ = true;
    sent_ns_ = saturating_add(sent_ns_, now_ns() - std::max(paused_ns_, sent_ns_));
    receive_ns_ = now_ns();  // what came before the delivery has been delivered
    if (state_ == State::kClosed) {
      session = std::exchange(session_, nullptr);
    }
  }
  if (session) {
    // The runtime and its pollers have stopped.
    RunnableList finished;
    session->failed({.state = WFT_STATE_ABORTED}, finished);
    poller_.handlers().post(finished);
  } else {
    ask_poller();
  }
}

void ClientConnection::resumed(RunnableList& finished) {
  ClientExchange* exchange = nullptr;
  {
    MutexLock lock(mutex_);
    exchange = session_->exchange();
    if (sending_) {
      set_send_deadline();
    } else {
      set_receive_deadline();
    }
  }
  if (!exchange->wants_more()) {
    complete(false, finished);
  }
}

}  // namespace workflow
