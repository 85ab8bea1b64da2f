#include "client/ConnectionSetup.h"

#include <sys/uio.h>

#include <cerrno>
#include <new>
#include <string>

#include "client/ClientEndpoint.h"
#include "kernel/Socket.h"
#include "workflow/WFTaskError.h"

namespace workflow {

namespace {

ConnectionSetup::Progress failed(const ClientFailure& why, ClientFailure* failure) {
  *failure = why;
  return ConnectionSetup::Progress::kFailed;
}

}  // namespace

ConnectionSetup::Progress ConnectionSetup::advance(Stream& stream, ClientFailure* failure) {
  switch (stage_) {
    case Stage::kConnecting:
      return finish_connecting(stream, failure);
    case Stage::kTunneling:
      return read_proxy_reply(stream, failure);
    case Stage::kGreeting:
      return greet(stream, failure);
    case Stage::kAnswering:
      return read_answer(stream, failure);
    default:
      return handshake(stream, failure);
  }
}

ConnectionSetup::Progress ConnectionSetup::finish_connecting(Stream& stream,
                                                             ClientFailure* failure) {
  const int error = socket_error(stream.fd());
  if (error == EINPROGRESS) return Progress::kWaits;
  if (error != 0) return failed(ClientFailure::of_system(error), failure);
  set_no_delay(stream.fd(), endpoint_.transport());
  return endpoint_.tunnel_request().empty() ? reached_peer(stream, failure)
                                            : ask_proxy(stream, failure);
}

ConnectionSetup::Progress ConnectionSetup::ask_proxy(Stream& stream, ClientFailure* failure) {
  stage_ = Stage::kTunneling;
  const std::string& request = endpoint_.tunnel_request();
  for (size_t sent = 0; sent < request.size();) {
    // A new socket always takes these few bytes at once.
    struct iovec rest = {const_cast<char*>(request.data()) + sent, request.size() - sent};
    const ssize_t n = stream.write(&rest, 1);
    if (n < 0) return failed(ClientFailure::of_system(errno), failure);
    sent += static_cast<size_t>(n);
  }
  proxy_reply_.reset(new (std::nothrow) protocol::HttpResponse());
  if (!proxy_reply_) return failed(ClientFailure::of_system(ENOMEM), failure);
  proxy_reply_->parse_connect_reply();
  return Progress::kWaits;
}

ConnectionSetup::Progress ConnectionSetup::read_proxy_reply(Stream& stream,
                                                            ClientFailure* failure) {
  char buffer[4096];
  bool drained = true;
  const ssize_t n = stream.read(buffer, sizeof buffer, &drained);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Progress::kWaits;
  if (n <= 0) return failed(ClientFailure::of_system(n < 0 ? errno : ECONNRESET), failure);
  size_t taken = static_cast<size_t>(n);
  const int result = proxy_reply_->append(buffer, &taken);
  if (result == 0 && !proxy_reply_->is_header_complete()) return Progress::kAgain;
  // The body of a refusal does not matter. After it has opened a tunnel, a proxy must not send
  // anything yet, because the client speaks first.
  const bool open =
      result == 1 && taken == static_cast<size_t>(n) && *proxy_reply_->get_status_code() == '2';
  proxy_reply_.reset();
  return open ? reached_peer(stream, failure)
              : failed({.state = WFT_STATE_TASK_ERROR, .error = WFT_ERR_HTTP_PROXY_CONNECT_FAILED},
                       failure);
}

// The connection reaches the peer itself now, not only a proxy.
ConnectionSetup::Progress ConnectionSetup::reached_peer(Stream& stream, ClientFailure* failure) {
  if (!endpoint_.tls()) return ready_for_use(stream, failure);
  if (!endpoint_.tls()->begin(stream)) return failed(ClientFailure::of_system(ENOMEM), failure);
  stage_ = Stage::kHandshaking;
  return Progress::kHandshakes;
}

ConnectionSetup::Progress ConnectionSetup::handshake(Stream& stream, ClientFailure* failure) {
  const int error = stream.handshake();
  if (error == EAGAIN) return Progress::kWaits;
  return error == 0 ? ready_for_use(stream, failure)
                    : failed(ClientFailure::of_stream(error, stream), failure);
}

ConnectionSetup::Progress ConnectionSetup::ready_for_use(Stream& stream, ClientFailure* failure) {
  if (!endpoint_.greeting()) return Progress::kDone;
  answer_ = endpoint_.greeting()->new_answer();
  if (!answer_) return failed(ClientFailure::of_system(ENOMEM), failure);
  stage_ = Stage::kGreeting;
  return greet(stream, failure);
}

ConnectionSetup::Progress ConnectionSetup::greet(Stream& stream, ClientFailure* failure) {
  const std::string& bytes = endpoint_.greeting()->bytes();
  int error = 0;
  while (error == 0 && greeted_ < bytes.size()) {
    struct iovec rest = {const_cast<char*>(bytes.data()) + greeted_, bytes.size() - greeted_};
    const ssize_t n = stream.write(&rest, 1);
    if (n < 0) {
      error = errno;
    } else {
      greeted_ += static_cast<size_t>(n);
    }
  }
  if (error == 0) {
    error = stream.flush();
  }
  if (error == EAGAIN) return Progress::kWaits;
  if (error != 0) return failed(ClientFailure::of_stream(error, stream), failure);
  stage_ = Stage::kAnswering;
  return Progress::kAgain;
}

ConnectionSetup::Progress ConnectionSetup::read_answer(Stream& stream, ClientFailure* failure) {
  char buffer[4096];
  bool drained = true;
  const ssize_t n = stream.read(buffer, sizeof buffer, &drained);
  if (n < 0 && errno == EAGAIN) return Progress::kWaits;
  if (n <= 0) return failed(ClientFailure::of_stream(n < 0 ? errno : ECONNRESET, stream), failure);
  size_t taken = static_cast<size_t>(n);
  int result = -1;
  errno = 0;
  try {
    result = answer_->append(buffer, &taken);
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  if (result == 0) return Progress::kAgain;
  if (result < 0 && errno >= WFT_ERR_URI_PARSE_FAILED) {
    return failed({.state = WFT_STATE_TASK_ERROR, .error = errno}, failure);
  }
  // Nothing else was asked for.
  if (result < 0 || taken != static_cast<size_t>(n)) {
    const int error = result < 0 && errno != 0 ? errno : EBADMSG;
    return failed(ClientFailure::of_system(error), failure);
  }
  answer_.reset();
  return Progress::kDone;
}

}  // namespace workflow
