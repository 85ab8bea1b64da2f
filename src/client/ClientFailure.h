#pragma once

#include <cerrno>

#include "kernel/Stream.h"
#include "workflow/WFTaskState.h"

namespace workflow {

// How a try of a session has failed. This decides whether there may be another try.
struct ClientFailure {
  int state = 0;
  int error = 0;
  int timeout_reason = 0;
  // The setup of the connection was finished, greeting included, and an exchange had begun. False
  // if the network has reported that nobody receives the datagram.
  bool connected = false;
  bool reused = false;      // the connection had carried exchanges before
  bool sent = false;        // bytes of the request may have reached the peer
  bool received = false;    // bytes of the response have come
  bool hopeless = false;    // another try would end in the same way
  bool unanswered = false;  // a datagram was sent, and nothing came back in time

  static ClientFailure of_system(int error) {
    return {.state = WFT_STATE_SYS_ERROR, .error = error};
  }
  // `error`: what the last call of that stream has returned.
  static ClientFailure of_stream(int error, const Stream& stream) {
    const int tls_error = error == EPROTO && stream.tls() ? stream.tls()->tls_error() : 0;
    return tls_error != 0 ? ClientFailure{.state = WFT_STATE_SSL_ERROR, .error = tls_error}
                          : of_system(error);
  }
};

}  // namespace workflow
