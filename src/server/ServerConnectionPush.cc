#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "kernel/Runtime.h"
#include "server/LeaveHook.h"
#include "server/ReplyStream.h"
#include "server/ServerConnection.h"
#include "workflow/WFServer.h"

// What a connection sends before the end of its reply: pushed bytes and streamed replies.

namespace workflow {

void ServerConnection::Watching::over(int error) const {
  if (hook && hook->begin()) {
    Runtime::current().handlers().post(hook.get());
  }
  if (stream) {
    stream->over(error);
  }
}

int ServerConnection::push(const void* buffer, size_t size) {
  MutexLock lock(mutex_);
  if (state_ != State::kProcessing) {
    errno = ENOTCONN;
    return -1;
  }
  const bool was_full = copied_bytes() > ReplyStream::kLowWater;
  int error = 0;
  if (size > room_for_push()) {
    // The socket may have room for bytes that only wait for the poller's next turn.
    const size_t bytes_before = unsent_bytes();
    error = resume_without_bound();
    if (error == 0 || (error == EAGAIN && unsent_bytes() < bytes_before)) {
      pushing_ = false;  // the time begins anew
      error = limit_push(error) ? error : ECANCELED;
    }
  }
  if (error == 0 || error == EAGAIN) {
    error = size > room_for_push() ? ENOBUFS : push_now(buffer, size);
  }
  if (watching_.stream && was_full && copied_bytes() <= ReplyStream::kLowWater) {
    request_write_turn();  // tasks may wait for room, and no event of the socket will come
  }
  if (error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(size);
}

int ServerConnection::push_now(const void* buffer, size_t size) {
  pushed_ = true;
  const size_t bytes_before = unsent_bytes();
  const int error = write_copy(buffer, size);
  if (error != 0 && error != EAGAIN) {
    return error;
  }
  if (unsent_bytes() < bytes_before + size) {
    pushing_ = false;  // some has left: the time begins anew
  }
  if (limit_push(error)) {
    return 0;
  }
  return resume_without_bound() == 0 ? 0 : ECANCELED;
}

// Returns false if bytes are left and no limit could be set: nobody would notice a client that does
// not read.
bool ServerConnection::limit_push(int error) {
  if (error == 0) {
    pushing_ = false;
    set_deadline(in_ns(heartbeat_ns_));
    return true;
  }
  if (std::exchange(pushing_, true)) {
    return true;
  }
  // Sets a deadline even if there is no limit, so that the push ends when the poller stops.
  pushing_ = set_deadline(std::min(in_ns(send_ns_), kNever - 1));
  return pushing_;
}

void ServerConnection::continue_pushing(bool to_the_end) {
  Watching watching;
  int error = 0;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing || (!pushing_ && !watching_.stream)) {
      return;
    }
    const size_t bytes_before = unsent_bytes();
    error = to_the_end ? resume_without_bound() : resume_writing();
    if (pushing_ && (error == 0 || (error == EAGAIN && unsent_bytes() < bytes_before))) {
      pushing_ = false;
      limit_push(error);
    }
    if (error == 0 || error == EAGAIN) {
      if (copied_bytes() <= ReplyStream::kLowWater) {
        watching.stream = watching_.stream;
      }
    } else {
      // An error shows again with the next read or write; the stream need not wait for that.
      watching.stream = watching_.stream;
    }
  }
  if (watching.stream && (error == 0 || error == EAGAIN)) {
    watching.stream->room();
  } else {
    watching.over(Channel::peer_closed() ? ECONNRESET : error);
  }
}

// On the poller's thread, in kProcessing: for too long no pushed byte could be sent, or nothing was
// pushed during a heartbeat interval.
void ServerConnection::pushing_timed_out(bool stopped) {
  Watching watching;
  RunnableList cancels;
  const int error = stopped ? ECANCELED : ETIMEDOUT;
  bool lost = false;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing || (!stopped && !deadline_passed())) {
      return;
    }
    lost = pushing_;
    if (lost) {
      if (watching_.stream) {
        watching_.stream->lose(error);
      }
      cancel_scope(on_leaving_, cancels);
      watching = detach(error);
      is_lost_.store(true, std::memory_order_release);
      state_ = State::kClosing;
    } else {
      if (heartbeat_ns_ != kNever) {
        watching.stream = watching_.stream;
      }
      set_deadline(in_ns(heartbeat_ns_));
    }
  }
  if (lost) {
    watching.over(error);
    poller_.handlers().post(cancels);
  } else if (watching.stream && !stopped) {
    watching.stream->send_heartbeat();
  }
}

int ServerConnection::begin_stream(std::shared_ptr<ReplyStream> stream, const std::string& head,
                                   int send_timeout) {
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      errno = lost_error_;
      return -1;
    }
    send_ns_ = timeout_ns(send_timeout >= -1 ? send_timeout : host_.params().send_timeout);
    if (const int error = push_now(head.data(), head.size())) {
      errno = error;
      return -1;
    }
    watching_.stream = std::move(stream);
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
  if (state_ != State::kProcessing) {
    return;
  }
  heartbeat_ns_ = ms > 0 ? timeout_ns(ms) : kNever;
  if (!pushing_) {
    set_deadline(in_ns(heartbeat_ns_));
  }
}

}  // namespace workflow
