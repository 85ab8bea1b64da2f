#include "server/DatagramPort.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "factory/SeriesScope.h"
#include "factory/TaskContext.h"
#include "workflow/WFServer.h"

namespace workflow {

DatagramPort::DatagramPort(ServerHost& host, Poller& poller, UniqueFd fd)
    : Channel(poller, std::move(fd)), host_(host), fd_(stream_.fd()) {}

bool DatagramPort::start() {
  learn_local_addresses(fd_);
  return poller_.add(fd_, EPOLLIN | EPOLLET, this) == 0;
}

void DatagramPort::shut_down() {
  shutting_down_.store(true, std::memory_order_release);
  ask_poller();
}

void DatagramPort::end() {
  ServerHost& host = host_;
  delete this;
  host.port_gone();
}

void DatagramPort::on_ready(uint32_t events, RunnableList& finished) {
  {
    MutexLock lock(mutex_);
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) {
      readable_ = true;
    }
  }
  if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
    send_waiting();
  }
  read_requests(finished);
  close_if_done();
}

bool DatagramPort::may_read() {
  MutexLock lock(mutex_);
  if (closed_ || shutting_down() || !readable_ || rests_until_ns_ != kNever) return false;
  paused_ = under_way_.load(std::memory_order_relaxed) >= host_.params().max_connections;
  return !paused_;
}

void DatagramPort::read_requests(RunnableList& finished) {
  char buffer[kReadSize];
  int errors = 0;
  for (int i = 0; i < kMaxDatagrams; i++) {
    if (!may_read()) return;
    DatagramAddress from;
    const ssize_t n = receive_datagram(fd_, buffer, sizeof buffer, &from);
    if (n >= 0) {
      receive(from, buffer, static_cast<size_t>(n), finished);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      MutexLock lock(mutex_);
      readable_ = false;
      return;
    } else if (errno != EMSGSIZE && ++errors == kMaxErrors) {
      rest();
      return;
    }
  }
  ask_poller();
}

void DatagramPort::receive(const DatagramAddress& from, const char* data, size_t size,
                           RunnableList& finished) {
  DatagramPeer* peer = nullptr;
  ServerExchange* exchange = nullptr;
  Runnable* begun = nullptr;
  try {
    peer = new DatagramPeer(*this, from, nullptr);
    exchange = host_.new_exchange();
    begun = begin(peer, exchange, data, size);
  } catch (const std::bad_alloc&) {
    // The datagram is dropped, as a network may do.
  }
  if (begun) {
    finished.push_back(begun);
    peer->release();
    return;
  }
  if (exchange) {
    exchange->abandon();
  }
  if (peer && peer->user_) {
    host_.give_back(peer->user_);
  }
  delete peer;
}

// Returns what a handler thread has to run, or null if the datagram is not a whole request or was
// refused. If this throws, nothing has begun.
Runnable* DatagramPort::begin(DatagramPeer* peer, ServerExchange* exchange, const char* data,
                              size_t size) {
  exchange->set_peer(peer);
  exchange->prepare_request(host_.params());
  protocol::ProtocolMessage* const request = exchange->request();
  request->set_channel(peer);
  size_t taken = size;
  const bool whole = request->append(data, &taken) == 1 && taken == size;
  request->set_channel(nullptr);
  peer->user_ = whole ? host_.new_user(fd_) : nullptr;
  if (!peer->user_) return nullptr;
  Runnable* const begun = exchange->begin(requests_++, host_.params().keep_alive_timeout);
  retain();
  MutexLock lock(mutex_);
  under_way_.fetch_add(1, std::memory_order_relaxed);
  peer->series_ = exchange->series();
  peer->next_ = std::exchange(open_, peer);
  if (peer->next_) {
    peer->next_->previous_ = peer;
  }
  return begun;
}

void DatagramPort::take_out(DatagramPeer* peer) {
  if (!peer->series_) return;
  peer->series_ = nullptr;
  (peer->previous_ ? peer->previous_->next_ : open_) = peer->next_;
  if (peer->next_) {
    peer->next_->previous_ = peer->previous_;
  }
}

void DatagramPort::rest() {
  MutexLock lock(mutex_);
  rests_until_ns_ = in_ns(kRestNs);
  if (!update_deadline()) {
    rests_until_ns_ = kNever;  // nothing would end the rest
    readable_ = true;
  }
}

void DatagramPort::request_ended(WFConnection* user) {
  // If a series held the last reference, it is gone now.
  SeriesWork* const series = std::exchange(TaskContext::current().series, nullptr);
  host_.give_back(user);
  bool ask = false;
  {
    MutexLock lock(mutex_);
    const size_t left = under_way_.fetch_sub(1, std::memory_order_relaxed) - 1;
    ask = std::exchange(paused_, false) || (left == 0 && shutting_down());
  }
  if (ask) {
    ask_poller();
  }
  release();
  TaskContext::current().series = series;
}

int DatagramPort::send(const DatagramPeer& peer, const struct iovec* vectors, int count) {
  return closed_ ? ECONNRESET : send_datagram(fd_, vectors, count, &peer.address_);
}

void DatagramPort::reply(DatagramPeer* peer, ServerExchange* exchange,
                         const ServerExchange::Reply& reply) {
  struct iovec vectors[kMaxVectors];
  errno = 0;
  const int count = exchange->response()->encode(vectors, kMaxVectors);
  int error = count >= 0 ? 0 : (errno == 0 || errno == EAGAIN ? EBADMSG : errno);
  {
    MutexLock lock(mutex_);
    peer->replied_ = true;
    take_out(peer);
    if (peer->cut_) {
      error = ECANCELED;
    }
    if (error == 0) {
      // Sends in order, so that no reply waits for ever.
      error = waiting_.empty() ? send(*peer, vectors, count) : EAGAIN;
      // With unix sockets it is the receiver that has no room, and no event says when it has.
      if (error == EAGAIN && peer->address_.peer.ss_family != AF_UNIX) {
        peer->exchange_ = exchange;
        try {
          peer->vectors_.assign(vectors, vectors + count);
          if (wait_for_room(peer, reply.send_timeout)) return;
          error = ECANCELED;
        } catch (const std::bad_alloc&) {
          error = ENOMEM;
        }
      }
    }
  }
  exchange->reply_ended(error == 0 ? WFT_STATE_SUCCESS : WFT_STATE_SYS_ERROR, error);
}

// Returns false if no time limit could be set: nobody would notice that there is no room.
bool DatagramPort::wait_for_room(DatagramPeer* peer, int send_timeout) {
  const int timeout = send_timeout >= -1 ? send_timeout : host_.params().send_timeout;
  peer->deadline_ns_ = in_ns(timeout_ns(timeout));
  waiting_.push_back(peer);
  if (closed_ || !update_deadline()) {
    waiting_.pop_back();
    return false;
  }
  if (waiting_.size() == 1) {
    watch_for_room(true);
  }
  return true;
}

void DatagramPort::watch_for_room(bool wanted) {
  // Watches only while it is wanted, because each datagram that leaves the socket is such an event.
  poller_.modify(fd_, EPOLLIN | EPOLLET | (wanted ? EPOLLOUT : 0u), this);
}

// On the poller's thread: the socket may take more now.
void DatagramPort::send_waiting() {
  for (;;) {
    ServerExchange* exchange = nullptr;
    int error = 0;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty()) return;
      DatagramPeer* const peer = waiting_.front();
      error = send(*peer, peer->vectors_.data(), static_cast<int>(peer->vectors_.size()));
      if (error == EAGAIN) return;
      exchange = peer->exchange_;
      waiting_.pop_front();
      if (waiting_.empty()) {
        watch_for_room(false);
      }
    }
    exchange->reply_ended(error == 0 ? WFT_STATE_SUCCESS : WFT_STATE_SYS_ERROR, error);
  }
}

DatagramPeer* DatagramPort::take_late(bool stopped) {
  DatagramPeer* first = nullptr;
  DatagramPeer** end = &first;
  const int64_t now = now_ns();
  std::erase_if(waiting_, [&](DatagramPeer* peer) {
    const bool is_late = stopped || peer->deadline_ns_ <= now;
    if (is_late) {
      *end = peer;
      end = &peer->next_;
      *end = nullptr;
    }
    return is_late;
  });
  if (waiting_.empty() && first) {
    watch_for_room(false);
  }
  return first;
}

size_t DatagramPort::end_late(DatagramPeer* first, int state, int error) {
  size_t count = 0;
  while (DatagramPeer* const peer = first) {
    first = peer->next_;
    peer->exchange_->reply_ended(state, error);  // the peer may be gone then
    count++;
  }
  return count;
}

bool DatagramPort::update_deadline() {
  int64_t deadline_ns = rests_until_ns_;
  for (const DatagramPeer* peer : waiting_) {
    deadline_ns = std::min(deadline_ns, peer->deadline_ns_);
  }
  return set_deadline(deadline_ns);
}

void DatagramPort::on_deadline(bool stopped, RunnableList& finished) {
  DatagramPeer* late = nullptr;
  {
    MutexLock lock(mutex_);
    late = take_late(stopped);
    if (rests_until_ns_ <= now_ns()) {
      rests_until_ns_ = kNever;
    }
    if (!stopped) {
      update_deadline();
    }
  }
  end_late(late, WFT_STATE_SYS_ERROR, stopped ? ECANCELED : ETIMEDOUT);
  if (!stopped) {
    read_requests(finished);
  }
}

void DatagramPort::close_if_done() {
  {
    MutexLock lock(mutex_);
    if (closed_ || !shutting_down() || under_way_.load(std::memory_order_relaxed) > 0) return;
    closed_ = true;
  }
  retire();
}

size_t DatagramPort::cut_short(enum WFStopAction action, const std::string& unavailable) {
  RunnableList cancels;
  size_t count = 0;
  MutexLock lock(mutex_);
  for (DatagramPeer* peer = open_; peer; peer = peer->next_) {
    count += !std::exchange(peer->counted_, true);
    if (Runnable* const cancel = SeriesScope::of(peer->series_)->cancel_later(ECANCELED)) {
      cancels.push_back(cancel);
    }
    if (peer->cut_) continue;
    if (action == WF_STOP_ANSWER && !unavailable.empty()) {
      const struct iovec answer = {const_cast<char*>(unavailable.data()), unavailable.size()};
      send(*peer, &answer, 1);
    }
    peer->cut_ = action != WF_STOP_FINISH;
  }
  lock.unlock();
  poller_.handlers().post(cancels);
  return count;
}

size_t DatagramPort::close_now() {
  const size_t count = cut_short(WF_STOP_DROP, std::string());
  DatagramPeer* unsent = nullptr;
  {
    MutexLock lock(mutex_);
    unsent = take_late(true);
  }
  return count + end_late(unsent, WFT_STATE_SYS_ERROR, ECANCELED);
}

void DatagramPort::end_with_runtime() {
  DatagramPeer* unsent = nullptr;
  {
    MutexLock lock(mutex_);
    unsent = take_late(true);
    closed_ = true;
    stream_.close();
  }
  end_late(unsent, WFT_STATE_ABORTED, 0);
  release();
}

}  // namespace workflow
