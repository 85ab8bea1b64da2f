#include <cerrno>
#include <memory>
#include <new>
#include <string>

#include "client/ClientConnection.h"
#include "client/ClientEndpoint.h"
#include "client/ClientSession.h"
#include "kernel/Socket.h"
#include "workflow/WFTaskError.h"
#include "workflow/WFTaskState.h"

// How a connection of a client begins: it connects, and then perhaps asks a proxy for a tunnel, and
// perhaps begins TLS.

namespace workflow {

bool ClientConnection::finish_connecting(RunnableList& finished) {
  int error = 0;
  {
    MutexLock lock(mutex_);
    error = socket_error(stream_.fd());
    if (error == 0) {
      set_no_delay(stream_.fd(), endpoint_->transport());
    }
  }
  if (error == EINPROGRESS) {
    return false;
  }
  if (error != 0) {
    fail(WFT_STATE_SYS_ERROR, error, TOR_NOT_TIMEOUT, finished);
    return true;
  }
  return endpoint_->tunnel_request().empty() ? connected(finished) : send_proxy_request(finished);
}

// The connection reaches the peer itself now, not only a proxy.
bool ClientConnection::connected(RunnableList& finished) {
  ClientSession* session = nullptr;
  State state = State::kClosed;
  bool out_of_memory = false;
  {
    MutexLock lock(mutex_);
    session = session_;
    state = state_;
    if (endpoint_->is_tls()) {
      out_of_memory = !endpoint_->begin_tls(stream_);
      state_ = State::kHandshaking;
      readable_ = true;
      set_deadline(in_ns(timeout_ns(endpoint_->params().ssl_connect_timeout)));
    }
  }
  if (out_of_memory) {
    fail(WFT_STATE_SYS_ERROR, ENOMEM, TOR_NOT_TIMEOUT, finished);
  } else if (!endpoint_->is_tls()) {
    ClientFailure failure = {};
    if (send_request(state, session, &failure) == Begin::kFailed) {
      session->failed(failure, finished);
    }
  }
  return true;
}

bool ClientConnection::send_proxy_request(RunnableList& finished) {
  const std::string& request = endpoint_->tunnel_request();
  int error = 0;
  {
    MutexLock lock(mutex_);
    // The time limit for connecting goes on, because it is not known yet whether the peer can be
    // reached.
    state_ = State::kTunneling;
    error = write_copy(request.data(), request.size());
  }
  // A new socket always takes these few bytes at once.
  if (error != 0) {
    fail(WFT_STATE_SYS_ERROR, error, TOR_NOT_TIMEOUT, finished);
    return true;
  }
  proxy_reply_.reset(new (std::nothrow) protocol::HttpResponse());
  if (!proxy_reply_) {
    fail(WFT_STATE_SYS_ERROR, ENOMEM, TOR_NOT_TIMEOUT, finished);
    return true;
  }
  proxy_reply_->parse_connect_reply();
  return true;
}

bool ClientConnection::read_proxy_reply(RunnableList& finished) {
  char buffer[4096];
  ssize_t n = -1;
  {
    MutexLock lock(mutex_);
    bool drained = true;
    n = stream_.read(buffer, sizeof buffer, &drained);
    readable_ |= n > 0 && (!drained || peer_closed());
  }
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    return false;
  }
  if (n <= 0) {
    fail(WFT_STATE_SYS_ERROR, n < 0 ? errno : ECONNRESET, TOR_NOT_TIMEOUT, finished);
    return true;
  }
  size_t taken = static_cast<size_t>(n);
  const int result = proxy_reply_->append(buffer, &taken);
  if (result == 0 && !proxy_reply_->is_header_complete()) {
    return true;
  }
  // The body of a refusal does not matter. After it has opened a tunnel, a proxy must not send
  // anything yet, because the client speaks first.
  const bool open =
      result == 1 && taken == static_cast<size_t>(n) && *proxy_reply_->get_status_code() == '2';
  proxy_reply_.reset();
  if (!open) {
    fail(WFT_STATE_TASK_ERROR, WFT_ERR_HTTP_PROXY_CONNECT_FAILED, TOR_NOT_TIMEOUT, finished);
    return true;
  }
  return connected(finished);
}

bool ClientConnection::handshake(RunnableList& finished) {
  int error = 0;
  int tls_error = 0;
  ClientSession* session = nullptr;
  {
    MutexLock lock(mutex_);
    error = stream_.handshake();
    if (error == 0) {
      readable_ = true;  // data may have come with the last message of the handshake
    }
    tls_error = stream_.tls()->tls_error();
    session = session_;
  }
  if (error == EAGAIN) {
    return false;
  }
  if (error != 0) {
    endpoint_->forget_tls_session();
  }
  if (error == EPROTO && tls_error != 0) {
    fail(WFT_STATE_SSL_ERROR, tls_error, TOR_NOT_TIMEOUT, finished);
  } else if (error != 0) {
    fail(WFT_STATE_SYS_ERROR, error, TOR_NOT_TIMEOUT, finished);
  } else {
    ClientFailure failure = {};
    if (send_request(State::kHandshaking, session, &failure) == Begin::kFailed) {
      session->failed(failure, finished);
    }
  }
  return true;
}

}  // namespace workflow
