#pragma once

#include <sys/uio.h>

#include <cerrno>
#include <new>

#include "workflow/ProtocolMessage.h"
#include "workflow/detail/ClientExchange.h"

namespace workflow {

// The request of an exchange, encoded as vectors to send, and the message to receive into. Lives on
// the stack of the thread that sends the request. The vectors point into the request, which has to
// stay until they are sent.
class EncodedRequest {
 public:
  // Has the exchange complete its request. Sets `error` if that cannot be sent.
  EncodedRequest(ClientExchange* exchange, bool datagram) {
    try {
      errno = 0;
      protocol::ProtocolMessage* const request = exchange->next_request();
      count = request ? request->encode(vectors, kMaxVectors) : -1;
      if (count < 0) {
        error = errno == 0 || errno == EAGAIN ? EBADMSG : errno;
        return;
      }
      response = exchange->next_response();
      error = response ? 0 : EBADMSG;
    } catch (const std::bad_alloc&) {
      error = ENOMEM;
    }
    if (count == 0 && datagram) {
      vectors[0] = {nullptr, 0};  // an empty datagram is sent, too
      count = 1;
    }
  }

  static constexpr int kMaxVectors = 64;

  int error = 0;
  int count = 0;
  struct iovec vectors[kMaxVectors];
  protocol::ProtocolMessage* response = nullptr;
};

}  // namespace workflow
