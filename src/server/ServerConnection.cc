#include "server/ServerConnection.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "factory/TaskContext.h"
#include "kernel/LingeringSocket.h"
#include "kernel/Socket.h"
#include "server/ReplyStream.h"
#include "workflow/WFServer.h"

namespace workflow {

ServerConnection::ServerConnection(ServerHost& host, Poller& poller, UniqueFd fd,
                                   WFConnection* user)
    : ReplyChannel(poller, std::move(fd)), host_(host), user_(user) {}

bool ServerConnection::start() {
  SSL_CTX* const context = host_.tls_context();
  bool waits = true;
  {
    MutexLock lock(mutex_);
    if (is_over()) {
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
  // Without a time limit nobody would notice a client that says nothing.
  const bool is_limited = set_deadline(saturating_add(since_ns, timeout_ns));
  state_ = is_limited ? State::kReading : State::kClosing;
}

ServerConnection::State ServerConnection::state() const {
  MutexLock lock(mutex_);
  return state_;
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
    continue_writing(false);
  }
  try {
    for (int steps = 0; steps < kMaxSteps; steps++) {
      if (!step(finished)) {
        return;
      }
    }
    ask_poller();
  } catch (const std::bad_alloc&) {
    close(State::kClosed);
  }
}

bool ServerConnection::step(RunnableList& finished) {
  switch (state()) {
    case State::kHandshaking:
      return handshake();
    case State::kReading:
      return read(finished);
    case State::kProcessing:
      return look_for_client(finished);
    case State::kLingering:
      return linger();
    case State::kClosing:
      close(State::kClosed);
      return false;
    case State::kWriting:
    case State::kParted:
    case State::kClosed:
      break;
  }
  return false;
}

bool ServerConnection::handshake() {
  MutexLock lock(mutex_);
  if (stopping()) {
    state_ = State::kClosing;
    return true;
  }
  if (!std::exchange(readable_, false)) {
    return false;
  }
  const int error = stream_.handshake();
  if (error == EAGAIN) {
    return false;
  }
  if (error == 0) {
    readable_ = true;
    wait_for_request(now_ns(), timeout_ns(host_.params().header_timeout));
  } else if (error == EPROTO) {
    start_lingering(true);  // so that the client gets the TLS alert that says why
  } else {
    state_ = State::kClosing;
  }
  return true;
}

bool ServerConnection::read(RunnableList& finished) {
  static thread_local char buffer[kReadSize];
  if (reader_.has_rest() && !stopping()) {
    const std::string rest = reader_.take_rest();
    return feed(rest.data(), rest.size(), finished);
  }
  ssize_t n = 0;
  State last = State::kClosed;
  {
    MutexLock lock(mutex_);
    if (stopping()) {
      // The client may be sending another request before it has read the last reply.
      is_sending_ = exchanges_ > 0 && (reader_.exchange() || reader_.has_rest() || readable_);
      last = State::kParted;
    } else if (std::exchange(readable_, false)) {
      bool drained = true;
      n = stream_.read(buffer, sizeof buffer, &drained);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return shutting_down();
      }
      readable_ |= !drained || peer_closed();
    } else if (!shutting_down() || reader_.exchange()) {
      return false;
    }
  }
  if (n > 0) {
    return feed(buffer, static_cast<size_t>(n), finished);
  }
  // Nobody needs the connection any more. If the client has left, or will send no more, nobody
  // would read an answer to a partial request.
  close(last);
  return false;
}

bool ServerConnection::feed(const char* data, size_t size, RunnableList& finished) {
  if (!reader_.exchange()) {
    begin_request();
  }
  switch (reader_.append(data, size)) {
    case RequestReader::Result::kWhole:
      begin_exchange(finished);
      return false;
    case RequestReader::Result::kBad:
      refuse(false);
      break;
    case RequestReader::Result::kPart: {
      const int64_t deadline_ns = reader_.deadline_ns(host_.params(), now_ns());
      MutexLock lock(mutex_);
      set_deadline(deadline_ns);
      break;
    }
  }
  return true;
}

void ServerConnection::begin_request() {
  const int64_t waited_since_ns = idle_since_ns_.exchange(kNever, std::memory_order_relaxed);
  ServerExchange* const exchange = host_.new_exchange();
  exchange->set_peer(this);
  const int64_t now = now_ns();
  // The time limit of the first header begins with the connection.
  const int64_t header_began_ns = exchanges_ == 0 ? std::min(waited_since_ns, now) : now;
  reader_.begin(exchange, this, host_.params(), header_began_ns, now);
}

void ServerConnection::begin_exchange(RunnableList& finished) {
  const WFServerParams& params = host_.params();
  // If this throws, nothing has begun.
  Runnable* const begun = reader_.exchange()->begin(exchanges_++, params.keep_alive_timeout);
  {
    MutexLock lock(mutex_);
    state_ = State::kProcessing;
    exchange_ = reader_.take();
    counted_ = false;
    watch_.begin(exchange_->series());
    begin_pushing(timeout_ns(params.send_timeout));
  }
  finished.push_back(begun);
}

// Ends a request that cannot be served: answers if the protocol has an answer, then closes.
void ServerConnection::refuse(bool timed_out) {
  const std::string answer = reader_.refuse(timed_out);
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

// The request has not come in time.
void ServerConnection::end_receiving() {
  try {
    if (!reader_.exchange() && exchanges_ == 0) {
      begin_request();  // a first request that never came is answered, too
    }
    if (reader_.exchange()) {
      refuse(true);
      return;
    }
  } catch (const std::bad_alloc&) {
    // Without an answer.
  }
  close(State::kClosed);
}

int ServerConnection::write_now(const void* buffer, size_t size) {
  MutexLock lock(mutex_);
  struct iovec vector = {const_cast<void*>(buffer), size};
  return static_cast<int>(stream_.write(&vector, 1));
}

void ServerConnection::on_deadline(bool stopped, RunnableList& finished) {
  if (stopped) {
    continue_writing(true);  // this is the last chance to write
  }
  State late;
  {
    MutexLock lock(mutex_);
    late = state_;
    if (late == State::kLingering || late == State::kHandshaking) {
      state_ = State::kClosing;
    }
  }
  if (late == State::kProcessing) {
    pushing_timed_out(stopped, finished);
  } else if (late == State::kWriting) {
    fail_reply(stopped ? ECANCELED : ETIMEDOUT);
  } else if (late == State::kReading && !stopped) {
    end_receiving();
  }
  on_ready(0, finished);
}

void ServerConnection::send_reply(ServerExchange* exchange, const ServerExchange::Reply& reply) {
  struct iovec vectors[kMaxVectors];
  errno = 0;
  const int count = exchange->response()->encode(vectors, kMaxVectors);
  const int error = count >= 0 ? 0 : (errno == 0 || errno == EAGAIN ? EBADMSG : errno);
  send(exchange, reply, vectors, count, error);
}

void ServerConnection::end_stream(ServerExchange* exchange, const ServerExchange::Reply& reply,
                                  std::string_view last) {
  struct iovec vector = {const_cast<char*>(last.data()), last.size()};
  send(exchange, reply, &vector, 1, 0);
}

void ServerConnection::send(ServerExchange* exchange, const ServerExchange::Reply& reply,
                            struct iovec* vectors, int count, int error) {
  bool ask = false;
  ClientWatch::Notice watched;  // nothing happens to it; it is freed without C
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      error = lost_error_;
    } else {
      end_pushing();
      watch_.end(watched);
      if (error == 0) {
        error = write_reply(reply, vectors, count, &ask);
        if (error == EAGAIN) {
          return;
        }
      }
      if (error != 0) {
        state_ = State::kClosing;
        ask = true;
      }
    }
  }
  if (ask) {
    ask_poller();
  }
  exchange->reply_ended(error == 0 ? WFT_STATE_SUCCESS : WFT_STATE_SYS_ERROR, error);
}

int ServerConnection::write_reply(const ServerExchange::Reply& reply, struct iovec* vectors,
                                  int count, bool* ask) {
  keep_alive_ = reply.keep_alive;
  idle_ns_ = timeout_ns(reply.keep_alive_timeout);
  set_send_limit(send_limit_ns(reply.send_timeout));
  const int64_t began_ns = now_ns();
  idle_since_ns_.store(began_ns, std::memory_order_relaxed);
  int error = write_out(vectors, count);
  if (error == EAGAIN) {
    error = leave_to_poller();
  }
  if (error == EAGAIN) {
    state_ = State::kWriting;
    idle_since_ns_.store(kNever, std::memory_order_relaxed);
  } else if (error == 0) {
    *ask = after_reply(began_ns);
  }
  return error;
}

int64_t ServerConnection::send_limit_ns(int timeout_ms) const {
  return timeout_ns(timeout_ms >= -1 ? timeout_ms : host_.params().send_timeout);
}

bool ServerConnection::after_reply(int64_t began_ns) {
  const bool dropped = !std::exchange(exchange_, nullptr) && has_pushed();
  if (!keep_alive_ || shutting_down()) {
    start_lingering(reader_.has_rest(), !dropped);
    return readable_ || state_ == State::kClosing || stopping();
  }
  wait_for_request(began_ns, idle_ns_);
  return readable_ || reader_.has_rest() || state_ == State::kClosing;
}

void ServerConnection::start_lingering(bool is_sending, bool whole) {
  idle_since_ns_.store(kNever, std::memory_order_relaxed);
  stream_.shut_down_write(whole);
  lingered_ = 0;
  is_sending_ = is_sending;
  const int64_t linger_ns = timeout_ns(host_.params().linger_timeout);
  state_ = set_deadline(in_ns(linger_ns)) ? State::kLingering : State::kClosing;
}

void ServerConnection::continue_writing(bool to_the_end) {
  continue_pushing(to_the_end);
  ServerExchange* exchange = nullptr;
  int error = 0;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kReading) {
      resume_writing();  // an error shows again with the next read or write
      return;
    }
    if (state_ != State::kWriting) {
      return;
    }
    const int64_t began_ns = now_ns();
    // When the server stops, progress does not extend the time limit any more.
    error = resume_reply(to_the_end, !stopping());
    if (error == EAGAIN) {
      return;
    }
    if (error == 0) {
      exchange = exchange_;
      after_reply(began_ns);
    }
  }
  if (error != 0) {
    fail_reply(error);
  } else if (exchange) {
    exchange->reply_ended(WFT_STATE_SUCCESS, 0);
  }
}

void ServerConnection::fail_reply(int error) {
  ServerExchange* exchange = nullptr;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kWriting) {
      return;
    }
    exchange = std::exchange(exchange_, nullptr);
    forget_unsent();
    state_ = State::kClosing;
  }
  if (exchange) {
    exchange->reply_ended(WFT_STATE_SYS_ERROR, error);
  }
}

int ServerConnection::push(const void* buffer, size_t size) {
  MutexLock lock(mutex_);
  int error = ENOTCONN;
  if (state_ == State::kProcessing) {
    const bool was_full = copied_bytes() > ReplyStream::kLowWater;
    error = push_bytes(buffer, size);
    if (watch_.stream() && was_full && copied_bytes() <= ReplyStream::kLowWater) {
      request_write_turn();  // tasks may wait for room, and no event of the socket will come
    }
  }
  if (error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(size);
}

void ServerConnection::continue_pushing(bool to_the_end) {
  std::shared_ptr<ReplyStream> stream;
  int error = 0;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing || (!is_pushing() && !watch_.stream())) {
      return;
    }
    error = resume_pushing(to_the_end);
    if (error == EAGAIN) {
      error = 0;
    }
    // An error shows again with the next read or write; the stream need not wait for that.
    if (error != 0 || copied_bytes() <= ReplyStream::kLowWater) {
      stream = watch_.stream();
    }
  }
  if (stream && error == 0) {
    stream->room();
  } else if (stream) {
    stream->over(Channel::peer_closed() ? ECONNRESET : error);
  }
}

// In kProcessing: for too long no pushed byte could be sent, or nothing was pushed during a
// heartbeat interval.
void ServerConnection::pushing_timed_out(bool stopped, RunnableList& finished) {
  const int error = stopped ? ECANCELED : ETIMEDOUT;
  ClientWatch::Notice notice;
  std::shared_ptr<ReplyStream> quiet;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing || (!stopped && !deadline_passed())) {
      return;
    }
    if (is_pushing()) {
      watch_.lose(error, notice);
      detach(error, notice);
      is_lost_.store(true, std::memory_order_release);
      state_ = State::kClosing;
    } else {
      if (has_heartbeat() && !stopped) {
        quiet = watch_.stream();
      }
      await_heartbeat();
    }
  }
  notice.tell(error, finished);
  if (quiet) {
    quiet->send_heartbeat();
  }
}

int ServerConnection::begin_stream(std::shared_ptr<ReplyStream> stream, const std::string& head,
                                   int send_timeout) {
  {
    MutexLock lock(mutex_);
    int error = lost_error_;
    if (state_ == State::kProcessing) {
      set_send_limit(send_limit_ns(send_timeout));
      error = push_head(head.data(), head.size());
    }
    if (error != 0) {
      errno = error;
      return -1;
    }
    watch_.set_stream(std::move(stream));
  }
  watch_leaving(nullptr, OnLeaving::kEndTimers);
  return 0;
}

size_t ServerConnection::unsent() const {
  MutexLock lock(mutex_);
  return copied_bytes();
}

void ServerConnection::set_heartbeat(int ms) {
  MutexLock lock(mutex_);
  if (state_ == State::kProcessing) {
    set_heartbeat_interval(ms > 0 ? timeout_ns(ms) : kNever);
  }
}

void ServerConnection::watch_leaving(std::shared_ptr<LeaveHook> hook, OnLeaving what) {
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      return;
    }
    watch_.add(hook, what);
  }
  if (peer_closed()) {
    ask_poller();
  }
}

bool ServerConnection::look_for_client(RunnableList& finished) {
  ClientWatch::Notice notice;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      return true;
    }
    if (!peer_closed() || !watch_.is_asked()) {
      return false;
    }
    watch_.lose(ECONNRESET, notice);
  }
  notice.tell(ECONNRESET, finished);
  return true;
}

void ServerConnection::detach(int error, ClientWatch::Notice& notice) {
  exchange_ = nullptr;
  lost_error_ = error;
  keep_alive_ = false;
  end_pushing();
  watch_.end(notice);
}

void ServerConnection::drop() {
  ClientWatch::Notice watched;  // nothing happens to it; it is freed without C
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      return;
    }
    detach(ECONNRESET, watched);
    set_send_limit(timeout_ns(host_.params().send_timeout));
    // What was pushed is still sent.
    const bool is_left = resume_writing() == EAGAIN && leave_to_poller() == EAGAIN;
    state_ = is_left ? State::kWriting : State::kClosing;
  }
  ask_poller();
}

bool ServerConnection::cut_short(WFStopAction action, const std::string& unavailable) {
  bool counts = false;
  ClientWatch::Notice notice;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      return false;
    }
    counts = !std::exchange(counted_, true);
    watch_.end_scope(notice);
    if (action != WF_STOP_FINISH) {
      detach(ECANCELED, notice);
      is_lost_.store(true, std::memory_order_release);
      set_send_limit(timeout_ns(host_.params().send_timeout));
      state_ = State::kClosing;
      // A reply that has begun cannot be replaced by another one.
      if (action == WF_STOP_ANSWER && !unavailable.empty() && !has_pushed()) {
        answer_unavailable(unavailable);
      }
    }
  }
  RunnableList posted;
  notice.tell(ECANCELED, posted);
  poller_.handlers().post(posted);
  ask_poller();
  return counts;
}

void ServerConnection::answer_unavailable(const std::string& unavailable) {
  int error = write_copy(unavailable.data(), unavailable.size());
  if (error == EAGAIN) {
    error = leave_to_poller();
  }
  if (error == EAGAIN) {
    state_ = State::kWriting;
  } else if (error == 0) {
    start_lingering(reader_.has_rest());
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

bool ServerConnection::linger() {
  static thread_local char buffer[kReadSize];
  State last = State::kClosed;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kLingering) {
      return true;
    }
    // Whether the client is sending is known once everything that has come was read.
    if (stopping() && (is_sending_ || !readable_)) {
      last = State::kParted;
    } else {
      // Over the limit nothing more is read. But a socket that is closed with unread bytes is
      // reset, and the client may lose the last bytes of the reply. So the connection stays open
      // until the time limit has passed.
      if (lingered_ > host_.params().linger_size_limit || !std::exchange(readable_, false)) {
        return false;
      }
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
  }
  close(last);
  return false;
}

void ServerConnection::close(State last) {
  {
    MutexLock lock(mutex_);
    if (is_over()) {
      return;
    }
    if (state_ == State::kReading && stream_.tls()) {
      stream_.tls()->close_notify();  // nothing was cut: all replies have left
    }
    exchange_ = nullptr;
    state_ = last;
  }
  reader_.abandon();
  retire();
}

void ServerConnection::on_closing() {
  host_.connection_closed(this);
  MutexLock lock(mutex_);
  if (state_ == State::kParted && stream_.is_open()) {
    const WFServerParams& params = host_.params();
    const size_t size_limit = params.linger_size_limit;
    LingeringSocket::end_connection(poller_, stream_.take_fd(),
                                    in_ns(timeout_ns(params.linger_timeout)),
                                    size_limit - std::min(size_limit, lingered_), is_sending_);
  }
}

void ServerConnection::end_with_runtime() {
  ClientWatch::Notice watched;
  ServerExchange* replying = nullptr;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kWriting) {
      replying = exchange_;
    }
    detach(ECANCELED, watched);
    state_ = State::kClosed;
    stream_.close();
  }
  if (watched.stream) {
    watched.stream->over(ECANCELED);
  }
  reader_.abandon();
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
