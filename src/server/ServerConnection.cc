#include "server/ServerConnection.h"

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "factory/TaskContext.h"
#include "kernel/LingeringSocket.h"
#include "kernel/TlsContext.h"
#include "protocol/HttpGrammar.h"
#include "server/ReplyStream.h"
#include "workflow/WFServer.h"

namespace workflow {

ServerConnection::ServerConnection(ServerHost& host, Poller& poller, UniqueFd fd,
                                   WFConnection* user)
    : ReplyChannel(poller, std::move(fd)), host_(host), user_(user) {}

bool ServerConnection::may_become(State next) const {
  switch (next) {
    case State::kHandshaking:
    case State::kProcessing:
      return state_ == State::kReading;
    case State::kReading:
      return state_ < State::kLingering;
    case State::kWriting:
      return state_ == State::kProcessing;
    case State::kLingering:
      return state_ < State::kLingering;
    case State::kClosing:
      return state_ < State::kClosing;
    case State::kDetached:
      return state_ == State::kReading || state_ == State::kLingering;
    case State::kClosed:
      return true;
  }
  return false;
}

void ServerConnection::become(State next) {
  assert(may_become(next));
  state_ = next;
}

bool ServerConnection::start() {
  SSL_CTX* const context = host_.tls_context();
  const WFServerParams& params = host_.params();
  MutexLock lock(mutex_);
  if (is_over()) return true;
  if (context) {
    if (!stream_.begin_tls(context, TlsStream::Role::kServer)) {
      become(State::kClosed);  // a shutdown may have asked the poller to look
      errno = ENOMEM;
      return false;
    }
    become(State::kHandshaking);
  }
  if (watch() != 0) {
    become(State::kClosed);
    return false;
  }
  if (!context) {
    // The first request gets the time of a header, not that of an idle connection.
    wait_for_request(now_ns(), timeout_ns(params.header_timeout));
  } else if (!set_deadline(in_ns(timeout_ns(params.ssl_accept_timeout)))) {
    become(State::kClosing);
  }
  if (state_ == State::kClosing) {
    ask_poller();
  }
  return true;
}

void ServerConnection::wait_for_request(int64_t since_ns, int64_t timeout_ns) {
  idle_since_ns_.store(since_ns, std::memory_order_relaxed);
  // Without a time limit nobody would notice a client that says nothing.
  const bool is_limited = set_deadline(saturating_add(since_ns, timeout_ns));
  become(is_limited ? State::kReading : State::kClosing);
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
      if (!step(finished)) return;
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
    default:
      return false;
  }
}

bool ServerConnection::handshake() {
  MutexLock lock(mutex_);
  if (stopping()) {
    become(State::kClosing);
    return true;
  }
  if (!std::exchange(readable_, false)) return false;
  const int error = stream_.handshake();
  if (error == EAGAIN) return false;
  if (error == 0) {
    readable_ = true;
    wait_for_request(now_ns(), timeout_ns(host_.params().header_timeout));
  } else if (error == EPROTO) {
    start_lingering(true);  // so that the client gets the TLS alert that says why
  } else {
    become(State::kClosing);
  }
  return true;
}

bool ServerConnection::read(RunnableList& finished) {
  char buffer[kReadSize];
  if (reader_.has_rest() && !stopping()) {
    const std::string rest = reader_.take_rest();
    return feed(rest.data(), rest.size(), finished);
  }
  ssize_t n = 0;
  State last = State::kClosed;
  {
    MutexLock lock(mutex_);
    // Asked before stopping(), which becomes true first: a stop parts, it does not close.
    const bool is_last = shutting_down();
    if (stopping()) {
      // The client may be sending another request before it has read the last reply.
      lingering_.begin(exchanges_ > 0 && (reader_.exchange() || reader_.has_rest() || readable_));
      last = State::kDetached;
    } else if (std::exchange(readable_, false)) {
      bool drained = true;
      n = stream_.read(buffer, sizeof buffer, &drained);
      if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return is_last;
      readable_ |= !drained || peer_closed();
    } else if (!is_last || reader_.exchange()) {
      return false;
    }
  }
  if (n > 0) return feed(buffer, static_cast<size_t>(n), finished);
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

bool ServerConnection::serves(std::string_view authority) {
  if (!host_.tls_context()) return true;
  const HostName name = canonical_host(protocol::host_of(authority));
  const SSL_CTX* context = nullptr;
  {
    MutexLock lock(mutex_);
    const SSL* const ssl = stream_.tls()->ssl();
    const char* const chosen = chosen_host(ssl);
    if (chosen && std::strcmp(chosen, name.data()) == 0) return true;
    context = enforced_context(ssl);
  }
  return host_.may_serve(name.data(), context);
}

void ServerConnection::begin_exchange(RunnableList& finished) {
  const WFServerParams& params = host_.params();
  // If this throws, nothing has begun.
  Runnable* const begun = reader_.exchange()->begin(exchanges_++, params.keep_alive_timeout);
  {
    MutexLock lock(mutex_);
    become(State::kProcessing);
    exchange_ = reader_.take();
    counted_ = false;
    watch_.begin(exchange_->series());
    begin_pushing(params.send_timeout);
  }
  finished.push_back(begun);
}

// Ends a request that cannot be served: answers if the protocol has an answer, then closes.
void ServerConnection::refuse(bool timed_out) {
  const std::string answer = reader_.refuse(timed_out);
  MutexLock lock(mutex_);
  if (answer.empty()) {
    become(State::kClosing);
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

void ServerConnection::on_deadline(bool stopped, RunnableList& finished) {
  if (stopped) {
    continue_writing(true);  // this is the last chance to write
  }
  State state = State::kClosed;
  {
    MutexLock lock(mutex_);
    if (stopped || deadline_passed()) {
      state = state_;
    }
  }
  switch (state) {
    case State::kHandshaking:
    case State::kLingering:
      close(State::kClosed);
      break;
    case State::kReading:
      if (!stopped) {
        end_receiving();
      }
      break;
    case State::kProcessing:
      pushing_timed_out(stopped, finished);
      break;
    case State::kWriting:
      fail_reply(stopped ? ECANCELED : ETIMEDOUT);
      break;
    default:
      break;
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
  int64_t began_ns = 0;
  bool ask = false;
  ClientWatch::Notice watched;  // nothing happens to it; it is freed after the lock is released
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      error = lost_error_;
    } else {
      watched.stream = end_pushing();
      watch_.end(watched);
      if (error == 0) {
        keep_alive_ = reply.keep_alive;
        idle_ms_ = reply.keep_alive_timeout;
        set_send_limit(send_timeout(reply.send_timeout));
        began_ns = now_ns();
        idle_since_ns_.store(began_ns, std::memory_order_relaxed);
        error = leave_to_poller(write_out(vectors, count));
      }
      if (error == EAGAIN) {
        become(State::kWriting);
        idle_since_ns_.store(kNever, std::memory_order_relaxed);
        return;
      }
      if (error == 0) {
        ask = after_reply(began_ns);
      } else {
        become(State::kClosing);
        ask = true;
      }
    }
  }
  if (ask) {
    ask_poller();
  }
  exchange->reply_ended(error == 0 ? WFT_STATE_SUCCESS : WFT_STATE_SYS_ERROR, error);
}

bool ServerConnection::after_reply(int64_t began_ns) {
  const bool dropped = !std::exchange(exchange_, nullptr) && has_pushed();
  if (!keep_alive_ || shutting_down()) {
    start_lingering(reader_.has_rest(), !dropped);
    return readable_ || state_ == State::kClosing || stopping();
  }
  wait_for_request(began_ns, timeout_ns(idle_ms_));
  return readable_ || reader_.has_rest() || state_ == State::kClosing;
}

void ServerConnection::start_lingering(bool is_sending, bool whole) {
  idle_since_ns_.store(kNever, std::memory_order_relaxed);
  stream_.shut_down_write(whole);
  lingering_.begin(is_sending);
  const int64_t linger_ns = timeout_ns(host_.params().linger_timeout);
  become(set_deadline(in_ns(linger_ns)) ? State::kLingering : State::kClosing);
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
    if (state_ != State::kWriting) return;
    const int64_t began_ns = now_ns();
    // When the server stops, progress does not extend the time limit any more.
    error = resume_reply(to_the_end, !stopping());
    if (error == EAGAIN) return;
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
    if (state_ != State::kWriting) return;
    exchange = std::exchange(exchange_, nullptr);
    forget_unsent();
    become(State::kClosing);
  }
  if (exchange) {
    exchange->reply_ended(WFT_STATE_SYS_ERROR, error);
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
    if (state_ != State::kProcessing || (!stopped && !deadline_passed())) return;
    if (is_pushing()) {
      watch_.lose(notice);
      cut_off_scope_ = watch_.scope();
      detach(error, notice);
      become(State::kClosing);
      is_lost_.store(true, std::memory_order_release);
    } else {
      quiet = await_heartbeat();
    }
  }
  notice.tell(error, finished);
  if (quiet && !stopped) {
    quiet->send_heartbeat();
  }
}

int ServerConnection::begin_stream(std::shared_ptr<ReplyStream> stream, const std::string& head,
                                   int send_timeout) {
  {
    MutexLock lock(mutex_);
    int error = lost_error_;
    if (state_ == State::kProcessing) {
      set_send_limit(this->send_timeout(send_timeout));
      error = push_head(std::move(stream), head);
    }
    if (error != 0) {
      errno = error;
      return -1;
    }
  }
  watch_leaving(nullptr, OnLeaving::kEndTimers);
  return 0;
}

void ServerConnection::watch_leaving(std::shared_ptr<LeaveHook> hook, OnLeaving what) {
  ClientWatch::Notice notice;
  bool was_cut_off = false;
  {
    MutexLock lock(mutex_);
    was_cut_off = is_lost_.load(std::memory_order_relaxed);
    if (state_ != State::kProcessing && !was_cut_off) return;
    watch_.add(hook, what);
    if (was_cut_off) {
      watch_.lose(notice);  // the poller does not look for the client any more
    }
  }
  if (was_cut_off) {
    RunnableList posted;
    notice.tell(ECONNRESET, posted);
    poller_.handlers().post(posted);
  } else if (peer_closed()) {
    ask_poller();
  }
}

bool ServerConnection::look_for_client(RunnableList& finished) {
  ClientWatch::Notice notice;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) return true;
    if (!peer_closed() || !watch_.is_asked()) return false;
    notice.stream = lose_stream(ECONNRESET);
    watch_.lose(notice);
  }
  notice.tell(ECONNRESET, finished);
  return true;
}

void ServerConnection::detach(int error, ClientWatch::Notice& notice) {
  exchange_ = nullptr;
  lost_error_ = error;
  keep_alive_ = false;
  lose_stream(error);
  notice.stream = end_pushing();
  watch_.end(notice);
  set_send_limit(host_.params().send_timeout);
}

void ServerConnection::drop() {
  ClientWatch::Notice watched;  // nothing happens to it; it is freed after the lock is released
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) return;
    detach(ECONNRESET, watched);
    // What was pushed is still sent.
    const int error = leave_to_poller(resume_writing());
    if (error == EAGAIN) {
      become(State::kWriting);
    } else if (error == 0 && has_pushed()) {
      after_reply(now_ns());
    } else {
      become(State::kClosing);
    }
  }
  ask_poller();
}

bool ServerConnection::cut_short(WFStopAction action, const std::string& unavailable) {
  bool counts = false;
  ClientWatch::Notice notice;
  {
    MutexLock lock(mutex_);
    const bool is_processing = state_ == State::kProcessing;
    if (is_processing) {
      counts = !std::exchange(counted_, true);
      watch_.end_scope(notice);
    } else if (cut_off_scope_) {
      notice.cancel = cut_off_scope_->cancel_later(ECANCELED);
    } else {
      return false;
    }
    if (is_processing && action != WF_STOP_FINISH) {
      detach(ECANCELED, notice);
      is_lost_.store(true, std::memory_order_release);
      // A reply that has begun cannot be replaced by another one.
      const bool answers = action == WF_STOP_ANSWER && !unavailable.empty() && !has_pushed();
      const int error =
          answers ? leave_to_poller(write_copy(unavailable.data(), unavailable.size())) : ECANCELED;
      if (error == 0) {
        start_lingering(reader_.has_rest());
      } else {
        become(error == EAGAIN ? State::kWriting : State::kClosing);
      }
    }
  }
  RunnableList posted;
  notice.tell(ECANCELED, posted);
  poller_.handlers().post(posted);
  ask_poller();
  return counts;
}

bool ServerConnection::close_now() {
  bool counts = cut_short(WF_STOP_DROP, std::string());
  {
    MutexLock lock(mutex_);
    if (state_ == State::kWriting) {
      counts |= !std::exchange(counted_, true);
    } else if (state_ == State::kLingering) {
      become(State::kClosing);
    }
  }
  fail_reply(ECANCELED);
  ask_poller();
  return counts;
}

void ServerConnection::shut_down() {
  stopping_.store(true, std::memory_order_release);
  is_last_.store(true, std::memory_order_release);
  ask_poller();
}

void ServerConnection::make_room() {
  is_last_.store(true, std::memory_order_release);
  ask_poller();
}

bool ServerConnection::linger() {
  State last = State::kClosed;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kLingering) return true;
    // Whether the client is sending is known once everything that has come was read.
    if (stopping() && (lingering_.is_sending() || !readable_)) {
      last = State::kDetached;
    } else if (!readable_ || lingering_.is_over(host_.params().linger_size_limit)) {
      return false;  // over the limit the socket stays open, unread, until its time is up
    } else {
      const LingeringInput::Result result = lingering_.discard(stream_);
      readable_ = result == LingeringInput::Result::kSome;
      if (result != LingeringInput::Result::kEnd) return true;
    }
  }
  close(last);
  return false;
}

void ServerConnection::close(State last) {
  {
    MutexLock lock(mutex_);
    if (is_over()) return;
    if (state_ == State::kReading && stream_.tls()) {
      stream_.tls()->close_notify();  // nothing was cut: all replies have left
    }
    exchange_ = nullptr;
    become(last);
  }
  reader_.abandon();
  retire();
}

void ServerConnection::on_closing() {
  Ref<DeadlineScope> cut_off_scope;
  {
    MutexLock lock(mutex_);
    cut_off_scope = cut_off_scope_;
  }
  host_.connection_closed(this, std::move(cut_off_scope));
  MutexLock lock(mutex_);
  if (state_ == State::kDetached && stream_.is_open()) {
    const WFServerParams& params = host_.params();
    LingeringSocket::end_connection(
        poller_, stream_.take_fd(), in_ns(timeout_ns(params.linger_timeout)),
        lingering_.left(params.linger_size_limit), lingering_.is_sending());
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
    become(State::kClosed);
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
  host.request_gone(this);
  delete this;
  // If a series held the last reference, it is gone now.
  SeriesWork* const series = std::exchange(TaskContext::current().series, nullptr);
  host.connection_gone(user);
  TaskContext::current().series = series;
}

}  // namespace workflow
