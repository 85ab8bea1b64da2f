#include "client/ClientConnection.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "client/ClientEndpoint.h"
#include "client/ClientSession.h"
#include "kernel/Datagram.h"
#include "kernel/Socket.h"
#include "workflow/WFTaskState.h"

namespace workflow {

ClientConnection::ClientConnection(std::shared_ptr<ClientEndpoint> endpoint, Poller& poller,
                                   UniqueFd fd, ClientSession* session)
    : Channel(poller, std::move(fd)), endpoint_(std::move(endpoint)), session_(session) {}

bool ClientConnection::start() {
  MutexLock lock(mutex_);
  if (state_ != State::kConnecting || !session_) {
    return true;  // the connection was aborted meanwhile, and has ended its session
  }
  if (is_datagram(endpoint_->transport())) {
    write_unbounded();
  }
  if (watch() != 0) {
    // The session is the caller's again: no thread that finds this connection may end it.
    session_ = nullptr;
    state_ = State::kClosed;
    return false;
  }
  cancel_error_ = arrived(session_);
  if (cancel_error_ != 0) {
    ask_poller();
  }
  if (!set_deadline(in_ns(timeout_ns(endpoint_->params().connect_timeout)))) {
    // The poller has the connection already, and will end it. If the runtime stops instead, abort()
    // comes.
    out_of_memory_ = !endpoint_->runtime_stops();
    ask_poller();
  }
  return true;
}

ClientFailure ClientConnection::failure_of(int state, int error, int timeout_reason) const {
  ClientFailure failure = {.state = state,
                           .error = error,
                           .timeout_reason = timeout_reason,
                           .connected = exchanges_ > 0,
                           .reused = exchanges_ > 1,
                           .sent = exchanges_ > 0,
                           .received = received_};
  if (is_datagram(endpoint_->transport()) && exchanges_ > 0 && !received_) {
    failure.unanswered = error == ETIMEDOUT && !sending_;
    // Any other error is how the network reports that nobody is there.
    failure.connected = error == ETIMEDOUT;
  }
  return failure;
}

void ClientConnection::on_ready(uint32_t events, RunnableList& finished) {
  {
    MutexLock lock(mutex_);
    const bool both = stream_.tls() != nullptr;  // TLS may have to write before it can read
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) || (both && events != 0)) {
      readable_ = true;
    }
    if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) {
      writable_ = true;
    }
  }
  advance(finished);
}

ClientConnection::Step ClientConnection::next_step() {
  MutexLock lock(mutex_);
  if (state_ == State::kClosing) {
    if (!flushing_ || aborting_) {
      return Step::kClose;
    }
    return std::exchange(writable_, false) ? Step::kSend : Step::kWait;
  }
  if (state_ == State::kClosed) {
    return Step::kWait;
  }
  if (aborting_ && !paused_) {
    return Step::kAbort;
  }
  if (cancel_error_ != 0 && !paused_) {
    return Step::kCancel;
  }
  if (std::exchange(resumed_, false)) {
    return Step::kResume;
  }
  if (std::exchange(out_of_memory_, false)) {
    return Step::kFailForMemory;
  }
  switch (state_) {
    case State::kConnecting:
      return std::exchange(writable_, false) ? Step::kConnect : Step::kWait;
    case State::kTunneling:
      return std::exchange(readable_, false) ? Step::kTunnel : Step::kWait;
    case State::kHandshaking:
      return std::exchange(readable_, false) ? Step::kHandshake : Step::kWait;
    default:
      // Reads first: what has come may be the answer to a request of which the peer takes no more.
      if (readable_ && !paused_) {
        readable_ = false;
        return Step::kRead;
      }
      return std::exchange(writable_, false) && (sending_ || flushing_) ? Step::kSend : Step::kWait;
  }
}

int ClientConnection::cancel_error() {
  MutexLock lock(mutex_);
  return cancel_error_;
}

void ClientConnection::advance(RunnableList& finished) {
  for (int steps = 0; steps < kMaxSteps; steps++) {
    bool more = true;
    switch (next_step()) {
      case Step::kWait:
        return;
      case Step::kConnect:
        more = finish_connecting(finished);
        break;
      case Step::kTunnel:
        more = read_proxy_reply(finished);
        break;
      case Step::kHandshake:
        more = handshake(finished);
        break;
      case Step::kSend:
        more = continue_sending(finished);
        break;
      case Step::kRead:
        more = is_datagram(endpoint_->transport()) ? read_datagram(finished) : read_some(finished);
        break;
      case Step::kResume:
        resumed(finished);
        break;
      case Step::kFailForMemory:
        fail(WFT_STATE_SYS_ERROR, ENOMEM, TOR_NOT_TIMEOUT, finished);
        break;
      case Step::kAbort:
        fail(WFT_STATE_ABORTED, 0, TOR_NOT_TIMEOUT, finished);
        break;
      case Step::kCancel:
        fail(WFT_STATE_SYS_ERROR, cancel_error(), TOR_NOT_TIMEOUT, finished);
        break;
      case Step::kClose:
        close();
        return;
    }
    if (!more) {
      return;
    }
  }
  ask_poller();
}

bool ClientConnection::read_datagram(RunnableList& finished) {
  static thread_local char buffer[kReadSize];
  ssize_t n = -1;
  int error = 0;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kExchanging) {
      return true;
    }
    DatagramAddress from;
    n = receive_datagram(stream_.fd(), buffer, sizeof buffer, &from);
    error = n < 0 ? errno : 0;
    if (error == EAGAIN || error == EWOULDBLOCK) {
      return writable_ && (sending_ || flushing_);
    }
    readable_ = true;
    received_ |= n >= 0 || error == EMSGSIZE;
    note_bytes();
  }
  if (error == 0) {
    return feed(buffer, static_cast<size_t>(n), finished);
  }
  fail(WFT_STATE_SYS_ERROR, error, TOR_NOT_TIMEOUT, finished);
  return true;
}

bool ClientConnection::read_some(RunnableList& finished) {
  static thread_local char buffer[kReadSize];
  ssize_t n = -1;
  int error = 0;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kExchanging && state_ != State::kIdle) {
      return true;  // another thread was faster
    }
    bool drained = true;
    n = stream_.read(buffer, sizeof buffer, &drained);
    error = n < 0 ? errno : 0;
    if (error == EAGAIN || error == EWOULDBLOCK) {
      return writable_ && (sending_ || flushing_);
    }
    readable_ |= !drained || peer_closed();
    if (state_ == State::kIdle) {
      // The peer has closed, or has sent bytes without a request.
      state_ = State::kClosing;
      flushing_ = false;
      return true;
    }
    if (n > 0) {
      received_ = true;
      note_bytes();
    }
  }
  return n > 0 ? feed(buffer, static_cast<size_t>(n), finished) : input_ended(error, finished);
}

bool ClientConnection::feed(const char* data, size_t size, RunnableList& finished) {
  const bool whole_only = is_datagram(endpoint_->transport());
  size_t taken = size;
  errno = 0;
  int result = -1;
  try {
    result = response_->append(data, &taken);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  const int error = errno;
  if (result < 0) {
    fail(WFT_STATE_SYS_ERROR, error != 0 ? error : EBADMSG, TOR_NOT_TIMEOUT, finished);
  } else if (result > 0 && whole_only && taken != size) {
    fail(WFT_STATE_SYS_ERROR, EBADMSG, TOR_NOT_TIMEOUT, finished);
  } else if (result > 0) {
    complete(taken == size, finished);
  } else {
    response_continues(finished);
  }
  return true;
}

bool ClientConnection::input_ended(int error, RunnableList& finished) {
  ClientExchange* exchange = nullptr;
  int tls_error = 0;
  {
    MutexLock lock(mutex_);
    exchange = session_->exchange();
    tls_error = stream_.tls() ? stream_.tls()->tls_error() : 0;
  }
  if (error == 0 && exchange->completes_at_end_of_input()) {
    complete(false, finished);
  } else if (error == EPROTO && tls_error != 0) {
    fail(WFT_STATE_SSL_ERROR, tls_error, TOR_NOT_TIMEOUT, finished);
  } else {
    fail(WFT_STATE_SYS_ERROR, error != 0 ? error : ECONNRESET, TOR_NOT_TIMEOUT, finished);
  }
  return true;
}

// Poller's thread, in kExchanging: the response is whole.
void ClientConnection::complete(bool usable, RunnableList& finished) {
  ClientSession* session = nullptr;
  TlsSessions::Kept tls_session;
  {
    MutexLock lock(mutex_);
    session = std::exchange(session_, nullptr);
    cancel_error_ = 0;  // the cancel came too late
    usable = usable && !sending_ && !aborting_ && !peer_closed() && times_.keep_alive != 0 &&
             !is_datagram(endpoint_->transport());
    response_->set_channel(nullptr);
    if (stream_.tls()) {
      tls_session = TlsSessions::Kept(stream_.tls()->ssl());
    }
  }
  endpoint_->keep_tls_session(std::move(tls_session));
  usable = session->exchange()->leaves_connection_usable() && usable;
  {
    MutexLock lock(mutex_);
    forget_unsent();
    state_ = State::kClosing;
    if (usable && set_deadline(in_ns(timeout_ns(times_.keep_alive)))) {
      state_ = State::kIdle;
    }
    usable = state_ == State::kIdle;
    flushing_ = flushing_ && !sending_;  // nothing can follow a request that was cut short
    if (!usable) {
      limit_flushing();
    }
  }
  session->done(finished);
  if (usable) {
    endpoint_->returned(this, finished);
  }
}

// Poller's thread, with a session.
void ClientConnection::fail(int state, int error, int timeout_reason, RunnableList& finished) {
  ClientSession* session = nullptr;
  ClientFailure failure = {};
  {
    MutexLock lock(mutex_);
    session = std::exchange(session_, nullptr);
    failure = failure_of(state, error, timeout_reason);
    state_ = State::kClosing;
    flushing_ = false;
    forget_unsent();
    if (session && response_) {
      response_->set_channel(nullptr);
    }
  }
  if (session) {
    endpoint_->closes(this);
    session->failed(failure, finished);
  }
}

void ClientConnection::close_idle() {
  {
    MutexLock lock(mutex_);
    if (state_ != State::kIdle) {
      return;  // the connection closes already
    }
    state_ = State::kClosing;
    limit_flushing();
  }
  ask_poller();
}

void ClientConnection::on_deadline(bool stopped, RunnableList& finished) {
  State state;
  {
    MutexLock lock(mutex_);
    if (!stopped && !deadline_passed()) {
      return;  // the connection was used again meanwhile
    }
    state = state_;
    if (paused_) {
      aborting_ = aborting_ || stopped;
      return;
    }
    if (state == State::kIdle) {
      state_ = State::kClosing;
    }
    flushing_ = flushing_ && state != State::kClosing && state != State::kIdle;
  }
  if (state != State::kIdle && state != State::kClosing && state != State::kClosed) {
    const bool connecting = state != State::kExchanging;
    if (stopped) {
      fail(WFT_STATE_ABORTED, 0, TOR_NOT_TIMEOUT, finished);
    } else {
      fail(WFT_STATE_SYS_ERROR, ETIMEDOUT, connecting ? TOR_CONNECT_TIMEOUT : TOR_TRANSMIT_TIMEOUT,
           finished);
    }
  }
  advance(finished);
}

void ClientConnection::close() {
  {
    MutexLock lock(mutex_);
    if (state_ == State::kClosed) {
      return;
    }
    state_ = State::kClosed;
    stream_.shut_down_write();
  }
  retire();
}

void ClientConnection::on_closing() {
  endpoint_->gone(this);
}

int ClientConnection::write_now(const void* buffer, size_t size) {
  MutexLock lock(mutex_);
  if (size > kMaxFeedback || copied_bytes() > kMaxFeedback - size) {
    errno = ENOBUFS;
    return -1;
  }
  const int error = append_copy(buffer, size);
  if (error != 0 && error != EAGAIN) {
    errno = error;
    return -1;
  }
  flushing_ = error == EAGAIN;
  return static_cast<int>(size);
}

void ClientConnection::restart_receive() {
  MutexLock lock(mutex_);
  restarted_ = true;
  receive_ns_ = now_ns();
  awaits_first_ = true;
}

}  // namespace workflow
