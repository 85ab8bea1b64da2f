#include <sys/uio.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "server/LeaveHook.h"
#include "server/ServerConnection.h"
#include "workflow/WFServer.h"

// The sending half of ServerConnection.

namespace workflow {

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
  Watching watching;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kProcessing) {
      error = lost_error_;
    } else {
      watching = stop_watching();
      if (error == 0) {
        take_reply_settings(reply);
        began_ns = now_ns();
        idle_since_ns_.store(began_ns, std::memory_order_relaxed);
        error = write_out(vectors, count);
        if (error == EAGAIN) {
          error = leave_to_poller();
        }
        if (error == EAGAIN) {
          idle_since_ns_.store(kNever, std::memory_order_relaxed);
          return;
        }
      }
      if (error == 0) {
        ask = after_reply(began_ns);
      } else {
        state_ = State::kClosing;
        ask = true;
      }
    }
  }
  if (ask) {
    ask_poller();
  }
  exchange->reply_ended(error == 0 ? WFT_STATE_SUCCESS : WFT_STATE_SYS_ERROR, error);
}

int ServerConnection::leave_to_poller() {
  if (set_deadline(in_ns(send_ns_))) {
    state_ = State::kWriting;
    return EAGAIN;
  }
  const int error = resume_without_bound();
  return error == EAGAIN ? ECANCELED : error;
}

void ServerConnection::take_reply_settings(const ServerExchange::Reply& reply) {
  keep_alive_ = reply.keep_alive;
  idle_ns_ = timeout_ns(reply.keep_alive_timeout);
  send_ns_ =
      timeout_ns(reply.send_timeout >= -1 ? reply.send_timeout : host_.params().send_timeout);
}

bool ServerConnection::after_reply(int64_t began_ns) {
  const bool dropped = !std::exchange(exchange_, nullptr) && pushed_;
  if (!keep_alive_ || shutting_down()) {
    start_lingering(!input_.empty(), !dropped);
    return readable_ || state_ == State::kClosing || stopping_.load(std::memory_order_acquire);
  }
  state_ = State::kReading;
  wait_for_request(began_ns, idle_ns_);
  return readable_ || !input_.empty() || state_ == State::kClosing;
}

void ServerConnection::start_lingering(bool is_sending, bool whole) {
  idle_since_ns_.store(kNever, std::memory_order_relaxed);
  stream_.shut_down_write(whole);
  lingered_ = 0;
  is_sending_ = is_sending;
  const int64_t linger_ns = timeout_ns(host_.params().linger_timeout);
  state_ = set_deadline(in_ns(linger_ns)) ? State::kLingering : State::kClosing;
}

// On the poller's thread: the socket may take more now.
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
    if (state_ != State::kWriting) {
      return;
    }
    const size_t bytes_before = unsent_bytes();
    const int64_t began_ns = now_ns();
    error = to_the_end ? resume_without_bound() : resume_writing();
    if (error == EAGAIN) {
      // When the server stops, progress does not extend the time limit any more.
      if (unsent_bytes() < bytes_before && !stopping_.load(std::memory_order_acquire)) {
        set_deadline(in_ns(send_ns_));
      }
      return;
    }
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

// In kWriting: gives up the rest of the reply.
void ServerConnection::fail_reply(int error) {
  ServerExchange* exchange = nullptr;
  {
    MutexLock lock(mutex_);
    if (state_ != State::kWriting) {
      return;
    }
    exchange = std::exchange(exchange_, nullptr);
    forget_unsent();
    state_ = State::kClosing;
  }
  if (exchange) {
    exchange->reply_ended(WFT_STATE_SYS_ERROR, error);
  }
}

int ServerConnection::write_now(const void* buffer, size_t size) {
  MutexLock lock(mutex_);
  struct iovec vector = {const_cast<void*>(buffer), size};
  return static_cast<int>(stream_.write(&vector, 1));
}

}  // namespace workflow
