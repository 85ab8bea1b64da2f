#include "kernel/Channel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "kernel/Socket.h"
#include "kernel/ThreadContext.h"

namespace workflow {

namespace {

// How many blocks of copied bytes are written at once. A round may write little more than two full
// ones.
constexpr int kCopiedVectors = 4;

}  // namespace

void Channel::release() {
  if (!references_.drop()) return;
  if (ThreadContext::current().poller) {
    // User code that runs in end() may block, which it must not do on a poller's thread.
    RunnableList last;
    last.push_back(this);
    poller_.handlers().post(last);
  } else {
    end();
  }
}

int Channel::watch() {
  return poller_.add(stream_.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, this);
}

bool Channel::ask_poller() {
  if (asked_.exchange(true, std::memory_order_acq_rel)) return true;
  retain();
  if (poller_.post(this)) return true;
  asked_.store(false, std::memory_order_release);
  release();
  return false;
}

bool Channel::request_write_turn() {
  spent_ = true;
  return ask_poller();
}

void Channel::run_queued() {
  if (references_.none()) {
    end();
    return;
  }
  // A store would do on x86 only: whoever has found it set relies on this call to see what it has
  // changed before, and only an operation that also reads gets to see that.
  asked_.exchange(false, std::memory_order_acq_rel);
  bool spent = false;
  {
    MutexLock lock(mutex_);
    spent = std::exchange(spent_, false);
  }
  round_bytes_.store(kRoundBytes, std::memory_order_relaxed);
  RunnableList finished;
  on_ready(spent ? uint32_t{EPOLLOUT} : 0, finished);
  poller_.handlers().post(finished);
  release();
}

void Channel::on_events(uint32_t events, RunnableList& finished) {
  round_bytes_.store(kRoundBytes, std::memory_order_relaxed);
  if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
    peer_closed_.store(true, std::memory_order_release);
  }
  on_ready(events, finished);
}

bool Channel::set_deadline(int64_t deadline_ns) {
  deadline_ns_ = deadline_ns;
  if (deadline_ns >= queued_ns_) return true;
  const bool queued = poller_.timers().schedule(this, deadline_ns);
  queued_ns_ = queued ? deadline_ns : kNever;
  return queued;
}

void Channel::left_queue(bool stopped, RunnableList& finished) {
  {
    MutexLock lock(mutex_);
    queued_ns_ = kNever;
    if (deadline_ns_ == kNever) return;  // the deadline was taken back
    if (!stopped && !deadline_passed()) {
      if (set_deadline(deadline_ns_)) return;
      deadline_ns_ = 0;  // nothing would report it later
      stopped = poller_.timers().refuses();
    }
  }
  on_deadline(stopped, finished);
}

void Channel::retire() {
  int fd = -1;
  {
    MutexLock lock(mutex_);
    fd = stream_.fd();
  }
  poller_.timers().unschedule(this);
  poller_.retire(fd, this);
}

void Channel::on_retired() {
  on_closing();
  {
    // Freed without the lock, because freeing a TLS stream may run user code that is attached to
    // it.
    Stream closing{UniqueFd()};
    MutexLock lock(mutex_);
    std::swap(closing, stream_);
  }
  release();
}

ssize_t Channel::write_some(struct iovec* vectors, int count) {
  if (!is_bounded_) return stream_.write(vectors, count);
  size_t most = round_bytes_.load(std::memory_order_relaxed);
  if (most == 0) {
    if (request_write_turn()) {
      errno = EAGAIN;
      return -1;
    }
    most = kRoundBytes;
  }
  size_t size = 0;
  int fitting = 0;
  while (fitting < count && vectors[fitting].iov_len <= most - size) {
    size += vectors[fitting++].iov_len;
  }
  struct iovec part = {vectors[0].iov_base, most};
  const ssize_t n = fitting > 0 ? stream_.write(vectors, fitting) : stream_.write(&part, 1);
  if (n > 0) {
    round_bytes_.store(most - std::min(most, static_cast<size_t>(n)), std::memory_order_relaxed);
  }
  return n;
}

int Channel::write_copied() {
  while (!copied_.empty()) {
    struct iovec vectors[kCopiedVectors];
    const ssize_t n = write_some(vectors, copied_.vectors(vectors, kCopiedVectors));
    if (n < 0) return errno;
    copied_.consume(static_cast<size_t>(n));
  }
  return 0;
}

int Channel::write_out(struct iovec* vectors, int count) {
  int error = write_copied();
  while (error == 0 && count > 0) {
    const ssize_t n = write_some(vectors, count);
    if (n < 0) {
      error = errno;
    } else {
      const int sent = consume_vectors(vectors, count, static_cast<size_t>(n));
      vectors += sent;
      count -= sent;
    }
  }
  if (error == 0 && !behind_.empty()) {
    copied_ = std::exchange(behind_, {});
    error = write_copied();
  }
  if (error == 0) {
    error = stream_.flush();
  }
  if (error == EAGAIN) {
    try {
      unsent_.assign(vectors, vectors + count);
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
  }
  return error;
}

int Channel::resume_writing() {
  std::vector<struct iovec> vectors = std::exchange(unsent_, {});
  return write_out(vectors.data(), static_cast<int>(vectors.size()));
}

int Channel::resume_without_bound() {
  const bool was_bounded = std::exchange(is_bounded_, false);
  const int error = resume_writing();
  is_bounded_ = was_bounded;
  return error;
}

int Channel::write_copy(const void* data, size_t size) {
  if (!copied_.append(data, size)) return ENOMEM;
  const int error = write_copied();
  return error == 0 ? stream_.flush() : error;
}

int Channel::append_copy(const void* data, size_t size) {
  if (unsent_.empty()) return write_copy(data, size);
  return behind_.append(data, size) ? EAGAIN : ENOMEM;
}

void Channel::forget_unsent() {
  unsent_.clear();
  behind_.clear();
}

size_t Channel::unsent_bytes() const {
  size_t size = copied_bytes();
  for (const struct iovec& vector : unsent_) {
    size += vector.iov_len;
  }
  return size;
}

int Channel::peer_addr(struct sockaddr* address, socklen_t* length) const {
  MutexLock lock(mutex_);
  if (!stream_.is_open()) {
    errno = ENOTCONN;
    return -1;
  }
  struct sockaddr_storage peer;
  socklen_t peer_length = sizeof peer;
  if (::getpeername(stream_.fd(), reinterpret_cast<struct sockaddr*>(&peer), &peer_length) < 0) {
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
