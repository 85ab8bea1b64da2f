#include "client/ClientConnection.h"

#include <cassert>
#include <cerrno>
#include <utility>

#include "client/ClientEndpoint.h"
#include "client/ClientSession.h"
#include "client/EncodedRequest.h"
#include "client/SessionLocation.h"
#include "kernel/Socket.h"

namespace workflow {

ClientConnection::ClientConnection(std::shared_ptr<ClientEndpoint> endpoint, Poller& poller,
                                   UniqueFd fd, ClientSession* session)
    : RequestWriter(poller, std::move(fd)),
      endpoint_(std::move(endpoint)),
      reader_(is_datagram()),
      session_(session),
      setup_(*endpoint_) {}

bool ClientConnection::is_datagram() const {
  return workflow::is_datagram(endpoint_->transport());
}

bool ClientConnection::may_become(State next) const {
  switch (next) {
    case State::kExchanging:
      return state_ == State::kConnecting || state_ == State::kIdle || state_ == State::kDelivered;
    case State::kDelivering:
    case State::kIdle:
      return state_ == State::kExchanging;
    case State::kDelivered:
      return state_ == State::kDelivering;
    case State::kClosing:
      return state_ != State::kDelivering && state_ != State::kClosed;
    default:
      return next == State::kClosed;
  }
}

void ClientConnection::become(State next) {
  assert(may_become(next));
  assert(!session_ || (next != State::kIdle && next != State::kClosing));
  state_ = next;
}

bool ClientConnection::start() {
  MutexLock lock(mutex_);
  if (state_ != State::kConnecting || !session_) {
    return true;  // the connection was aborted meanwhile, and has ended its session
  }
  if (is_datagram()) {
    write_unbounded();
  }
  if (watch() != 0) {
    // The session is the caller's again: no thread that finds this connection may end it.
    session_ = nullptr;
    become(State::kClosed);
    return false;
  }
  cancel_error_ = arrived(session_);
  limit(in_ns(timeout_ns(endpoint_->params().connect_timeout)));
  if (cancel_error_ != 0) {
    ask_poller();
  }
  return true;
}

void ClientConnection::discard() {
  {
    MutexLock lock(mutex_);
    session_ = nullptr;
    become(State::kClosed);
  }
  release();
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
  const bool may_fail = state_ < State::kClosing && state_ != State::kDelivering;
  if (may_fail && (aborting_ || cancel_error_ != 0)) return Step::kFail;
  switch (state_) {
    case State::kConnecting:
      return std::exchange(setup_.reads() ? readable_ : writable_, false) ? Step::kSetUp
                                                                          : Step::kWait;
    case State::kDelivered:
      return Step::kGoOn;
    case State::kExchanging:
      // Reads first: what has come may be the answer to a request of which the peer takes no more.
      if (std::exchange(readable_, false)) return Step::kReceive;
      break;
    case State::kIdle:
      if (std::exchange(readable_, false) && !is_still_idle()) {
        become(State::kClosing);
        end_flushing();
        return Step::kClose;
      }
      break;
    case State::kClosing:
      if (!is_flushing() || aborting_) return Step::kClose;
      break;
    case State::kClosed:
      return Step::kWait;
    default:
      break;
  }
  if (session_ && take_question()) return Step::kSendMore;
  return std::exchange(writable_, false) && has_unsent() ? Step::kSend : Step::kWait;
}

void ClientConnection::advance(RunnableList& finished) {
  for (int steps = 0; steps < kMaxSteps; steps++) {
    bool more = true;
    switch (next_step()) {
      case Step::kWait:
        return;
      case Step::kSetUp:
        set_up(finished);
        break;
      case Step::kSend:
        more = continue_sending(finished);
        break;
      case Step::kSendMore:
        ask_for_more();
        break;
      case Step::kReceive:
        more = receive(finished);
        break;
      case Step::kGoOn:
        go_on(finished);
        break;
      case Step::kFail:
        fail(early_end(), finished);
        break;
      case Step::kClose:
        close();
        return;
    }
    if (!more) return;
  }
  ask_poller();
}

void ClientConnection::set_up(RunnableList& finished) {
  using Progress = ConnectionSetup::Progress;
  Progress progress = Progress::kWaits;
  ClientFailure failure = {};
  ClientSession* session = nullptr;
  bool in_handshake = false;
  {
    MutexLock lock(mutex_);
    progress = setup_.advance(stream_, &failure);
    in_handshake = setup_.is_handshaking();
    session = session_;
    if (progress == Progress::kHandshakes) {
      limit(in_ns(timeout_ns(endpoint_->params().ssl_connect_timeout)));
    }
    // What the setup has not read may have come already.
    readable_ |= setup_.reads() && progress != Progress::kWaits;
  }
  if (progress == Progress::kFailed) {
    if (in_handshake) {
      endpoint_->tls()->forget();
    }
    fail(failure, finished);
  } else if (progress == Progress::kDone &&
             send_request(State::kConnecting, session, &failure) == Begin::kFailed) {
    session->failed(failure, finished);
  }
}

int ClientConnection::arrived(const ClientSession* session) {
  SessionLocation* const location = session->location();
  return location ? location->on_connection(this) : 0;
}

ClientConnection::Begin ClientConnection::begin(ClientSession* session, ClientFailure* failure) {
  return send_request(State::kIdle, session, failure);
}

ClientConnection::Begin ClientConnection::send_request(State expected, ClientSession* session,
                                                       ClientFailure* failure) {
  long long sequence = 0;
  {
    MutexLock lock(mutex_);
    if (state_ != expected) return Begin::kNotIdle;
    sequence = exchanges_;
  }
  session->use(this, sequence);
  EncodedRequest request(session->exchange(), is_datagram());
  MutexLock lock(mutex_);
  if (state_ != expected) return Begin::kNotIdle;
  Begin outcome = Begin::kFailed;
  if (request.error != 0) {
    *failure = ClientFailure::of_system(request.error);
    failure->hopeless = true;
  } else if (expected == State::kIdle && (readable_ || !is_still_idle())) {
    outcome = Begin::kNotIdle;
    end_flushing();
  } else if (const int reason = arrived(session)) {
    *failure = ClientFailure::of_system(reason);
  } else if (begin_exchange(session, request, failure)) {
    return Begin::kBegun;
  }
  session_ = nullptr;
  reader_.end();
  end_request();
  become(State::kClosing);
  lock.unlock();
  if (outcome == Begin::kFailed) {
    endpoint_->closes(this);
  }
  ask_poller();
  return outcome;
}

bool ClientConnection::begin_exchange(ClientSession* session, EncodedRequest& request,
                                      ClientFailure* failure) {
  become(State::kExchanging);
  session_ = session;
  exchanges_++;
  reader_.begin(request.response, this);
  const int error = begin_request(request.vectors, request.count);
  progress_ = ExchangeProgress(session->exchange()->times(), endpoint_->params().response_timeout,
                               error == 0, now_ns());
  const bool can_go_on = error == 0 || error == EAGAIN;
  if (can_go_on && set_deadline(progress_.deadline_ns(now_ns()))) return true;
  if (can_go_on && endpoint_->runtime_stops()) {
    *failure = {.state = WFT_STATE_ABORTED};
  } else {
    *failure = with_facts(ClientFailure::of_system(can_go_on ? ENOMEM : error));
    failure->hopeless = error == EMSGSIZE;  // the request is too large for a datagram
  }
  return false;
}

bool ClientConnection::is_still_idle() {
  char byte;
  bool drained = true;
  return !peer_closed() && stream_.read(&byte, 1, &drained) < 0 && errno == EAGAIN;
}

void ClientConnection::limit(int64_t deadline_ns) {
  if (set_deadline(deadline_ns)) return;
  if (endpoint_->runtime_stops()) {
    aborting_ = true;  // nothing would limit it
  } else if (cancel_error_ == 0) {
    cancel_error_ = ENOMEM;
  }
  ask_poller();
}

bool ClientConnection::continue_sending(RunnableList& finished) {
  int error = 0;
  {
    MutexLock lock(mutex_);
    const bool was_sending = is_sending();
    error = resume_request();
    if (error == EAGAIN) return readable_;
    if (!was_sending) {
      return true;  // the next read will find an error, too
    }
    progress_.request_ended(now_ns());
    const bool delivering = state_ == State::kDelivering;
    // The peer may have answered before it closed its side. And while a part is being delivered the
    // exchange cannot end; a read after the delivery will find the error.
    if (error == 0 || readable_ || peer_closed() || delivering) {
      readable_ |= error != 0;
      if (!delivering) {
        limit(progress_.deadline_ns(now_ns()));
      }
      return readable_ || is_asked_to_send();
    }
  }
  fail(ClientFailure::of_system(error), finished);
  return true;
}

void ClientConnection::ask_for_more() {
  ClientExchange* exchange = nullptr;
  {
    MutexLock lock(mutex_);
    exchange = session_->exchange();
  }
  std::string bytes;
  try {
    exchange->take_more_to_send(&bytes);
  } catch (const std::bad_alloc&) {
    MutexLock lock(mutex_);
    cancel_error_ = ENOMEM;
    return;
  }
  if (bytes.empty()) return;
  MutexLock lock(mutex_);
  const int error = send_more(bytes);
  if (error == ENOMEM) {
    cancel_error_ = ENOMEM;
  } else if (error != 0) {
    readable_ = true;  // the peer may have answered before it closed; the read finds the error, too
  }
}

bool ClientConnection::receive(RunnableList& finished) {
  using Result = ResponseReader::Result;
  Result result = Result::kNothing;
  ResponseReader::Buffer buffer;  // not initialised: most of it is never used
  ClientFailure failure = {};
  ClientExchange* exchange = nullptr;
  {
    MutexLock lock(mutex_);
    bool drained = true;
    result = reader_.read(stream_, buffer, &drained, &failure);
    if (result == Result::kNothing) {
      return is_asked_to_send() || (writable_ && has_unsent());
    }
    readable_ |= !drained || peer_closed();
    if (result == Result::kPart) {
      progress_.bytes_came(now_ns());
    }
    exchange = session_->exchange();
  }
  if (result == Result::kPart) {
    set_parsing(true);
    result = reader_.parse(buffer, &failure);
    set_parsing(false);
  }
  if (result == Result::kPart) {
    part_came(exchange, finished);
  } else if (result == Result::kWhole || result == Result::kWholeAndMore ||
             (result == Result::kEnd && exchange->completes_at_end_of_input())) {
    complete(exchange, result == Result::kWhole, finished);
  } else {
    fail(failure, finished);
  }
  return true;
}

void ClientConnection::part_came(ClientExchange* exchange, RunnableList& finished) {
  if (!exchange->wants_more()) {
    complete(exchange, false, finished);
    return;
  }
  Runnable* const delivery = exchange->delivery();
  {
    MutexLock lock(mutex_);
    if (delivery) {
      become(State::kDelivering);
      progress_.paused(now_ns());
      set_deadline(kNever);
    } else if (!is_sending()) {
      limit(progress_.deadline_ns(now_ns()));
    }
  }
  if (delivery) {
    finished.push_back(delivery);
  }
}

void ClientConnection::resume() {
  ClientSession* session = nullptr;
  {
    MutexLock lock(mutex_);
    progress_.resumed(now_ns());
    if (state_ == State::kClosed) {
      session = std::exchange(session_, nullptr);
      reader_.end();
    } else {
      become(State::kDelivered);
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

void ClientConnection::go_on(RunnableList& finished) {
  ClientExchange* exchange = nullptr;
  {
    MutexLock lock(mutex_);
    become(State::kExchanging);
    limit(progress_.deadline_ns(now_ns()));
    exchange = session_->exchange();
  }
  if (!exchange->wants_more()) {
    complete(exchange, false, finished);
  }
}

void ClientConnection::complete(ClientExchange* exchange, bool usable, RunnableList& finished) {
  usable = exchange->leaves_connection_usable() && usable;
  ClientSession* session = nullptr;
  TlsSessions::Kept tls_session;
  {
    MutexLock lock(mutex_);
    session = std::exchange(session_, nullptr);
    cancel_error_ = 0;  // a cancel now comes too late
    reader_.end();
    const bool has_sent = end_request();
    if (stream_.tls()) {
      tls_session = TlsSessions::Kept(stream_.tls()->ssl());
    }
    usable = usable && has_sent && !aborting_ && !peer_closed() && progress_.keep_alive() != 0 &&
             !is_datagram() && set_deadline(in_ns(timeout_ns(progress_.keep_alive())));
    become(usable ? State::kIdle : State::kClosing);
    if (!usable) {
      limit_flushing(progress_.send_timeout());
    }
  }
  if (endpoint_->tls()) {
    endpoint_->tls()->keep(std::move(tls_session));
  }
  session->done(finished);
  if (usable) {
    endpoint_->returned(this, finished);
  }
}

ClientFailure ClientConnection::with_facts(ClientFailure failure) const {
  const bool sent = exchanges_ > 0;
  failure.connected = sent;
  failure.sent = sent;
  failure.reused = exchanges_ > 1;
  failure.received |= progress_.has_received();
  if (is_datagram() && sent && !failure.received) {
    failure.unanswered = failure.error == ETIMEDOUT && !is_sending();
    // Any other error is how the network reports that nobody is there.
    failure.connected = failure.error == ETIMEDOUT;
  }
  return failure;
}

void ClientConnection::fail(const ClientFailure& why, RunnableList& finished) {
  ClientSession* session = nullptr;
  ClientFailure failure = {};
  {
    MutexLock lock(mutex_);
    session = std::exchange(session_, nullptr);
    failure = with_facts(why);
    become(State::kClosing);
    end_request();
    end_flushing();
    reader_.end();
  }
  if (session) {
    endpoint_->closes(this);
    session->failed(failure, finished);
  }
}

void ClientConnection::on_deadline(bool stopped, RunnableList& finished) {
  State state = State::kClosed;
  {
    MutexLock lock(mutex_);
    if (!stopped && !deadline_passed()) {
      return;  // the connection was used again meanwhile
    }
    state = state_;
    if (state == State::kDelivering) {
      aborting_ = aborting_ || stopped;
      return;
    }
    if (state == State::kIdle) {
      become(State::kClosing);
    }
    if (state == State::kIdle || state == State::kClosing) {
      end_flushing();
    }
  }
  if (state < State::kIdle) {
    ClientFailure failure = {.state = WFT_STATE_ABORTED};
    if (!stopped) {
      failure = ClientFailure::of_system(ETIMEDOUT);
      failure.timeout_reason =
          state == State::kConnecting ? TOR_CONNECT_TIMEOUT : TOR_TRANSMIT_TIMEOUT;
    }
    fail(failure, finished);
  }
  advance(finished);
}

void ClientConnection::cancel(const SessionLocation& location, int reason) {
  {
    MutexLock lock(mutex_);
    if (!session_ || session_->location() != &location) return;
    cancel_error_ = reason;
  }
  ask_poller();
}

ClientFailure ClientConnection::early_end() {
  MutexLock lock(mutex_);
  return aborting_ ? ClientFailure{.state = WFT_STATE_ABORTED}
                   : ClientFailure::of_system(cancel_error_);
}

void ClientConnection::abort() {
  {
    MutexLock lock(mutex_);
    aborting_ = true;
  }
  ask_poller();
}

void ClientConnection::close_idle() {
  {
    MutexLock lock(mutex_);
    if (state_ != State::kIdle) {
      return;  // the connection closes already
    }
    become(State::kClosing);
    limit_flushing(progress_.send_timeout());
  }
  ask_poller();
}

void ClientConnection::close() {
  {
    MutexLock lock(mutex_);
    if (state_ == State::kClosed) return;
    become(State::kClosed);
    stream_.shut_down_write();
  }
  retire();
}

void ClientConnection::on_closing() {
  endpoint_->gone(this);
}

void ClientConnection::end_with_runtime() {
  ClientSession* session = nullptr;
  Stream closing{UniqueFd()};  // freed without the lock
  {
    MutexLock lock(mutex_);
    // In kDelivering the session stays with the thread that delivers. That thread is stopping the
    // runtime.
    if (state_ != State::kDelivering) {
      session = std::exchange(session_, nullptr);
      reader_.end();
    }
    become(State::kClosed);
    std::swap(closing, stream_);
  }
  if (session) {
    RunnableList finished;
    session->failed({.state = WFT_STATE_ABORTED}, finished);
    poller_.handlers().post(finished);
  }
  release();
}

void ClientConnection::restart_receive() {
  MutexLock lock(mutex_);
  progress_.restarted(now_ns());
}

}  // namespace workflow
