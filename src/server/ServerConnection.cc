#include "server/ServerConnection.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "kernel/ThreadContext.h"
#include "server/LeaveHook.h"
#include "workflow/WFServer.h"

// How a connection begins, receives and closes. ServerConnectionReply.cc and
// ServerConnectionPush.cc have the sending. ServerConnectionEnd.cc has the ends that the server or
// the client causes.

namespace workflow {

ServerConnection::ServerConnection(ServerHost& host, Poller& poller, UniqueFd fd,
                                   WFConnection* user)
    : Channel(poller, std::move(fd)), host_(host), user_(user) {}

bool ServerConnection::start() {
  SSL_CTX* const context = host_.tls_context();
  bool waits = true;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kClosed) {
      return true;
    }
    if (!begin(context)) {
      return false;
    }
    waits = state_ != State::kClosing;
  }
  if (!waits) {
    ask_poller();
  }
  return true;
}

bool ServerConnection::begin(SSL_CTX* context) {
  if (context) {
    if (!stream_.begin_tls(context, TlsStream::Role::kServer)) {
      errno = ENOMEM;
      return false;
    }
    state_ = State::kHandshaking;
  }
  if (watch() != 0) {
    return false;
  }
  const WFServerParams& params = host_.params();
  if (context) {
    if (!set_deadline(in_ns(timeout_ns(params.ssl_accept_timeout)))) {
      state_ = State::kClosing;
    }
  } else {
    // The first request gets the time of a header, not that of an idle connection.
    wait_for_request(now_ns(), timeout_ns(params.header_timeout));
  }
  return true;
}

void ServerConnection::wait_for_request(int64_t since_ns, int64_t timeout_ns) {
  idle_since_ns_.store(since_ns, std::memory_order_relaxed);
  if (!set_deadline(saturating_add(since_ns, timeout_ns))) {
    state_ = State::kClosing;  // nobody would notice a client that says nothing
  }
}

void ServerConnection::on_ready(uint32_t events, RunnableList& finished) {
  const bool writable = (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
  {
    MutexLock lock(mutex_);
    // TLS may have to write before it can read.
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR) || (writable && stream_.tls())) {
      readable_ = true;
    }
  }
  if (writable) {
    continue_writing();
  }
  try {
    advance(finished);
  } catch (const std::bad_alloc&) {
    close();
  }
}

ServerConnection::Step ServerConnection::next_step() {
  MutexLock lock(mutex_);
  switch (state_) {
    case State::kHandshaking:
      if (stopping_.load(std::memory_order_acquire)) {
        return Step::kClose;
      }
      return std::exchange(readable_, false) ? Step::kHandshake : Step::kWait;
    case State::kReading:
      if (stopping_.load(std::memory_order_acquire)) {
        // The client may be sending another request before it has read the last reply.
        is_sending_ = exchanges_ > 0 && (exchange_ || !input_.empty() || readable_);
        return Step::kPart;
      }
      if (!input_.empty()) {
        return Step::kParse;
      }
      if (std::exchange(readable_, false)) {
        return Step::kRead;
      }
      return shutting_down() && !exchange_ ? Step::kClose : Step::kWait;
    case State::kProcessing:
      return peer_closed() && (watching_.hook || on_leaving_ != OnLeaving::kNothing) ? Step::kLeft
                                                                                     : Step::kWait;
    case State::kLingering: {
      // Whether the client is sending is known once everything that has come was read.
      const bool is_known = is_sending_ || !readable_;
      if (is_known && stopping_.load(std::memory_order_acquire)) {
        return Step::kPart;
      }
      // Over the limit nothing more is read. But a socket that is closed with unread bytes is
      // reset, and the client may lose the last bytes of the reply. So the connection stays open
      // until the time limit has passed.
      if (lingered_ > host_.params().linger_size_limit) {
        return Step::kWait;
      }
      return std::exchange(readable_, false) ? Step::kDiscard : Step::kWait;
    }
    case State::kClosing:
      return Step::kClose;
    default:
      return Step::kWait;
  }
}

void ServerConnection::advance(RunnableList& finished) {
  for (int steps = 0; steps < kMaxSteps; steps++) {
    bool more = false;
    switch (next_step()) {
      case Step::kWait:
        break;
      case Step::kHandshake:
        more = handshake();
        break;
      case Step::kParse: {
        const std::string input = std::exchange(input_, std::string());
        more = feed(input.data(), input.size(), finished);
        break;
      }
      case Step::kRead:
        more = read_some(finished);
        break;
      case Step::kLeft:
        more = client_left(finished);
        break;
      case Step::kDiscard:
        more = discard_some();
        break;
      case Step::kPart:
        part();
        break;
      case Step::kClose:
        close();
        break;
    }
    if (!more) {
      return;
    }
  }
  ask_poller();
}

bool ServerConnection::handshake() {
  MutexLock lock(mutex_);
  const int error = stream_.handshake();
  if (error == EAGAIN) {
    return false;
  }
  if (error == 0) {
    state_ = State::kReading;
    readable_ = true;
    wait_for_request(now_ns(), timeout_ns(host_.params().header_timeout));
  } else if (error == EPROTO) {
    start_lingering(true);  // so that the client gets the TLS alert that says why
  } else {
    state_ = State::kClosing;
  }
  return true;
}

bool ServerConnection::read_some(RunnableList& finished) {
  static thread_local char buffer[kReadSize];
  ssize_t n = -1;
  {
    MutexLock lock(mutex_);
    bool drained = true;
    n = stream_.read(buffer, sizeof buffer, &drained);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      return false;
    }
    readable_ |= !drained || peer_closed();
  }
  if (n <= 0) {
    // The client has left, or will send no more: nobody would read an answer to a partial request.
    close();
    return false;
  }
  return feed(buffer, static_cast<size_t>(n), finished);
}

void ServerConnection::new_exchange() {
  const int64_t waited_since_ns = idle_since_ns_.exchange(kNever, std::memory_order_relaxed);
  exchange_ = host_.new_exchange();
  exchange_->set_peer(this);
  exchange_->prepare_request(host_.params());
  exchange_->request()->set_channel(this);
  started_ns_ = now_ns();
  // The time limit of the first header begins with the connection.
  header_began_ns_ = exchanges_ == 0 ? std::min(waited_since_ns, started_ns_) : started_ns_;
  header_done_ns_ = kNever;
  received_ = 0;
}

bool ServerConnection::feed(const char* data, size_t size, RunnableList& finished) {
  if (!exchange_) {
    new_exchange();
  }
  received_ += size;
  size_t taken = size;
  const int result = exchange_->request()->append(data, &taken);
  if (result < 0) {
    refuse(false);
    return true;
  }
  if (result == 0) {
    note_receiving();
    return true;
  }
  input_.assign(data + taken, size - taken);
  begin_exchange(finished);
  return false;
}

void ServerConnection::begin_exchange(RunnableList& finished) {
  exchange_->request()->set_channel(nullptr);
  // If this throws, nothing has begun.
  Runnable* const begun = exchange_->begin(exchanges_++, host_.params().keep_alive_timeout);
  {
    MutexLock lock(mutex_);
    state_ = State::kProcessing;
    series_ = exchange_->series();
    send_ns_ = timeout_ns(host_.params().send_timeout);
    pushed_ = false;
    counted_ = false;
    set_deadline(kNever);
  }
  finished.push_back(begun);
}

// A part of the request has arrived, and more is to come: sets the time limit for the rest.
void ServerConnection::note_receiving() {
  const WFServerParams& params = host_.params();
  int64_t deadline_ns = saturating_add(started_ns_, timeout_ns(params.receive_timeout));
  if (!exchange_->is_header_complete()) {
    deadline_ns =
        std::min(deadline_ns, saturating_add(header_began_ns_, timeout_ns(params.header_timeout)));
  } else {
    const int64_t now = now_ns();
    if (header_done_ns_ == kNever) {
      header_done_ns_ = now;
    }
    deadline_ns =
        std::min(deadline_ns, saturating_add(now, timeout_ns(params.peer_response_timeout)));
    if (params.body_timeout >= 0) {
      const size_t rate = params.body_bytes_per_second;
      const size_t seconds = rate > 0 ? received_ / rate : 0;
      const int64_t allowed_ns = saturating_add(timeout_ns(params.body_timeout),
                                                duration_ns(static_cast<int64_t>(seconds), 0));
      deadline_ns = std::min(deadline_ns, saturating_add(header_done_ns_, allowed_ns));
    }
  }
  MutexLock lock(mutex_);
  set_deadline(deadline_ns);
}

// Ends a request that cannot be served: answers if the protocol has an answer, then closes.
void ServerConnection::refuse(bool timed_out) {
  const std::string answer = exchange_->refusal(timed_out);
  std::exchange(exchange_, nullptr)->abandon();
  input_.clear();
  MutexLock lock(mutex_);
  if (answer.empty()) {
    state_ = State::kClosing;
    return;
  }
  // If the socket does not take these few bytes, the client does not read, and the answer is lost.
  if (write_copy(answer.data(), answer.size()) == EAGAIN) {
    resume_without_bound();  // earlier replies may have used up what may be written in this turn
  }
  start_lingering(true);
}

void ServerConnection::on_deadline(bool stopped, RunnableList& finished) {
  if (stopped) {
    continue_writing(true);  // this is the last chance to write
  }
  State state;
  {
    MutexLock lock(mutex_);
    state = state_;
    if (state == State::kLingering || state == State::kHandshaking) {
      state_ = State::kClosing;
    }
  }
  if (state == State::kProcessing) {
    pushing_timed_out(stopped);
  } else if (state == State::kWriting) {
    fail_reply(stopped ? ECANCELED : ETIMEDOUT);
  } else if (state == State::kReading && !stopped) {
    end_receiving();
  }
  on_ready(0, finished);
}

// The request has not come in time.
void ServerConnection::end_receiving() {
  try {
    if (!exchange_ && exchanges_ == 0) {
      new_exchange();  // a first request that never came is answered, too
    }
    if (exchange_) {
      refuse(true);
      return;
    }
  } catch (const std::bad_alloc&) {
    // Without an answer.
  }
  close();
}

void ServerConnection::close() {
  {
    MutexLock lock(mutex_);
    if (state_ == State::kClosed) {
      return;
    }
    if (state_ != State::kReading) {
      exchange_ = nullptr;  // its series owns it
    } else if (stream_.tls()) {
      stream_.tls()->close_notify();  // nothing was cut: all replies have left
    }
    state_ = State::kClosed;
  }
  if (exchange_) {
    std::exchange(exchange_, nullptr)->abandon();
  }
  retire();
}

}  // namespace workflow
