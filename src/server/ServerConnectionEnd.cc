#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "factory/SeriesScope.h"
#include "factory/TaskContext.h"
#include "kernel/LingeringSocket.h"
#include "kernel/Socket.h"
#include "server/LeaveHook.h"
#include "server/ReplyStream.h"
#include "server/ServerConnection.h"
#include "workflow/WFServer.h"

// How an exchange without a reply ends, and its connection with it: the client leaves, the server
// stops, or another client needs the place. And how a connection ends after its last reply.

namespace workflow {

bool ServerConnection::cut_short(WFStopAction action, const std::string& unavailable) {
  bool counts = false;
  Watching watching;
  RunnableList cancels;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      return false;
    }
    counts = !std::exchange(counted_, true);
    cancel_scope(OnLeaving::kEndScope, cancels);
    if (action == WF_STOP_FINISH) {
      lock.unlock();
      poller_.handlers().post(cancels);
      return counts;
    }
    const bool has_begun = pushed_;
    watching = detach(ECANCELED);
    is_lost_.store(true, std::memory_order_release);
    keep_alive_ = false;
    send_ns_ = timeout_ns(host_.params().send_timeout);
    state_ = State::kClosing;
    // A reply that has begun cannot be replaced by another one.
    if (action == WF_STOP_ANSWER && !unavailable.empty() && !has_begun) {
      int error = write_copy(unavailable.data(), unavailable.size());
      if (error == EAGAIN) {
        error = leave_to_poller();
      }
      if (error == 0) {
        start_lingering(!input_.empty());
      }
    }
  }
  watching.over(ECANCELED);
  poller_.handlers().post(cancels);
  ask_poller();
  return counts;
}

void ServerConnection::cancel_scope(OnLeaving what, RunnableList& cancels) {
  DeadlineScope* const scope = SeriesScope::of(series_);
  Runnable* cancel = nullptr;
  if (what == OnLeaving::kEndScope) {
    cancel = scope->cancel_later(ECANCELED);
  } else if (what == OnLeaving::kEndTimers) {
    cancel = scope->cancel_timers_later(ECANCELED);
  }
  if (cancel) {
    cancels.push_back(cancel);
  }
}

bool ServerConnection::close_now() {
  bool counts = cut_short(WF_STOP_DROP, std::string());
  bool was_writing = false;
  {
    MutexLock lock(mutex_);
    was_writing = state_ == State::kWriting;
    if (was_writing) {
      counts |= !std::exchange(counted_, true);
    } else if (state_ == State::kLingering) {
      state_ = State::kClosing;
    }
  }
  if (was_writing) {
    fail_reply(ECANCELED);
  }
  ask_poller();
  return counts;
}

void ServerConnection::watch_leaving(std::shared_ptr<LeaveHook> hook, OnLeaving what) {
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      return;
    }
    if (hook) {
      watching_.hook.swap(hook);
    }
    on_leaving_ = std::max(on_leaving_, what);
  }
  if (peer_closed()) {
    ask_poller();
  }
}

void ServerConnection::drop() {
  Watching watching;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      return;
    }
    watching = detach(ECONNRESET);
    keep_alive_ = false;
    send_ns_ = timeout_ns(host_.params().send_timeout);
    // What was pushed is still sent.
    if (resume_writing() != EAGAIN || leave_to_poller() != EAGAIN) {
      state_ = State::kClosing;
    }
  }
  ask_poller();
}

ServerConnection::Watching ServerConnection::stop_watching() {
  series_ = nullptr;
  on_leaving_ = OnLeaving::kNothing;
  pushing_ = false;
  heartbeat_ns_ = kNever;
  return std::exchange(watching_, Watching());
}

ServerConnection::Watching ServerConnection::detach(int error) {
  exchange_ = nullptr;
  lost_error_ = error;
  return stop_watching();
}

// Does what watch_leaving() has asked for.
bool ServerConnection::client_left(RunnableList& finished) {
  RunnableList cancels;
  std::shared_ptr<LeaveHook> hook;
  Watching watching;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      return true;
    }
    watching.stream = watching_.stream;
    if (watching.stream) {
      watching.stream->lose(ECONNRESET);
    }
    cancel_scope(std::exchange(on_leaving_, OnLeaving::kNothing), cancels);
    hook = std::exchange(watching_.hook, nullptr);
  }
  // Before the scope ends, and with it perhaps the exchange.
  if (hook && hook->begin()) {
    finished.push_back(hook.get());
  }
  watching.over(ECONNRESET);
  finished.append(cancels);
  return true;
}

void ServerConnection::shut_down() {
  is_last_.store(true, std::memory_order_release);
  stopping_.store(true, std::memory_order_release);
  ask_poller();
}

void ServerConnection::make_room() {
  is_last_.store(true, std::memory_order_release);
  ask_poller();
}

// The content of the client's bytes does not matter any more. But some TLS records carry no data,
// or only end the session; their bytes must not count.
ssize_t ServerConnection::read_to_discard(char* buffer, size_t size) {
  if (stream_.tls()) {
    bool drained = false;
    const ssize_t n = stream_.read(buffer, size, &drained);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))) {
      return n;
    }
  }
  return socket_read(stream_.fd(), buffer, size);
}

bool ServerConnection::discard_some() {
  static thread_local char buffer[kReadSize];
  {
    MutexLock lock(mutex_);
    const ssize_t n = read_to_discard(buffer, sizeof buffer);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return true;
    }
    if (n > 0) {
      lingered_ += static_cast<size_t>(n);
      is_sending_ = true;
      readable_ = true;
      return true;
    }
  }
  close();
  return false;
}

void ServerConnection::part() {
  parts_ = true;
  close();
}

void ServerConnection::on_closing() {
  host_.connection_closed(this);
  if (!parts_) {
    return;
  }
  MutexLock lock(mutex_);
  if (stream_.is_open()) {
    const WFServerParams& params = host_.params();
    const size_t size_limit = params.linger_size_limit;
    LingeringSocket::end_connection(poller_, stream_.take_fd(),
                                    in_ns(timeout_ns(params.linger_timeout)),
                                    size_limit - std::min(size_limit, lingered_), is_sending_);
  }
}

void ServerConnection::end_with_runtime() {
  Watching watching;
  ServerExchange* receiving = nullptr;
  ServerExchange* replying = nullptr;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kReading) {
      receiving = exchange_;
    } else if (state_ == State::kWriting) {
      replying = exchange_;
    }
    exchange_ = nullptr;
    watching = stop_watching();
    lost_error_ = ECANCELED;
    state_ = State::kClosed;
    stream_.close();
  }
  if (watching.stream) {
    watching.stream->over(ECANCELED);
  }
  if (receiving) {
    receiving->abandon();
  }
  if (replying) {
    replying->reply_ended(WFT_STATE_ABORTED, 0);
  }
  release();
}

void ServerConnection::end() {
  ServerHost& host = host_;
  WFConnection* user = user_;
  delete this;
  // If a series held the last reference, it is gone now.
  SeriesWork* const series = std::exchange(TaskContext::current().series, nullptr);
  host.connection_gone(user);
  TaskContext::current().series = series;
}

}  // namespace workflow
