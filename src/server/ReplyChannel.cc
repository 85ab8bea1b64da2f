#include "server/ReplyChannel.h"

#include <cerrno>

namespace workflow {

void ReplyChannel::begin_pushing(int64_t send_ns) {
  send_ns_ = send_ns;
  pushed_ = false;
  set_deadline(kNever);
}

void ReplyChannel::end_pushing() {
  pushing_ = false;
  heartbeat_ns_ = kNever;
}

int ReplyChannel::push_bytes(const void* buffer, size_t size) {
  if (size > room()) {
    // The socket may have room for bytes that only wait for the poller's next turn.
    const size_t bytes_before = unsent_bytes();
    const int error = limit_push(resume_without_bound(), bytes_before);
    if (error != 0 && error != EAGAIN) {
      return error;
    }
    if (size > room()) {
      return ENOBUFS;
    }
  }
  return push_head(buffer, size);
}

int ReplyChannel::push_head(const void* buffer, size_t size) {
  pushed_ = true;
  const size_t bytes_before = unsent_bytes() + size;
  const int error = limit_push(write_copy(buffer, size), bytes_before);
  if (error == ECANCELED) {
    return resume_without_bound() == 0 ? 0 : ECANCELED;
  }
  return error == EAGAIN ? 0 : error;
}

int ReplyChannel::resume_pushing(bool without_bound) {
  const size_t bytes_before = unsent_bytes();
  const int error = without_bound ? resume_without_bound() : resume_writing();
  if (pushing_) {
    limit_push(error, bytes_before);
  }
  return error;
}

int ReplyChannel::limit_push(int error, size_t bytes_before) {
  if (error == 0) {
    pushing_ = false;
    await_heartbeat();
  } else if (error == EAGAIN && (!pushing_ || unsent_bytes() < bytes_before)) {
    // Sets a deadline even if there is no limit, so that the push ends when the poller stops.
    pushing_ = set_deadline(std::min(in_ns(send_ns_), kNever - 1));
    return pushing_ ? EAGAIN : ECANCELED;
  }
  return error;
}

void ReplyChannel::set_heartbeat_interval(int64_t interval_ns) {
  heartbeat_ns_ = interval_ns;
  if (!pushing_) {
    await_heartbeat();
  }
}

int ReplyChannel::leave_to_poller() {
  if (set_deadline(in_ns(send_ns_))) {
    return EAGAIN;
  }
  const int error = resume_without_bound();
  return error == EAGAIN ? ECANCELED : error;
}

int ReplyChannel::resume_reply(bool without_bound, bool renew) {
  const size_t bytes_before = unsent_bytes();
  const int error = without_bound ? resume_without_bound() : resume_writing();
  if (error == EAGAIN && renew && unsent_bytes() < bytes_before) {
    set_deadline(in_ns(send_ns_));
  }
  return error;
}

}  // namespace workflow
