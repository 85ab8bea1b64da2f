#include "server/ServerConnection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernel/Socket.h"
#include "kernel/ThreadContext.h"
#include "workflow/WFServer.h"

// Receiving and the life of a connection; ServerConnectionReply.cc has the sending.

namespace workflow {

ServerConnection::ServerConnection(ServerHost& host, Poller& poller, UniqueFd fd,
                                   WFConnection* user)
    : host_(host), poller_(poller), user_(user), fd_(std::move(fd)) {}

bool ServerConnection::start() {
  MutexLock lock(mutex_);
  if (state_ == State::kClosed) {
    return true;
  }
  if (poller_.add(fd_.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, this) != 0) {
    return false;
  }
  // The first request gets the time of a header, not that of an idle connection.
  set_deadline(saturating_add(now_ns(), timeout_ns(host_.params().header_timeout)));
  return true;
}

void ServerConnection::shut_down() {
  shutting_down_.store(true, std::memory_order_release);
  ask_poller();
}

void ServerConnection::release() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) > 1) {
    return;
  }
  if (ThreadContext::current().poller) {
    // The user's code that follows may wait, and not on a poller's thread.
    RunnableList last;
    last.push_back(this);
    poller_.hand_over(last);
  } else {
    end();
  }
}

void ServerConnection::end() {
  ServerHost& host = host_;
  WFConnection* user = user_;
  delete this;
  // The series that held the last reference is no more, if it was one.
  SeriesWork* const series = std::exchange(ThreadContext::current().series, nullptr);
  host.connection_gone(user);
  ThreadContext::current().series = series;
}

void ServerConnection::ask_poller() {
  if (!asked_.exchange(true, std::memory_order_acq_rel)) {
    retain();
    if (!poller_.post(this)) {
      asked_.store(false, std::memory_order_release);
      release();
    }
  }
}

void ServerConnection::take_turn() {
  if (references_.load(std::memory_order_acquire) == 0) {
    end();
    return;
  }
  asked_.store(false, std::memory_order_release);
  RunnableList finished;
  advance(finished);
  poller_.hand_over(finished);
  release();
}

void ServerConnection::on_events(uint32_t events, RunnableList& finished) {
  if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
    peer_closed_.store(true, std::memory_order_release);
  }
  {
    MutexLock lock(mutex_);
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
      readable_ = true;
    }
  }
  if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) {
    continue_writing();
  }
  advance(finished);
}

ServerConnection::Step ServerConnection::next_step() {
  MutexLock lock(mutex_);
  switch (state_) {
    case State::kReading:
      if (shutting_down()) {
        return Step::kClose;
      }
      if (!input_.empty()) {
        return Step::kParse;
      }
      return std::exchange(readable_, false) ? Step::kRead : Step::kWait;
    case State::kLingering:
      return std::exchange(readable_, false) ? Step::kDiscard : Step::kWait;
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
      case Step::kParse: {
        const std::string input = std::exchange(input_, std::string());
        more = feed(input.data(), input.size(), finished);
        break;
      }
      case Step::kRead:
        more = read_some(finished);
        break;
      case Step::kDiscard:
        more = discard_some();
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

bool ServerConnection::read_some(RunnableList& finished) {
  static thread_local char buffer[kReadSize];
  int fd;
  {
    MutexLock lock(mutex_);
    fd = fd_.get();
  }
  const ssize_t n = socket_read(fd, buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return false;
  }
  if (n <= 0) {
    // The peer is gone, or will send no more: a request cut short has no reader for an answer.
    close();
    return false;
  }
  if (static_cast<size_t>(n) == sizeof buffer || peer_closed()) {
    MutexLock lock(mutex_);
    readable_ = true;
  }
  return feed(buffer, static_cast<size_t>(n), finished);
}

void ServerConnection::new_exchange() {
  exchange_ = host_.new_exchange();
  exchange_->set_connection(this);
  exchange_->prepare_request(host_.params());
  exchange_->request()->set_channel(this);
  started_ns_ = now_ns();
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
  ServerExchange* exchange = exchange_;
  exchange->request()->set_channel(nullptr);
  {
    MutexLock lock(mutex_);
    state_ = State::kProcessing;
    set_deadline(kNever);
  }
  finished.push_back(exchange->begin(exchanges_++, host_.params().keep_alive_timeout));
}

// More of the request has arrived and more is to come: how long for it?
void ServerConnection::note_receiving() {
  const WFServerParams& params = host_.params();
  int64_t deadline_ns = saturating_add(started_ns_, timeout_ns(params.receive_timeout));
  if (!exchange_->is_header_complete()) {
    deadline_ns =
        std::min(deadline_ns, saturating_add(started_ns_, timeout_ns(params.header_timeout)));
  } else {
    const int64_t now = now_ns();
    if (header_done_ns_ == kNever) {
      header_done_ns_ = now;
    }
    deadline_ns =
        std::min(deadline_ns, saturating_add(now, timeout_ns(params.peer_response_timeout)));
    if (params.body_timeout >= 0 && params.body_bytes_per_second > 0) {
      const auto seconds = received_ / params.body_bytes_per_second;
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
  // A socket that does not take these few bytes has a peer that does not read either.
  struct iovec vector = {const_cast<char*>(answer.data()), answer.size()};
  socket_write(fd_.get(), &vector, 1);
  start_lingering();
}

bool ServerConnection::discard_some() {
  static thread_local char buffer[kReadSize];
  int fd;
  {
    MutexLock lock(mutex_);
    fd = fd_.get();
  }
  const ssize_t n = socket_read(fd, buffer, sizeof buffer);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return false;
  }
  if (n > 0) {
    lingered_ += static_cast<size_t>(n);
  }
  if (n <= 0 || lingered_ > host_.params().linger_size_limit) {
    close();
    return false;
  }
  MutexLock lock(mutex_);
  readable_ = true;
  return true;
}

bool ServerConnection::set_deadline(int64_t deadline_ns) {
  deadline_ns_ = deadline_ns;
  if (deadline_ns >= queued_ns_) {
    return true;
  }
  const bool queued = poller_.schedule(this, deadline_ns);
  queued_ns_ = queued ? deadline_ns : kNever;
  return queued;
}

void ServerConnection::left_queue(bool stopped, RunnableList& finished) {
  {
    MutexLock lock(mutex_);
    queued_ns_ = kNever;
    // When the poller stops there will be no later time: what waits for its peer ends now.
    if (!stopped && deadline_ns_ > now_ns()) {
      set_deadline(deadline_ns_);
      return;
    }
  }
  on_deadline(stopped);
  advance(finished);
}

void ServerConnection::on_deadline(bool stopped) {
  State state;
  {
    MutexLock lock(mutex_);
    state = state_;
    if (state == State::kLingering) {
      state_ = State::kClosing;
    }
  }
  if (state == State::kWriting) {
    fail_reply(stopped ? ECANCELED : ETIMEDOUT);
  } else if (state == State::kReading && !stopped) {
    if (!exchange_ && exchanges_ == 0) {
      new_exchange();  // a first request that never came is answered, too
    }
    if (exchange_) {
      refuse(true);
    } else {
      close();
    }
  }
}

void ServerConnection::close() {
  int fd;
  {
    MutexLock lock(mutex_);
    if (state_ == State::kClosed) {
      return;
    }
    if (state_ != State::kReading) {
      exchange_ = nullptr;  // its series owns it
    }
    state_ = State::kClosed;
    fd = fd_.get();
  }
  if (exchange_) {
    std::exchange(exchange_, nullptr)->abandon();
  }
  poller_.unschedule(this);
  poller_.retire(fd, this);
}

void ServerConnection::end_with_runtime() {
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
    state_ = State::kClosed;
    fd_.reset();
  }
  if (receiving) {
    receiving->abandon();
  }
  if (replying) {
    replying->reply_ended(WFT_STATE_ABORTED, 0);
  }
  release();
}

void ServerConnection::on_retired() {
  host_.connection_closed(this);
  {
    MutexLock lock(mutex_);
    fd_.reset();
  }
  release();
}

int ServerConnection::peer_addr(struct sockaddr* address, socklen_t* length) const {
  MutexLock lock(mutex_);
  if (state_ == State::kClosed) {
    errno = ENOTCONN;
    return -1;
  }
  struct sockaddr_storage peer;
  socklen_t peer_length = sizeof peer;
  if (::getpeername(fd_.get(), reinterpret_cast<struct sockaddr*>(&peer), &peer_length) < 0) {
    return -1;
  }
  if (*length < peer_length) {
    errno = ENOBUFS;
    return -1;
  }
  std::memcpy(address, &peer, peer_length);
  *length = peer_length;
  return 0;
}

}  // namespace workflow
