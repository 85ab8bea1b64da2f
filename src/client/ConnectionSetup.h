#pragma once

#include <memory>

#include "client/ClientFailure.h"
#include "kernel/Stream.h"
#include "workflow/HttpMessage.h"

namespace workflow {

class ClientEndpoint;

// What happens between connect(2) and the first request: the connection is made, then a proxy may
// be asked for a tunnel to the peer, and then TLS may be agreed on. For datagrams only the first of
// these exists, and it does not wait.
//
//  stage         waits for  ends when                           and is followed by
//  kConnecting   room       the socket is connected             kTunneling if there is a proxy,
//                                                               otherwise as kTunneling
//  kTunneling    bytes      the proxy has answered with a 2xx   kHandshaking if there is TLS,
//                                                               otherwise the end
//  kHandshaking  bytes      the handshake is over               the end
//
// Belongs to a connection. Not thread-safe: the connection's lock guards it and the stream.
class ConnectionSetup {
 public:
  explicit ConnectionSetup(const ClientEndpoint& endpoint) : endpoint_(endpoint) {}

  enum class Progress {
    kWaits,       // call advance() again after an event
    kAgain,       // call advance() again, because more may have come already
    kHandshakes,  // as kAgain, and the time limit of the TLS handshake begins
    kDone,
    kFailed  // `*failure` is set
  };
  Progress advance(Stream& stream, ClientFailure* failure);

  // Whether advance() reads, and so waits for bytes, and not for room to write.
  bool reads() const { return stage_ != Stage::kConnecting; }
  bool is_handshaking() const { return stage_ == Stage::kHandshaking; }

 private:
  enum class Stage { kConnecting, kTunneling, kHandshaking };

  Progress finish_connecting(Stream& stream, ClientFailure* failure);
  Progress ask_proxy(Stream& stream, ClientFailure* failure);
  Progress read_proxy_reply(Stream& stream, ClientFailure* failure);
  Progress reached_peer(Stream& stream, ClientFailure* failure);
  Progress handshake(Stream& stream, ClientFailure* failure);

  const ClientEndpoint& endpoint_;
  Stage stage_ = Stage::kConnecting;
  std::unique_ptr<protocol::HttpResponse> proxy_reply_;  // in kTunneling
};

}  // namespace workflow
