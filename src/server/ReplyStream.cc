#include "server/ReplyStream.h"

#include <cerrno>
#include <cstdio>
#include <new>
#include <utility>

#include "kernel/Runtime.h"
#include "server/ServerPeer.h"

namespace workflow {

void ReplyStream::append_framed(std::string& text, std::string_view data, Form form) {
  if (data.empty() || form.discards) {
    return;
  }
  if (!form.chunked) {
    text.append(data);
    return;
  }
  char size_line[24];
  const int length = std::snprintf(size_line, sizeof size_line, "%zx\r\n", data.size());
  text.reserve(text.size() + static_cast<size_t>(length) + data.size() + 2);
  text.append(size_line).append(data).append("\r\n");
}

int ReplyStream::write_piece(std::string_view data) {
  if (!peer_) {
    errno = error_;
    return -1;
  }
  try {
    std::string piece;
    append_framed(piece, data, form_);
    if (piece.empty() || peer_->push(piece.data(), piece.size()) >= 0) {
      return 0;
    }
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
  if (errno != ENOBUFS) {
    error_ = errno;  // part of it may have left
    peer_ = nullptr;
    errno = error_;
  }
  return -1;
}

int ReplyStream::write(std::string_view data) {
  MutexLock lock(mutex_);
  return write_piece(data);
}

int ReplyStream::set_heartbeat(int ms) {
  MutexLock lock(mutex_);
  if (!peer_ || !form_.of_events) {
    errno = peer_ ? EINVAL : error_;
    return -1;
  }
  peer_->set_heartbeat(ms);
  return 0;
}

size_t ReplyStream::unsent() const {
  MutexLock lock(mutex_);
  return peer_ ? peer_->unsent() : 0;
}

bool ReplyStream::closed() const {
  MutexLock lock(mutex_);
  return !peer_ || peer_->peer_closed();
}

bool ReplyStream::stopping() const {
  MutexLock lock(mutex_);
  return peer_ && peer_->shutting_down();
}

bool ReplyStream::advance(WFStreamTask* task) {
  for (;;) {
    if (!peer_) {
      task->state = WFT_STATE_SYS_ERROR;
      task->error = error_;
      return true;
    }
    if (peer_->unsent() > kHighWater) {
      return false;
    }
    if (task->written_ == task->data_.size()) {
      task->state = WFT_STATE_SUCCESS;
      return true;
    }
    const auto piece = std::string_view(task->data_).substr(task->written_, kPieceSize);
    if (write_piece(piece) != 0) {
      task->state = WFT_STATE_SYS_ERROR;
      task->error = errno;
      return true;
    }
    task->written_ += piece.size();
  }
}

bool ReplyStream::wait(WFStreamTask* task) {
  MutexLock lock(mutex_);
  // Behind those that wait, so that what is written stays in order.
  if (waiting_.empty() && advance(task)) {
    return false;
  }
  try {
    waiting_.push_back(task);
  } catch (const std::bad_alloc&) {
    task->state = WFT_STATE_SYS_ERROR;
    task->error = ENOMEM;
    return false;
  }
  return true;
}

void ReplyStream::room() {
  RunnableList ended;
  {
    MutexLock lock(mutex_);
    while (!waiting_.empty() && advance(waiting_.front())) {
      ended.push_back(waiting_.front());
      waiting_.pop_front();
    }
  }
  Runtime::current().handlers().post(ended);
}

void ReplyStream::beat() {
  MutexLock lock(mutex_);
  write_piece(":\n\n");
}

int ReplyStream::over(int error) {
  RunnableList ended;
  int before = 0;
  {
    MutexLock lock(mutex_);
    if (peer_) {
      peer_ = nullptr;
      error_ = error;
    } else {
      before = error_;
    }
    for (WFStreamTask* task : waiting_) {
      advance(task);
      ended.push_back(task);
    }
    waiting_.clear();
  }
  Runtime::current().handlers().post(ended);
  return before;
}

}  // namespace workflow

void WFStreamTask::dispatch() {
  // What waits for room has its own time limit, and the client's end.
  if (const int reason = interrupted()) {
    state = WFT_STATE_SYS_ERROR;
    error = reason;
    subtask_done();
    return;
  }
  if (!stream_) {
    state = WFT_STATE_SYS_ERROR;
    error = ENOTCONN;
  } else if (stream_->wait(this)) {
    return;
  }
  subtask_done();
}
