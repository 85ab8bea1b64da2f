#include "server/ReplyChannel.h"

#include <cerrno>
#include <utility>

#include "server/ReplyStream.h"

namespace workflow {

int ReplyChannel::write_now(const void* buffer, size_t size) {
  MutexLock lock(mutex_);
  // Behind what an earlier reply has left. What the socket does not take is sent when it has room.
  const int error = size <= room() ? write_copy(buffer, size) : ENOBUFS;
  if (error != 0 && error != EAGAIN) {
    errno = error;
    return -1;
  }
  return static_cast<int>(size);
}

void ReplyChannel::begin_pushing(int send_timeout_ms) {
  is_open_ = true;
  set_send_limit(send_timeout_ms);
  pushed_ = false;
  set_deadline(kNever);
}

std::shared_ptr<ReplyStream> ReplyChannel::end_pushing() {
  is_open_ = false;
  pushing_ = false;
  heartbeat_ms_ = -1;
  return std::exchange(reply_stream_, nullptr);
}

int ReplyChannel::push(const void* buffer, size_t size) {
  MutexLock lock(mutex_);
  int error = ENOTCONN;
  if (is_open_) {
    const bool was_full = copied_bytes() > ReplyStream::kLowWater;
    error = push_bytes(buffer, size);
    if (reply_stream_ && was_full && copied_bytes() <= ReplyStream::kLowWater) {
      request_write_turn();  // tasks may wait for room, and no event of the socket will come
    }
  }
  if (error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(size);
}

int ReplyChannel::push_bytes(const void* buffer, size_t size) {
  if (size > room()) {
    // The socket may have room for bytes that only wait for the poller's next turn.
    const size_t bytes_before = unsent_bytes();
    const int error = limit_push(resume_without_bound(), bytes_before);
    if (error != 0 && error != EAGAIN) return error;
    if (size > room()) return ENOBUFS;
  }
  return push_now(buffer, size);
}

int ReplyChannel::push_now(const void* buffer, size_t size) {
  pushed_ = true;
  const size_t bytes_before = unsent_bytes() + size;
  const int error = limit_push(write_copy(buffer, size), bytes_before);
  if (error == ECANCELED) return resume_without_bound() == 0 ? 0 : ECANCELED;
  return error == EAGAIN ? 0 : error;
}

int ReplyChannel::push_head(std::shared_ptr<ReplyStream> stream, const std::string& head) {
  const int error = push_now(head.data(), head.size());
  if (error == 0) {
    reply_stream_ = std::move(stream);
  }
  return error;
}

void ReplyChannel::continue_pushing(bool to_the_end) {
  std::shared_ptr<ReplyStream> stream;
  int error = 0;
  {
    MutexLock lock(mutex_);
    if (!pushing_ && !reply_stream_) return;
    const size_t bytes_before = unsent_bytes();
    error = to_the_end ? resume_without_bound() : resume_writing();
    if (pushing_) {
      limit_push(error, bytes_before);
    }
    if (error == EAGAIN) {
      error = 0;
    }
    // An error shows again with the next read or write; the stream need not wait for that.
    if (error != 0 || copied_bytes() <= ReplyStream::kLowWater) {
      stream = reply_stream_;
    }
  }
  if (stream && error == 0) {
    stream->room();
  } else if (stream) {
    stream->over(Channel::peer_closed() ? ECONNRESET : error);
  }
}

std::shared_ptr<ReplyStream> ReplyChannel::lose_stream(int error) {
  if (reply_stream_) {
    reply_stream_->lose(error);
  }
  return reply_stream_;
}

size_t ReplyChannel::unsent() const {
  MutexLock lock(mutex_);
  return copied_bytes();
}

int ReplyChannel::limit_push(int error, size_t bytes_before) {
  if (error == 0) {
    pushing_ = false;
    await_heartbeat();
  } else if (error == EAGAIN && (!pushing_ || unsent_bytes() < bytes_before)) {
    pushing_ = limit_write();
    return pushing_ ? EAGAIN : ECANCELED;
  }
  return error;
}

bool ReplyChannel::limit_write() {
  return set_deadline(std::min(in_ns(timeout_ns(send_ms_)), kNever - 1));
}

void ReplyChannel::set_heartbeat(int ms) {
  MutexLock lock(mutex_);
  if (is_open_) {
    heartbeat_ms_ = ms > 0 ? ms : -1;
    if (!pushing_) {
      await_heartbeat();
    }
  }
}

std::shared_ptr<ReplyStream> ReplyChannel::await_heartbeat() {
  set_deadline(in_ns(timeout_ns(heartbeat_ms_)));
  return heartbeat_ms_ > 0 ? reply_stream_ : nullptr;
}

int ReplyChannel::leave_to_poller(int error) {
  if (error != EAGAIN || limit_write()) return error;
  error = resume_without_bound();
  return error == EAGAIN ? ECANCELED : error;
}

int ReplyChannel::resume_reply(bool to_the_end, bool renew) {
  const size_t bytes_before = unsent_bytes();
  const int error = to_the_end ? resume_without_bound() : resume_writing();
  if (error == EAGAIN && renew && unsent_bytes() < bytes_before) {
    limit_write();
  }
  return error;
}

}  // namespace workflow
