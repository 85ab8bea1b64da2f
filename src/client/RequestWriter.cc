#include "client/RequestWriter.h"

#include <cerrno>

namespace workflow {

int RequestWriter::begin_request(struct iovec* vectors, int count) {
  asked_to_send_ = false;
  flushing_ = false;
  const int error = write_out(vectors, count);
  request_ = error == 0 ? Request::kSent : Request::kSending;
  return error;
}

int RequestWriter::resume_request() {
  const int error = resume_writing();
  if (error == EAGAIN) return error;
  flushing_ = false;
  if (is_sending()) {
    request_ = error == 0 ? Request::kSent : Request::kCut;
  }
  if (error != 0) {
    forget_unsent();
  }
  return error;
}

bool RequestWriter::end_request() {
  forget_unsent();
  if (is_sending()) {
    request_ = Request::kCut;
  }
  const bool has_sent = request_ == Request::kSent;
  flushing_ = flushing_ && has_sent;  // nothing can follow a cut request
  return has_sent;
}

void RequestWriter::ask_to_send() {
  {
    MutexLock lock(mutex_);
    asked_to_send_ = true;
  }
  // If this is true, the poller's thread takes the lock later than this thread did.
  if (!parsing_.load(std::memory_order_relaxed)) {
    ask_poller();
  }
}

int RequestWriter::send_more(const std::string& bytes) {
  const int error = send_behind(bytes.data(), bytes.size());
  asked_to_send_ = error == 0;
  return error;
}

int RequestWriter::write_now(const void* buffer, size_t size) {
  MutexLock lock(mutex_);
  int error = ENOBUFS;
  if (size <= kMaxFeedback && copied_bytes() <= kMaxFeedback - size) {
    error = send_behind(buffer, size);
  }
  if (error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(size);
}

int RequestWriter::send_behind(const void* bytes, size_t size) {
  const int error = append_copy(bytes, size);
  if (error != 0 && error != EAGAIN) return error;
  flushing_ = error == EAGAIN;
  return 0;
}

void RequestWriter::limit_flushing(int timeout_ms) {
  flushing_ = flushing_ && set_deadline(in_ns(timeout_ns(timeout_ms)));
}

}  // namespace workflow
