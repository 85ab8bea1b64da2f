#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "client/ClientConnection.h"
#include "client/ClientEndpoint.h"
#include "client/ClientSession.h"
#include "client/SessionLocation.h"
#include "kernel/Socket.h"
#include "workflow/WFTaskState.h"

// How a connection of a client gets a request and sends it.

namespace workflow {

int ClientConnection::arrived(const ClientSession* session) {
  SessionLocation* const location = session->location();
  return location ? location->on_connection(this) : 0;
}

ClientConnection::Begin ClientConnection::begin(ClientSession* session, ClientFailure* failure) {
  return send_request(State::kIdle, session, failure);
}

int ClientConnection::encode(ClientExchange* exchange, struct iovec* vectors, int* count,
                             protocol::ProtocolMessage** response) {
  try {
    errno = 0;
    protocol::ProtocolMessage* const request = exchange->next_request();
    *count = request ? request->encode(vectors, kMaxVectors) : -1;
    if (*count < 0) {
      const int error = errno;
      return error == 0 || error == EAGAIN ? EBADMSG : error;
    }
    *response = exchange->next_response();
    return *response ? 0 : EBADMSG;
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

ClientConnection::Begin ClientConnection::send_request(State expected, ClientSession* session,
                                                       ClientFailure* failure) {
  ClientExchange* const exchange = session->exchange();
  long long sequence = 0;
  {
    MutexLock lock(mutex_);
    if (state_ != expected) {
      return Begin::kNotIdle;
    }
    sequence = exchanges_;
  }
  session->use(this, sequence);
  struct iovec vectors[kMaxVectors];
  int count = 0;
  protocol::ProtocolMessage* response = nullptr;
  int error = encode(exchange, vectors, &count, &response);
  if (error == 0 && count == 0 && is_datagram(endpoint_->transport())) {
    vectors[0] = {nullptr, 0};  // an empty datagram is sent, too
    count = 1;
  }
  MutexLock lock(mutex_);
  if (state_ != expected) {
    return Begin::kNotIdle;
  }
  if (error != 0) {
    *failure = {.state = WFT_STATE_SYS_ERROR, .error = error, .hopeless = true};
  } else if (expected == State::kIdle && !is_still_idle()) {
    state_ = State::kClosing;
    flushing_ = false;
    lock.unlock();
    ask_poller();
    return Begin::kNotIdle;
  } else if (const int reason = arrived(session)) {
    *failure = {.state = WFT_STATE_SYS_ERROR, .error = reason};
  } else {
    state_ = State::kExchanging;
    session_ = session;
    exchanges_++;
    times_ = exchange->times();
    received_ = false;
    awaits_first_ = true;
    restarted_ = false;
    response_ = response;
    response->set_channel(this);
    error = write_out(vectors, count);
    sending_ = error == EAGAIN;
    flushing_ = false;
    sent_ns_ = receive_ns_ = now_ns();
    if (sending_ ? set_send_deadline() : error == 0 && set_receive_deadline()) {
      return Begin::kBegun;
    }
    if (error != 0 && !sending_) {
      *failure = failure_of(WFT_STATE_SYS_ERROR, error, TOR_NOT_TIMEOUT);
      failure->hopeless = error == EMSGSIZE;  // the request is too large for a datagram
    } else if (endpoint_->runtime_stops()) {
      *failure = {.state = WFT_STATE_ABORTED};
    } else {
      *failure = failure_of(WFT_STATE_SYS_ERROR, ENOMEM, TOR_NOT_TIMEOUT);
    }
    response->set_channel(nullptr);
  }
  forget_unsent();
  session_ = nullptr;
  state_ = State::kClosing;
  lock.unlock();
  endpoint_->closes(this);
  ask_poller();
  return Begin::kFailed;
}

bool ClientConnection::is_still_idle() {
  if (readable_ || peer_closed()) {
    return false;
  }
  char byte;
  bool drained = true;
  return stream_.read(&byte, 1, &drained) < 0 && errno == EAGAIN;
}

void ClientConnection::limit_flushing() {
  const int limit = times_.send >= 0 ? times_.send : endpoint_->params().response_timeout;
  flushing_ = flushing_ && set_deadline(in_ns(timeout_ns(limit)));
}

bool ClientConnection::set_send_deadline() {
  return set_deadline(saturating_add(sent_ns_, timeout_ns(times_.send)));
}

bool ClientConnection::set_receive_deadline() {
  int next_bytes = times_.between_reads;
  if (awaits_first_) {
    const bool renewed = restarted_ && times_.after_renew >= -1;
    next_bytes = renewed ? times_.after_renew : times_.first_byte;
  }
  if (next_bytes < -1) {
    next_bytes = endpoint_->params().response_timeout;
  }
  int64_t deadline_ns =
      std::min(in_ns(timeout_ns(next_bytes)), saturating_add(sent_ns_, timeout_ns(times_.whole)));
  if (!awaits_first_ || !times_.receive_from_first_byte) {
    deadline_ns = std::min(deadline_ns, saturating_add(receive_ns_, timeout_ns(times_.receive)));
  }
  return set_deadline(deadline_ns);
}

void ClientConnection::note_bytes() {
  if (std::exchange(awaits_first_, false) && times_.receive_from_first_byte) {
    receive_ns_ = now_ns();
  }
}

bool ClientConnection::continue_sending(RunnableList& finished) {
  int error = 0;
  {
    MutexLock lock(mutex_);
    error = resume_writing();
    if (error == EAGAIN) {
      return readable_;
    }
    flushing_ = false;
    if (!sending_) {
      return true;  // the next read will find an error, too
    }
    sending_ = false;
    sent_ns_ = receive_ns_ = now_ns();
    if (error == 0) {
      if (!paused_) {
        set_receive_deadline();
      }
      return readable_;
    }
    // The peer may have answered before it closed its side. And while a part is being delivered the
    // exchange cannot end; a read after the delivery will find the error.
    if (readable_ || peer_closed() || paused_) {
      readable_ = true;
      forget_unsent();
      if (!paused_) {
        set_receive_deadline();
      }
      return true;
    }
  }
  fail(WFT_STATE_SYS_ERROR, error, TOR_NOT_TIMEOUT, finished);
  return true;
}

}  // namespace workflow
