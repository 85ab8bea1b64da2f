#include "server/ReplyStream.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <new>

#include "kernel/Runtime.h"
#include "server/ServerPeer.h"

namespace workflow {

void ReplyStream::append_framed(std::string& text, std::string_view data, Form form) {
  if (data.empty() || form.discards) return;
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
    if (piece.empty() || peer_->push(piece.data(), piece.size()) >= 0) return 0;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
  if (errno != ENOBUFS) {
    // A part of the piece may have been sent.
    error_ = error_of_loss(errno);
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
    if (peer_->unsent() > kHighWater) return false;
    if (task->written_ == task->data_.size()) {
      task->state = WFT_STATE_SUCCESS;
      return true;
    }
    const auto piece = std::string_view(task->data_).substr(task->written_, kPieceSize);
    if (write_piece(piece) != 0) {
      // The stream ends even if nothing of the piece was taken for lack of memory, because bytes of
      // the reply would be missing.
      error_ = errno;
      peer_ = nullptr;
      continue;
    }
    task->written_ += piece.size();
  }
}

bool ReplyStream::wait(WFStreamTask* task) {
  RunnableList ended;
  const bool waits = begin_to_wait(task, ended);
  end(ended);
  return waits;
}

bool ReplyStream::begin_to_wait(WFStreamTask* task, RunnableList& ended) {
  MutexLock lock(mutex_);
  if (const int reason = task->cancel_reason()) {
    cut(task, reason, ended);
    return false;
  }
  // If other tasks wait, this one waits behind them, so that the bytes stay in order.
  if (waiting_.empty() && advance(task)) return false;
  try {
    waiting_.push_back(task);
  } catch (const std::bad_alloc&) {
    cut(task, ENOMEM, ended);
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
  end(ended);
}

void ReplyStream::cancel(WFStreamTask* task, int error) {
  RunnableList ended;
  {
    MutexLock lock(mutex_);
    const auto place = std::find(waiting_.begin(), waiting_.end(), task);
    if (place != waiting_.end()) {
      waiting_.erase(place);
      ended.push_back(task);
      cut(task, error, ended);
    }
  }
  end(ended);
}

void ReplyStream::refuse(WFStreamTask* task, int error) {
  RunnableList ended;
  {
    MutexLock lock(mutex_);
    cut(task, error, ended);
  }
  end(ended);
}

void ReplyStream::cut(WFStreamTask* task, int asked, RunnableList& ended) {
  const int error = error_of_loss(asked);
  const bool is_written = task->written_ == task->data_.size();
  if (peer_ && is_written && !task->data_.empty()) {
    task->state = WFT_STATE_SUCCESS;
    return;
  }
  task->state = WFT_STATE_SYS_ERROR;
  task->error = error;
  if (peer_ && !is_written) {
    peer_ = nullptr;
    error_ = error;
    end_waiting(ended);
  }
}

void ReplyStream::end_waiting(RunnableList& ended) {
  for (WFStreamTask* const task : waiting_) {
    advance(task);
    ended.push_back(task);
  }
  waiting_.clear();
}

void ReplyStream::end(RunnableList& ended) {
  RunnableList left;
  while (Runnable* const item = ended.pop_front()) {
    if (static_cast<WFStreamTask*>(item)->leave_scope()) {
      left.push_back(item);
    }
  }
  Runtime::current().handlers().post(left);
}

void ReplyStream::send_heartbeat() {
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
    end_waiting(ended);
  }
  end(ended);
  return before;
}

}  // namespace workflow

void WFStreamTask::dispatch() {
  if (!stream_) {
    state = WFT_STATE_SYS_ERROR;
    error = ENOTCONN;
  } else if (const int reason = enter_scope()) {
    stream_->refuse(this, reason);
  } else if (stream_->wait(this) || !leave_scope()) {
    return;
  }
  subtask_done();
}

void WFStreamTask::on_cancel(int reason) {
  stream_->cancel(this, reason);
}
